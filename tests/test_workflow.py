"""The workflow: what a change reruns, what each component did, and what bad input says."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import OVERLAYS, ROOT, Checkout, copy_checkout
from given.cases import cases

from pipeline.core.data.shards import read_table
from pipeline.core.stages import NAMES

TABLES = cases("components")
ITERATIONS = 3


def planned(checkout: Checkout, change: dict | None = None, *arguments: str) -> set[str]:
    """Names of the instances that a dry run would make under a further overlay."""
    overlays = OVERLAYS if change is None else checkout.overlay(change)
    done = checkout.snakemake("--dry-run", *arguments, overlays=overlays)
    assert done.returncode == 0, done.stdout[-3000:]
    return {
        re.match(r".*/store/(.+)/[0-9a-f]{16}/manifest.json", line)[1]
        for line in re.findall(r"^    output: (.*manifest.json),", done.stdout, re.MULTILINE)
    }


def of_stage(names: set[str]) -> set[str]:
    return {name.partition("/")[0] for name in names}


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


@pytest.mark.parametrize(("instance", "counter"), TABLES["work"])
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
    assert len(listed) == 34 and all((finished.folder / name).is_file() for name in listed)
    assert {row[-2] for row in rows} == {"ok"} and {row[-1] for row in rows} == {"no update"}


SMALL_FILES = [f"miniweb:warc/miniweb-{number:05d}.warc.gz" for number in range(2)]  # as in tests/small.yaml


def run(checkout: Checkout, change: dict, *targets: str) -> str:
    """Run the small workflow to its end under an overlay; returns what Snakemake printed."""
    done = checkout.dsm(*targets, overlays=checkout.overlay(change))
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def test_of_a_dump_added_to_a_finished_run_only_its_own_pages_are_read_and_hashed(
    finished: Checkout, tmp_path: Path
) -> None:
    """And of own files the content counts and not the time."""
    checkout = finished.copy(tmp_path, "results")
    warc = checkout.folder / "own.warc.gz"
    warc.write_bytes(finished.result("miniweb/data/warc/miniweb-00002.warc.gz").read_bytes())
    change = {"crawl": {"warc": [*SMALL_FILES, warc.name]}}
    stats = run(checkout, change, "crawl")
    assert {
        program: count for program, count in re.findall(r"^crawl_(extract|sign) +(\d+)$", stats, re.M)
    } == {"extract": "1", "sign": "1"}
    pages = json.loads(checkout.result("crawl/exact/manifest.json").read_text())["counts"]["pages"]
    assert pages > json.loads(finished.result("crawl/exact/manifest.json").read_text())["counts"]["pages"]
    assert planned(checkout, change, "crawl") == set()
    os.utime(warc)
    assert planned(checkout, change, "crawl") == set()
    content = bytearray(warc.read_bytes())
    content[len(content) // 2] ^= 1
    warc.write_bytes(content)
    os.utime(warc, (1e9, 1e9))
    programs = ("extract", "sign", "exact", "buckets", "survivors", "filter", "dedup")
    found = planned(checkout, change, "crawl")
    assert {re.match(r"crawl/([a-z]+)", name)[1] for name in found} == set(programs)
    assert sum(name.startswith(("crawl/extract", "crawl/sign")) for name in found) == 2


def test_a_variant_that_fails_runs_again_with_all_after_it_and_leaves_the_result_before_it(
    finished: Checkout, tmp_path: Path
) -> None:
    checkout = finished.copy(tmp_path, "results")
    weights = checkout.result("sft/instruct/data/model.safetensors").read_bytes()
    program = checkout.folder / "pipeline/sft.py"
    original = program.read_text()
    program.write_text("raise SystemExit('broken')\n")
    change = {"models": {"instruct": {"learning_rate": 0.123}}}
    failed = checkout.dsm(overlays=checkout.overlay(change))
    assert failed.returncode == 1 and "error: sft/instruct: ended without an error" in failed.stdout
    assert re.search("^sft/instruct: starts, about ", failed.stdout, re.MULTILINE)
    assert {"sft/instruct", "rl/grpo", "report"} <= planned(checkout, change)
    assert not checkout.result("report").exists(), "the report of the variant before it"
    program.write_text(original)
    assert planned(checkout) == set()
    assert checkout.snakemake().returncode == 0  # no job but that of the links
    assert checkout.result("sft/instruct/data/model.safetensors").read_bytes() == weights


def test_turning_a_key_back_takes_the_stored_result(finished: Checkout, tmp_path: Path) -> None:
    checkout = finished.copy(tmp_path, "results")
    page = checkout.result("report/index.html")
    first = page.read_bytes()
    run(checkout, {"report": {"seed_spread": 0.04}})
    assert page.read_bytes() != first
    told = run(checkout, {})
    assert page.read_bytes() == first and "report: starts" not in told
    assert "Nothing to be done" in run(checkout, {})


def test_an_edit_of_how_answers_are_graded_draws_no_new_samples(finished: Checkout, tmp_path: Path) -> None:
    checkout = finished.copy(tmp_path, "results", "work")
    rules = checkout.folder / "pipeline/evaluate/profiles.py"
    rules.write_text(rules.read_text() + "\n\ndef edited() -> None:\n    return None\n")
    assert "evaluate/grpo: finished" in run(checkout, {}, "evaluate/grpo")
    counters = json.loads(checkout.result("evaluate/grpo/run.json").read_text())["counters"]
    assert "vllm.requests" not in counters


def test_a_dry_run_in_a_fresh_checkout_shows_every_stage(tmp_path: Path) -> None:
    plan = planned(copy_checkout(tmp_path))
    assert of_stage(plan) == set(NAMES) - {"problems", "trajectory"} and len(plan) == 34


def test_snakemake_finds_nothing_to_complain_about() -> None:
    done = Checkout(ROOT).snakemake("--lint", overlays=["configs/demo.yaml"])
    assert done.returncode == 0, done.stdout[-3000:]


def test_each_stage_is_a_target(finished: Checkout) -> None:
    assert planned(finished, None, *NAMES) == set()
    assert of_stage(planned(finished, {"seed": 1}, "crawl")) == {"crawl", "miniweb"}


def test_the_default_configuration_is_that_of_the_code() -> None:
    subprocess.run([sys.executable, "-m", "pipeline.config", "--check"], cwd=ROOT, check=True)
