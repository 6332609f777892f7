"""What is current, what is not and why: on a finished small run, without running anything again."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import OVERLAYS, Checkout

from pipeline.cli import status
from pipeline.config.root import ConfigError
from pipeline.core.identity import read_manifest
from pipeline.core.stage import CODE, DEFINITIONS
from pipeline.core.store import STORE, Entry
from workflow.keys import Keys
from workflow.links import file_of_run, forced, leave_stale_links
from workflow.reasons import Reasons


@pytest.fixture
def there(finished: Checkout, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the finished run, as the working directory."""
    monkeypatch.chdir(finished.folder)
    yield finished.folder


@pytest.fixture
def copied(finished: Checkout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A copy of the finished run that may be damaged, as the working directory."""
    for name in ("configs", "tests"):
        shutil.copytree(finished.folder / name, tmp_path / name)
    (tmp_path / "work").mkdir()
    shutil.copy(finished.folder / CODE, tmp_path / CODE)
    subprocess.run(["cp", "-a", finished.folder / "results", tmp_path / "results"], check=True)
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def run_of(change: dict | None = None) -> Reasons:
    """What is made of the small run here and now, and why not the rest, under a further overlay."""
    files = OVERLAYS if change is None else Checkout(Path()).overlay(change)
    return Reasons(Keys(status.read_graph(files, [])))


def stale(change: dict | None = None) -> set[str]:
    run = run_of(change)
    return run.graph.nodes.keys() - run.made


def lines(change: dict | None = None) -> list[str]:
    return status.summary(run_of(change))


def test_a_changed_key_is_one_line_with_old_and_new_value_what_follows_and_the_time(there: Path) -> None:
    (line,) = lines({"models": {"grpo": {"kl_coefficient": 0.04}}})
    start = f"rl/grpo: kl_coefficient 0.0 -> 0.04; then evaluate/grpo, report{status.MAY_LINK}; about "
    assert line.startswith(start) and line.removeprefix(start)[0].isdigit()


def test_two_causes_are_two_lines(there: Path) -> None:
    found = lines({"models": {"grpo": {"kl_coefficient": 0.04}}, "evaluate": {"temperature": 0.9}})
    assert [line.partition(";")[0] for line in found] == [
        "rl/grpo: kl_coefficient 0.0 -> 0.04",
        "evaluate/base, evaluate/instruct, evaluate/tool, evaluate/grpo: temperature 0.7 -> 0.9",
    ]


def test_a_key_in_a_nested_section_is_named_with_its_path(there: Path) -> None:
    (line,) = lines({"models": {"base": {"optimizer": {"weight_decay": 0.2}}}})
    assert line.startswith("cpt/base: optimizer.weight_decay 0.1 -> 0.2; then ")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def change_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("harm", "file", "words"),
    [
        (Path.unlink, "sft/instruct/data/model.safetensors", "model.safetensors is missing"),
        (cut, "cpt/base/data/model.safetensors", "bytes, not"),
        (change_a_byte, "cpt/base/data/model.safetensors", "its bytes are not those"),
    ],
)
def test_a_lost_or_damaged_file_is_found_by_verify_and_made_again(
    copied: Path, harm: Callable[[Path], None], file: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied / "results/small" / file
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    harm(path)
    if path.exists():
        os.utime(path, ns=times)
    assert stale() == set(), "a manifest is the only witness"
    status.main(["--configfile", *OVERLAYS, "--verify"])
    instance = "/".join(file.split("/")[:2])
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith(f"{instance}: ") and words in told[0]
    assert told[1].startswith(f"{instance}: its manifest was removed; then ")
    assert stale() == {instance, *after(instance)}


def after(name: str) -> set[str]:
    """The instances that read an instance's result, directly or not."""
    graph, found = run_of().graph, {name}
    for one in graph.nodes:  # in an order in which inputs come first
        if found & graph.before(one).keys():
            found.add(one)
    return found - {name}


@pytest.mark.parametrize("text", ["[]", '{"schema": 0, "files": {}}'])
def test_a_result_whose_manifest_is_of_another_form_is_not_made(copied: Path, text: str) -> None:
    """`test_changes.py` has those that are gone, empty or cut off."""
    (copied / "results/small/sft/instruct/manifest.json").write_text(text)
    (line,) = lines()
    assert line.startswith("sft/instruct: its manifest cannot be read; then ")
    assert stale() == {"sft/instruct", *after("sft/instruct")}


def test_links_that_were_removed_come_back_without_any_work(copied: Path) -> None:
    link = copied / "results/small/sft/instruct"
    before = os.readlink(link)
    link.unlink()
    leave_stale_links(run_of().keys)
    assert os.readlink(link) == before


def test_results_copied_without_links_are_adopted(
    copied: Path, finished: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = copied / "elsewhere"
    subprocess.run(["cp", "-rL", finished.folder / "results/small", elsewhere], check=True)
    shutil.rmtree(elsewhere / STORE)
    shutil.rmtree(copied / "results")
    overlays = ["--configfile", *OVERLAYS]
    status.main([*overlays, "--adopt", str(elsewhere)])
    others = len(run_of().graph.nodes) - 1
    assert capsys.readouterr().out.startswith(f"adopted {others} results from ")
    assert stale() == {"report"}, "its link leads to its data, so its manifest was not copied"


def test_of_adopted_results_none_names_another_and_models_bring_their_code(copied: Path) -> None:
    """A result that cannot be read is passed over, and no link is left for a job to move."""
    keys = run_of().keys
    base, other = keys.entry("cpt/base"), Entry(keys.run, "cpt/base", "0123456789abcdef")
    base.folder.rename(other.folder)
    base.link_to(other, {})
    keys.entry("sft/tool").manifest.write_text("{")
    (copied / "results").rename(copied / "elsewhere")
    status.main(["--configfile", *OVERLAYS, "--adopt", "elsewhere/small"])
    assert "sft/tool" in stale() and not file_of_run(keys).exists()
    assert "made_as" not in read_manifest(base.manifest)
    assert (base.folder / DEFINITIONS).is_file() and not base.data.is_symlink()


def test_a_result_with_other_bytes_than_its_manifest_lists_is_not_adopted(
    copied: Path, finished: Checkout
) -> None:
    elsewhere = copied / "elsewhere"
    subprocess.run(["cp", "-rL", finished.folder / "results/small", elsewhere], check=True)
    shutil.rmtree(copied / "results")
    path = elsewhere / "sft/instruct/data/model.safetensors"
    change_a_byte(path)
    os.utime(path, (1e9, 1e9))
    shutil.rmtree(elsewhere / STORE)
    with pytest.raises(SystemExit, match="model.safetensors.* cannot be adopted"):
        status.main(["--configfile", *OVERLAYS, "--adopt", str(elsewhere)])
    assert not (copied / "results/small/sft/instruct").exists()
    with pytest.raises(SystemExit, match="--adopt no/such: no such folder"):
        status.main(["--configfile", *OVERLAYS, "--adopt", "no/such"])


def test_cleaning_the_store_drops_what_the_configuration_does_not_name_and_says_how_much(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status.main(["--configfile", *OVERLAYS, "--clean-store"])
    store = copied / "results/small" / STORE
    other = store / "rl/grpo/0123456789abcdef"
    shutil.copytree(copied / "results/small/rl/grpo", other)
    size = sum(path.stat().st_size for path in other.rglob("*") if path.is_file())
    status.main(["--configfile", *OVERLAYS, "--clean-store"])
    assert f"dropped 1 results, {size / 1e6:,.1f} MB" in capsys.readouterr().out
    assert not other.exists() and stale() == set()


@pytest.mark.parametrize("how", ["link", "cpt", "cpt_model", "manifest", "all"])
def test_a_pinned_result_cannot_be_made_again(there: Path, how: str) -> None:
    key = run_of().keys.key("cpt/base")
    keys = run_of({"pins": {"cpt/base": key}}).keys
    entry = keys.entry("cpt/base")
    word = {"manifest": str(entry.manifest), "link": str(entry.link)}.get(how, how)
    with pytest.raises(ConfigError, match=f"^config key pins.cpt/base: {key} is pinned"):
        forced(keys, [word])
    assert forced(keys, [str(keys.entry("rl/grpo").link)]) == {"rl/grpo"}


def test_a_damaged_pinned_result_is_told_and_stays(copied: Path) -> None:
    keys = run_of({"pins": {"cpt/base": run_of().keys.key("cpt/base")}}).keys
    change_a_byte(copied / "results/small/cpt/base/data/model.safetensors")
    (line,) = status.verify(keys)
    assert line.startswith("cpt/base: ") and keys.entry("cpt/base").made


def test_a_pin_is_taken_back_by_null(there: Path) -> None:
    assert run_of({"pins": {"cpt/base": None}}).graph.config.pins == {}
    assert stale({"pins": {"cpt/base": None}}) == set()


def test_manifests_hold_nothing_that_a_second_run_would_change(there: Path) -> None:
    for path in (there / "results/small" / STORE).rglob("manifest.json"):
        manifest = json.loads(path.read_text())
        assert not {"started", "seconds", "host"} & set(manifest)
        assert not any(name.startswith(("metrics.jsonl", "tensorboard")) for name in manifest["files"])


def test_words_of_the_command_merge_into_sections_as_snakemakes_do() -> None:
    graph = status.read_graph(["configs/demo.yaml"], ["rl={learning_rate: 0.5}"])
    section = graph.config.sections["rl"]
    assert (section.learning_rate, section.steps, section.group_size) == (0.5, 20, 16)
