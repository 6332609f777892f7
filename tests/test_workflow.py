"""The workflow: what a change reruns, what each component did, and what bad input says."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import OVERLAYS, ROOT, Checkout, copy_checkout

from pipeline import status
from pipeline.data.shards import read_table
from pipeline.stages import NAMES

ITERATIONS = 3


def planned(checkout: Checkout, change: dict | None = None, *arguments: str) -> set[str]:
    """Names of the instances that a dry run would make under a further overlay."""
    overlays = list(OVERLAYS)
    if change is not None:
        (checkout.folder / "change.yaml").write_text(yaml.safe_dump(change, sort_keys=False))
        overlays.append("change.yaml")
    done = checkout.snakemake("--dry-run", *arguments, overlays=overlays)
    assert done.returncode == 0, done.stdout[-3000:]
    return {
        re.match(r".*/store/(.+)/[0-9a-f]{16}/manifest.json", line)[1]
        for line in re.findall(r"^    output: (.*manifest.json),", done.stdout, re.MULTILINE)
    }


def of_stage(names: set[str]) -> set[str]:
    return {name.partition("/")[0] for name in names}


def test_a_finished_run_has_nothing_to_do(finished: Checkout) -> None:
    assert planned(finished) == set()


def test_every_instance_left_a_manifest_and_the_report_stands(finished: Checkout) -> None:
    summary = json.loads(finished.result("report/summary.json").read_text())
    assert summary["run"] == "small"
    assert {"base", "instruct", "grpo"} <= set(summary["models"])
    assert len(summary["corpus"]["iterations"]) == ITERATIONS


def test_modes_of_published_files_follow_the_umask(finished: Checkout) -> None:
    store = finished.result("store")
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in store.rglob("*") if path.is_file()}
    (finished.folder / "probe").touch()
    wanted = stat.S_IMODE((finished.folder / "probe").stat().st_mode)
    assert [path for path, mode in modes.items() if mode != wanted] == []
    assert any(path.suffix == ".safetensors" for path in modes)


def test_every_record_of_the_crawl_has_a_row_that_says_what_became_of_it(finished: Checkout) -> None:
    pages = read_table(finished.result("corpus/pages.parquet")).to_pylist()
    records = [read_table(path) for path in finished.result("crawl").glob("extract-*/data/records.parquet")]
    assert (
        len(pages) == sum(map(len, records)) == len({(page["warc_file"], page["offset"]) for page in pages})
    )
    statuses = {"kept", "below_cut", "excluded", "duplicate", "rejected", "contaminated"}
    assert {page["status"] for page in pages} == statuses
    for page in pages:
        assert (page["score"] is None) == (page["status"] in {"excluded", "duplicate", "rejected"})
        assert (page["reason"] is None) == (page["status"] == "kept")


@pytest.mark.parametrize(
    ("instance", "counter"),
    [
        ("crawl/extract-*", "fastwarc.records"),
        ("crawl/extract-*", "resiliparse.pages"),
        ("crawl/buckets-0000", "minhash.pairs"),
        ("crawl/filter-0000", "pool.pages"),
        ("corpus/iteration-1/train", "fasttext."),
        ("corpus/iteration-1/score-0000", "fasttext."),
        ("cpt/base", "deepspeed."),
        ("sft/instruct", "deepspeed."),
        ("rl/grpo", "deepspeed."),
        ("rl/grpo", "vllm."),
        ("reward/prm", "vllm."),
        ("evaluate/grpo", "vllm."),
        ("evaluate/tool", "vllm."),
    ],
)
def test_the_component_really_did_the_work(finished: Checkout, instance: str, counter: str) -> None:
    path = next(finished.result("crawl").parent.glob(f"{instance}/run.json"))
    run = json.loads(path.read_text())
    assert sum(value for name, value in run["counters"].items() if name.startswith(counter)) > 0, run[
        "counters"
    ]


def test_a_summary_lists_the_files_of_all_results(finished: Checkout) -> None:
    done = finished.snakemake("--summary")
    rows = [line.split("\t") for line in done.stdout.splitlines() if line.startswith("results/small/")]
    listed = {row[0] for row in rows if row[0].endswith("/manifest.json")}
    assert len(listed) == 35 and all((finished.folder / name).is_file() for name in listed)
    assert {row[-2] for row in rows} == {"ok"} and {row[-1] for row in rows} == {"no update"}


SMALL_FILES = [f"miniweb:warc/miniweb-{number:05d}.warc.gz" for number in range(2)]  # as in tests/small.yaml


def copy_finished(finished: Checkout, folder: Path) -> Checkout:
    """A checkout with the small run's results but without Snakemake's own records, as in a new clone."""
    checkout = copy_checkout(folder)
    subprocess.run(["cp", "-r", finished.folder / "results", folder / "results"], check=True)
    return checkout


def run(checkout: Checkout, change: dict, *targets: str) -> str:
    """Run the small workflow to its end under an overlay; returns what Snakemake printed."""
    (checkout.folder / "change.yaml").write_text(yaml.safe_dump(change, sort_keys=False))
    done = checkout.dsm(*targets, overlays=[*OVERLAYS, "change.yaml"])
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def test_results_copied_into_a_new_clone_are_not_made_again(finished: Checkout, tmp_path: Path) -> None:
    assert planned(copy_finished(finished, tmp_path)) == set()


def test_a_new_key_whose_default_changes_nothing_reruns_nothing(finished: Checkout) -> None:
    path = finished.folder / "pipeline/config/cpt.py"
    original = path.read_text()
    path.write_text(original + '    extra: bool = key(False, "an option that nobody has asked for yet")\n')
    try:
        assert planned(finished) == set()
        assert "cpt/base" in planned(finished, {"cpt": {"extra": True}})
    finally:
        path.write_text(original)


def test_of_a_dump_added_to_a_finished_run_only_its_own_pages_are_read_and_hashed(
    finished: Checkout, tmp_path: Path
) -> None:
    """And of own files the content counts and not the time."""
    checkout = copy_finished(finished, tmp_path)
    warc = checkout.folder / "own.warc.gz"
    warc.write_bytes(finished.result("miniweb/data/warc/miniweb-00002.warc.gz").read_bytes())
    change = {"crawl": {"warc": [*SMALL_FILES, warc.name]}}
    stats = run(checkout, change, "crawl")
    assert {
        program: count for program, count in re.findall(r"^crawl_(extract|sign) +(\d+)$", stats, re.M)
    } == {
        "extract": "1",
        "sign": "1",
    }
    pages = json.loads(checkout.result("crawl/exact/manifest.json").read_text())["counts"]["pages"]
    assert pages > json.loads(finished.result("crawl/exact/manifest.json").read_text())["counts"]["pages"]
    assert planned(checkout, change, "crawl") == set()
    os.utime(warc)
    assert planned(checkout, change, "crawl") == set()
    content = bytearray(warc.read_bytes())
    content[len(content) // 2] ^= 1
    warc.write_bytes(content)
    os.utime(warc, (1e9, 1e9))
    programs = ("extract", "sign", "exact", "buckets", "cluster", "resolve", "filter", "dedup")
    found = planned(checkout, change, "crawl")
    assert {re.match(r"crawl/([a-z]+)", name)[1] for name in found} == set(programs)
    assert sum(name.startswith(("crawl/extract", "crawl/sign")) for name in found) == 2


def test_a_variant_that_fails_runs_again_with_all_after_it_and_leaves_the_result_before_it(
    finished: Checkout, tmp_path: Path
) -> None:
    checkout = copy_finished(finished, tmp_path)
    weights = checkout.result("sft/instruct/data/model.safetensors").read_bytes()
    program = checkout.folder / "pipeline/sft.py"
    original = program.read_text()
    program.write_text("raise SystemExit('broken')\n")
    change = {"models": {"instruct": {"learning_rate": 0.123}}}
    (checkout.folder / "change.yaml").write_text(yaml.safe_dump(change))
    failed = checkout.dsm(overlays=[*OVERLAYS, "change.yaml"])
    *told, last = failed.stdout.splitlines()
    (log,) = (line.partition("(log: ")[2].rstrip(")") for line in [last])
    assert re.fullmatch(r"results/small/logs/sft/instruct-[0-9a-f]{16}\.log", log)
    why = f"ended without an error; it said last: broken (log: {log})"
    assert failed.returncode == 1 and last == f"error: sft/instruct: {why}" and (tmp_path / log).is_file()
    assert any(line.startswith("sft/instruct: starts, about ") for line in told)
    assert not [line for line in told if "Select jobs" in line or "CalledProcess" in line]
    assert {"sft/instruct", "rl/grpo", "report"} <= planned(checkout, change)
    assert not checkout.result("report").exists(), "the report of the variant before it"
    program.write_text(original)
    assert planned(checkout) == set()
    assert checkout.snakemake().returncode == 0  # no job but that of the links
    assert checkout.result("sft/instruct/data/model.safetensors").read_bytes() == weights


def test_turning_a_key_back_takes_the_stored_result(finished: Checkout, tmp_path: Path) -> None:
    checkout = copy_finished(finished, tmp_path)
    page = checkout.result("report/index.html")
    first = page.read_bytes()
    run(checkout, {"report": {"removals": 3}})
    assert page.read_bytes() != first
    told = run(checkout, {})
    assert page.read_bytes() == first and "report: starts" not in told
    assert "Nothing to be done" in run(checkout, {})


def test_an_edit_of_the_grader_draws_no_new_samples(finished: Checkout, tmp_path: Path) -> None:
    checkout = copy_finished(finished, tmp_path)
    subprocess.run(["cp", "-r", finished.folder / "work", tmp_path / "work"], check=True)
    grader = checkout.folder / "pipeline/grader/answers.py"
    grader.write_text(grader.read_text() + "\n\ndef edited() -> None:\n    return None\n")
    assert "evaluate/grpo: finished" in run(checkout, {}, "evaluate/grpo")
    counters = json.loads(checkout.result("evaluate/grpo/run.json").read_text())["counters"]
    assert "vllm.requests" not in counters


def test_a_dry_run_in_a_fresh_checkout_shows_every_stage(tmp_path: Path) -> None:
    plan = planned(copy_checkout(tmp_path))
    assert of_stage(plan) == set(NAMES) - {"problems", "trajectory"} and len(plan) == 35


def test_snakemake_finds_nothing_to_complain_about() -> None:
    done = Checkout(ROOT).snakemake("--lint", overlays=["configs/demo.yaml"])
    assert done.returncode == 0, done.stdout[-3000:]


def test_each_stage_is_a_target(finished: Checkout) -> None:
    assert planned(finished, None, *NAMES) == set()
    assert of_stage(planned(finished, {"seed": 1}, "crawl")) == {"crawl", "miniweb"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"crawll": {}}, ["crawll", "did you mean 'crawl'"]),
        ({"rl": {"kl_coeficient": 0.1}}, ["rl.kl_coeficient", "did you mean 'kl_coefficient'"]),
        ({"rl": {"kl_coefficient": "large"}}, ["rl.kl_coefficient", "large"]),
        ({"models": {"grpo": {"kl_coeficient": 1}}}, ["models.grpo.kl_coeficient"]),
        ({"models": {"grpo": {"parent": "instrct"}}}, ["models.grpo.parent", "instruct"]),
        ({"crawl": {"warc": ["no/such/file.warc.gz"]}}, ["no/such/file.warc.gz"]),
        (
            {"benchmarks": {"miniweb": {"source": "no/such/test.jsonl"}}},
            ["benchmarks.miniweb.source", "no/such/test.jsonl"],
        ),
    ],
)
def test_bad_configuration_is_one_line_that_names_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict, words: list[str]
) -> None:
    monkeypatch.chdir(ROOT)
    overlay = tmp_path / "change.yaml"
    overlay.write_text(yaml.safe_dump(change))
    with pytest.raises(SystemExit) as error:
        status.main(["--configfile", *OVERLAYS, str(overlay)])
    assert "\n" not in str(error.value) and all(word in str(error.value) for word in words)


def test_snakemake_says_it_in_one_line_too(tmp_path: Path) -> None:
    overlay, words = tmp_path / "change.yaml", ["rl.kl_coeficient", "did you mean 'kl_coefficient'"]
    overlay.write_text(yaml.safe_dump({"rl": {"kl_coeficient": 0.1}}))
    done = Checkout(ROOT).snakemake("--dry-run", overlays=[*OVERLAYS, str(overlay)])
    assert done.returncode != 0
    lines = [line for line in done.stdout.splitlines() if all(word in line for word in words)]
    assert lines, done.stdout[-2000:]
    assert "Traceback" not in done.stdout


NO_CONFIGURATIONS = {"claims.yaml", "paper.yaml", "profiles.yaml"}  # data of the report and of the grader
CONFIGURATIONS = sorted(
    path for path in (ROOT / "configs").glob("*.yaml") if path.name not in NO_CONFIGURATIONS
)


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.name)
def test_every_shipped_configuration_fits_the_schema(path: Path) -> None:
    import jsonschema

    schema = json.loads((ROOT / "workflow/schemas/config.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(path.read_text()))


def test_default_configuration_and_schema_are_those_of_the_code() -> None:
    subprocess.run([sys.executable, "-m", "pipeline.config", "--check"], cwd=ROOT, check=True)
