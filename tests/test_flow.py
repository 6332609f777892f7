"""What Snakemake's own options mean here: what only looks writes nothing, what is forced is made again."""

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import CORES, OVERLAYS, Checkout, copy_checkout
from given.machines import Small

from pipeline.cli.chat import __main__ as chat
from pipeline.cli.chat.model import Chat
from pipeline.cli.export import entry_of
from pipeline.cli.status import read_graph, summary
from pipeline.core.arguments import read_inputs
from pipeline.core.data.shards import read_lines
from pipeline.core.identity import read_manifest
from workflow.keys import Keys
from workflow.preflight import missing
from workflow.reasons import Reasons


@pytest.fixture
def checkout(finished: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """A checkout with the finished small run, which may be changed, as the working directory."""
    checkout = finished.copy(tmp_path / "checkout", "results", "work")
    monkeypatch.chdir(checkout.folder)
    return checkout


def tree(checkout: Checkout) -> dict[str, tuple[int, int, int]]:
    """Size, time and inode of all that lies under results/ and work/."""
    found = {}
    for folder in ("results", "work"):
        for path in [checkout.folder / folder, *(checkout.folder / folder).rglob("*")]:
            status = path.lstat()
            found[str(path)] = status.st_size, status.st_mtime_ns, status.st_ino
    return found


@pytest.mark.parametrize("program", ["dsm", "snakemake"])
def test_a_result_stays_whose_job_failed_after_it_was_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    checkout, tee = copy_checkout(tmp_path / "checkout"), tmp_path / "bin/tee"
    small = {
        "enabled": True,
        "scale": 0.05,
        "sft": 20,
        "rl": 20,
        "test": 20,
    }
    (checkout.folder / "web.yaml").write_text(yaml.safe_dump({"run": "small", "miniweb": small}))
    run, path = getattr(checkout, program), os.environ["PATH"]
    tee.parent.mkdir()
    tee.write_text('#!/bin/sh\ncat > "$1"\nexit 1\n')  # as on a full disk
    tee.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tee.parent}:{path}")
    failed = run("--until", "miniweb_web", overlays=["web.yaml"])
    (manifest,) = checkout.folder.glob("results/small/store/miniweb/*/manifest.json")
    assert failed.returncode == 1, failed.stdout
    made = manifest.stat().st_mtime_ns
    monkeypatch.setenv("PATH", path)
    assert run("--until", "miniweb_web", overlays=["web.yaml"]).returncode == 0
    assert manifest.stat().st_mtime_ns == made


@pytest.mark.parametrize("option", ["--dry-run", "--summary", "--lint", "--unlock"])
def test_what_only_looks_writes_nothing(checkout: Checkout, option: str) -> None:
    """Although a key has changed, a file of the user's is new, and a link leads elsewhere."""
    prompt = checkout.folder / "configs/prompts/question-answer.yaml"
    prompt.write_text(prompt.read_text() + "# c\n")
    checkout.result("sft/instruct").unlink()
    overlays = checkout.overlay({"evaluate": {"temperature": 0.9}})
    before = tree(checkout)
    done = checkout.snakemake(option, overlays=overlays)
    assert done.returncode == 0, done.stdout[-3000:]
    assert tree(checkout) == before


def started(checkout: Checkout, overlays: list[str], *words: str) -> subprocess.Popen[str]:
    """A run in the background, in a process group of its own."""
    command = [sys.executable, "-m", "pipeline", "run", *overlays, *CORES, *words]
    return subprocess.Popen(
        command,
        cwd=checkout.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def said(run: subprocess.Popen[str], words: str) -> None:
    """Read what a run prints until it says this."""
    assert any(words in line for line in run.stdout), words


def test_a_dry_run_and_another_variant_do_not_disturb_a_run(checkout: Checkout) -> None:
    """It stands still in the middle of a job meanwhile."""
    one = checkout.overlay({"models": {"tool": {"steps": 5}}}, "one.yaml")
    two = checkout.overlay({"models": {"tool": {"steps": 3}}}, "two.yaml")
    run = started(checkout, one, "--", "sft/tool")
    said(run, "sft/tool: starts")
    os.killpg(run.pid, signal.SIGSTOP)
    try:
        dry = checkout.snakemake("--dry-run", "--config", "seed=1", overlays=one)
        other = checkout.dsm("--", "sft/tool", overlays=two)
    finally:
        os.killpg(run.pid, signal.SIGCONT)
    told = run.communicate(timeout=900)[0]
    assert dry.returncode == 0 and "miniweb: seed 0 -> 1" in dry.stdout, dry.stdout[-3000:]
    assert other.returncode == 0 and "sft/tool: finished" in other.stdout, other.stdout[-3000:]
    assert run.returncode == 0 and "sft/tool: finished" in told, told[-3000:]
    for overlays, steps in ((one, 5), (two, 3), (OVERLAYS, 4)):
        manifest = keys_of(overlays).entry("sft/tool").manifest
        assert read_manifest(manifest)["config"]["steps"] == steps


def keys_of(overlays: list[str] = OVERLAYS) -> Keys:
    """The keys of a configuration, here and now."""
    return Keys(read_graph(overlays, []))


@pytest.mark.parametrize("words", ["--forcerun crawl_extract", "--forcerun crawl/extract", "--forceall"])
def test_what_is_forced_is_made_again_and_ends_with_the_same_bytes(checkout: Checkout, words: str) -> None:
    name = next(path.name for path in checkout.result("crawl").glob("extract-*"))
    words = words.replace("crawl/extract", f"crawl/{name}")
    manifest = checkout.result(f"crawl/{name}/manifest.json")
    before, was = manifest.read_bytes(), manifest.resolve().stat().st_ino
    done = checkout.dsm(*words.split(), "--", f"crawl/{name}")
    assert done.returncode == 0 and f"crawl/{name}: finished" in done.stdout, done.stdout[-3000:]
    assert ("miniweb: finished" in done.stdout) == (words == "--forceall")
    assert "made before" not in done.stdout
    assert manifest.read_bytes() == before and manifest.resolve().stat().st_ino != was


def test_a_pinned_result_is_not_touched_whoever_asks(checkout: Checkout) -> None:
    """`--force` with a file is seen when the jobs are known, `--forcerun` before."""
    base = keys_of().entry("cpt/base")
    before = tree(checkout)
    overlays = checkout.overlay({"pins": {"cpt/base": base.key}})
    asked = [str(base.manifest), "--force"], ["results/small/sft/instruct", "--forcerun", "cpt"]
    for words in asked:
        done = checkout.snakemake(*words, overlays=overlays)
        told = [line for line in done.stdout.splitlines() if f"pins.cpt/base: {base.key} is pinned" in line]
        assert done.returncode == 1 and len(told) == 1, done.stdout[-3000:]
    assert tree(checkout) == before


def test_results_put_aside_by_a_killed_run_survive_cleaning_and_are_linked(checkout: Checkout) -> None:
    keys = keys_of()
    weights = (keys.entry("cpt/base").data / "model.safetensors").stat().st_ino
    run = started(checkout, OVERLAYS, "--forcerun", "tokens/math", "--", "cpt/base")
    said(run, "tokens/math: starts")
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    assert not keys.entry("cpt/base").made
    command = [sys.executable, "-m", "pipeline.cli.status", "--configfile", *OVERLAYS, "--clean-store"]
    told = subprocess.run(command, cwd=checkout.folder, capture_output=True, text=True, check=True).stdout
    assert "earlier results of what is not made yet" in told
    assert checkout.snakemake("--unlock").returncode == 0
    done = checkout.dsm("--", "cpt/base")
    assert done.returncode == 0 and "cpt/base: made before" in done.stdout, done.stdout[-3000:]
    assert (keys.entry("cpt/base").data / "model.safetensors").stat().st_ino == weights


def test_a_run_with_nothing_to_do_tells_of_an_edited_loss(checkout: Checkout) -> None:
    path = checkout.folder / "pipeline/rl/objectives.py"
    path.write_text(path.read_text().replace("torch.minimum(", "torch.maximum(", 1))
    done = checkout.dsm()
    assert done.returncode == 0 and "Nothing to be done" in done.stdout
    assert "rl/grpo: made by other code: rl/objectives.py " in done.stdout


def test_a_link_is_a_target_that_sees_a_changed_key_and_moves(checkout: Checkout) -> None:
    link, overlays = "results/small/report", checkout.overlay({"report": {"seed_spread": 0.04}})
    before = os.readlink(checkout.folder / link)
    done = checkout.snakemake(link, overlays=overlays)
    assert done.returncode == 0 and "rule report_page:" in done.stdout, done.stdout[-3000:]
    assert os.readlink(checkout.folder / link) != before
    assert "Nothing to be done" in checkout.snakemake(link, overlays=overlays).stdout
    back = checkout.snakemake(link)
    assert back.returncode == 0 and "rule report_page:" not in back.stdout, back.stdout[-3000:]
    assert os.readlink(checkout.folder / link) == before
    assert "Nothing to be done" in checkout.dsm(f"{link}/index.html").stdout


def test_a_result_whose_data_is_gone_is_made_again(checkout: Checkout) -> None:
    keys = keys_of()
    shutil.rmtree(keys.entry("sft/tool").data)
    told = summary(Reasons(keys_of()))
    assert [line.split("; ")[0] for line in told] == ["sft/tool: its data was removed"], told
    plan = checkout.snakemake("--dry-run").stdout
    assert plan.count("rule sft_model:") == 1 and told[0] in plan, plan[-3000:]
    done = checkout.dsm("--", "sft/tool")
    assert done.returncode == 0 and "sft/tool: finished" in done.stdout, done.stdout[-3000:]
    assert keys.entry("sft/tool").made and "made before" not in done.stdout


def test_a_result_is_named_by_its_link_or_its_data_alike(
    checkout: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the configuration, by programs, `dsm chat` and `dsm export`."""
    links = [f"results/small/rl/grpo{end}" for end in ("", "/", "/data")]
    nodes = {f"m{place}": {"stage": "sft", "init": link} for place, link in enumerate(links)}
    keys = keys_of(checkout.overlay({"models": nodes, "sft": {"data": "miniweb:sft.jsonl"}}))
    assert len({keys.graph.nodes[f"sft/m{place}"].inputs for place in range(3)}) == 1
    assert missing(keys.graph, {"sft/m0": 0, "sft/m2": 0}, False, Small()) == []
    assert {path.rstrip("/") for path in read_inputs([f"model={link}" for link in links])["model"]} == {
        links[2]
    }
    assert {entry_of(Path(link)).key for link in links} == {keys_of().key("rl/grpo")}
    for end in ("", "/data"):
        with pytest.raises(SystemExit):
            chat.main(["--model", f"results/small/reward/prm{end}"])
        told = capsys.readouterr().err
        assert told.count("\n") == 1 and "prm/data: a reward model, which writes no text" in told
        assert Chat(f"results/small/rl/grpo{end}").section == Chat(links[2]).section


def test_deleting_all_output_deletes_the_results(checkout: Checkout) -> None:
    done = checkout.snakemake("results/small/sft/tool", "--delete-all-output")
    assert done.returncode == 0, done.stdout[-3000:]
    keys = keys_of()
    gone = {name for name in keys.graph.nodes if not keys.entry(name).manifest.exists()}
    assert {"miniweb", "cpt/base", "sft/tool"} <= gone and "rl/grpo" not in gone


def test_status_asks_a_few_times_for_the_files_of_each_result(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """61 times for each of a dump's took minutes on a shared file system."""
    asked: Counter[str] = Counter()

    def counting(name: str, real: Callable) -> Callable:
        def call(path: Any, *more: Any, **keys: Any) -> Any:
            asked[name] += "results/small" in str(path)
            return real(path, *more, **keys)

        return call

    for name in ("stat", "lstat", "scandir", "readlink", "listdir"):
        monkeypatch.setattr(os, name, counting(name, getattr(os, name)))
    keys = keys_of()
    lines = summary(Reasons(keys))
    monkeypatch.undo()
    number = len(keys.graph.nodes)
    assert lines == [f"results/small: all {number} results are current"]
    assert number <= asked["stat"] and sum(asked.values()) <= 5 * number, asked


SAME = ("miniweb", "crawl/extract-*", "crawl/sign-*", "crawl/exact", "corpus/*/train", "tokens/tokenizer")
JOINED = {"decontaminate/corpus": "corpus/*.jsonl.zst", "tokens/math": "parts/*/*.bin"}


def test_data_are_the_same_bytes_with_other_cores_and_other_numbers_of_jobs(
    finished: Checkout, tmp_path: Path
) -> None:
    """So a result that is made again ends the chain, whoever makes it."""
    other = copy_checkout(tmp_path)
    crawl = {"pool_shards": 2, "bucket_jobs": 2}
    overlays = other.overlay({"launch": {"threads": 2}, "crawl": crawl})
    threads = ["crawl_extract=2", "crawl_sign=2", "corpus_train=2", "corpus_select=2", "tokens_mixture=2"]
    done = other.dsm("tokens", "--cores", "2", "--set-threads", *threads, overlays=overlays)
    assert done.returncode == 0, done.stdout[-3000:]
    names = [path for each in SAME for path in finished.result("").glob(f"{each}/manifest.json")]
    assert len(names) == 10
    for path in names:
        name = path.relative_to(finished.result(""))
        assert read_manifest(other.result(str(name)))["files"] == read_manifest(path)["files"], name
    for name, files in JOINED.items():
        one, two = (sorted(each.result(f"{name}/data").glob(files)) for each in (finished, other))
        assert len(two) > len(one)
        assert b"".join(map(content, two)) == b"".join(map(content, one)), name


def content(path: Path) -> bytes:
    """The bytes of a file, unpacked."""
    return b"".join(read_lines(path)) if path.suffix == ".zst" else path.read_bytes()
