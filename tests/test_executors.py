"""Other executors of Snakemake run the jobs, and a storage of Snakemake keeps the results."""

import re
import shutil
from pathlib import Path

import pytest
from conftest import Checkout, copy_checkout

from pipeline.cli.status import read_graph
from pipeline.core.identity import read_manifest
from workflow.keys import Keys

SUBMIT = """#!/bin/sh
# As sbatch does: takes a script, prints a number, and lets the script run by itself.
echo "$1 $2" >> {asked}
sh "$3" > "$3.out" 2>&1 &
echo $!
"""


def test_another_executor_is_asked_for_gpus_only_for_what_is_not_linked(
    finished: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokenizer is made again with the same bytes, so mixture, base and instruct model are linked."""
    checkout = finished.copy(tmp_path / "checkout", "results")
    submit, asked = tmp_path / "submit.sh", tmp_path / "asked"
    submit.write_text(SUBMIT.format(asked=asked))
    submit.chmod(0o755)
    words = ["--executor", "cluster-generic", "--cluster-generic-submit-cmd"]
    words += [f"{submit} {{rule}} {{resources.gpu}}", "--seconds-between-status-checks", "1", "--jobs", "2"]
    words += ["--default-resources", "gpu=0", "--set-resources", "cpt_model:gpu=8", "sft_model:gpu=8"]
    overlays = checkout.overlay({"models": {"tool": {"steps": 5}}})
    words += ["--forcerun", "results/small/tokens/tokenizer"]
    done = checkout.snakemake("results/small/sft/tool", *words, overlays=overlays)
    assert done.returncode == 0, done.stdout[-3000:]
    linked = ["tokens_mixture 0", "cpt_model 0", "sft_model 0"]
    assert asked.read_text().splitlines() == ["tokens_tokenizer 0", *linked, "sft_model 8"]
    monkeypatch.chdir(checkout.folder)
    keys = Keys(read_graph(overlays, []))
    assert read_manifest(keys.entry("sft/tool").manifest)["config"]["steps"] == 5
    assert keys.entry("cpt/base").data.is_symlink()


@pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed, which the storage calls")
def test_results_may_lie_in_a_storage_and_none_is_left_here(
    finished: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same keys and bytes as results in this folder, and a missing one is made again alone."""
    checkout, remote = copy_checkout(tmp_path / "checkout"), tmp_path / "remote"
    overlays = checkout.overlay({"crawl": {"warc": ["miniweb:warc/miniweb-00000.warc.gz"]}})
    storage = ["--default-storage-provider", "fs", "--default-storage-prefix", str(remote)]
    monkeypatch.chdir(checkout.folder)
    keys = Keys(read_graph(overlays, []))
    link = "results/small/crawl/exact"
    done = checkout.snakemake(link, *storage, overlays=overlays)
    assert done.returncode == 0, done.stdout[-3000:]
    made = ["miniweb", next(name for name in keys.graph.nodes if name.startswith("crawl/extract-"))]
    for name in made:
        entry = keys.entry(name)
        files = read_manifest(remote / entry.manifest)["files"]
        for file in (entry.manifest, *(entry.data / each for each in files)):
            assert (remote / file).read_bytes() == (finished.folder / file).read_bytes()
    assert not list((checkout.folder / "results").rglob("*.*"))
    again = checkout.snakemake(link, "--dry-run", *storage, overlays=overlays)
    assert "Nothing to be done" in again.stdout and "not made yet" not in again.stdout
    (remote / keys.entry("crawl/exact").manifest).unlink()
    again = checkout.snakemake(link, "--dry-run", *storage, overlays=overlays)
    assert re.findall(r"^(?:local)?rule (crawl_\w+):", again.stdout, re.MULTILINE) == ["crawl_exact"]
