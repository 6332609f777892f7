"""What a failed or repeated job does: bad input is noted, a program that works already is waited for."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from crawl_warcs import html, record, write_warc
from programs import ENVIRONMENT

from pipeline.config.crawl import CrawlSection
from pipeline.core import tries
from pipeline.core.folders import held
from pipeline.core.stage import run_stage
from pipeline.crawl import extract

KEY = "0123456789abcdef"
RESULT = Path("results/run/store/crawl/extract-a", KEY)
WORDS = ["--result", str(RESULT / "manifest.json"), "--input", "warc=pages.warc.gz"]


def job(folder: Path, **environment: str) -> subprocess.Popen[str]:
    """A job that extracts a WARC file, in a folder of its own."""
    command = [sys.executable, "-m", "pipeline.core.start", "pipeline.crawl.extract", *WORDS]
    return subprocess.Popen(
        command, cwd=folder, env=ENVIRONMENT | environment, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a WARC file in which no workflow was started."""
    write_warc(tmp_path / "pages.warc.gz", [record("http://a.org/1", html("1 + 1 = 2"))])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(tries.START, raising=False)
    return tmp_path


def begin() -> dict[str, str]:
    """Start a workflow; returns what its jobs inherit."""
    tries.begin()
    return {tries.START: os.environ[tries.START]}


def test_bad_input_is_noted_for_this_start_of_the_workflow_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pages.warc.gz").write_bytes(b"no WARC file")
    monkeypatch.setenv(tries.START, "1.0")
    said = job(folder, **{tries.START: "1.0"})
    assert "no WARC record in it" in said.communicate()[1] and said.returncode == 2
    assert "no WARC record in it" in str(tries.vain(KEY))
    assert tries.vain("f" * 16) is None
    monkeypatch.setenv(tries.START, "2.0")
    assert tries.vain(KEY) is None
    monkeypatch.delenv(tries.START)
    assert job(folder).wait() == 2 and json.loads((tries.FOLDER / KEY).read_text())["start"] == "1.0"


@pytest.mark.parametrize("kind", [RuntimeError, MemoryError])
def test_an_error_of_a_data_program_is_noted_unless_memory_lacks(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def fails(*_: object) -> None:
        raise kind("broken")

    begin()
    monkeypatch.setattr(extract, "extract_all", fails)
    with pytest.raises(kind):
        run_stage("crawl", CrawlSection, extract.run, WORDS)
    assert tries.vain(KEY) == (None if kind is MemoryError else "RuntimeError: broken")


@pytest.mark.parametrize("publishes", [True, False])
def test_a_job_waits_for_a_program_that_makes_its_result_already(folder: Path, publishes: bool) -> None:
    """As after a restart of the workflow. It takes what that one makes; if that fails, it makes it itself."""
    assert job(folder).wait() == 0
    made = json.loads((RESULT / "manifest.json").read_text())
    os.renames(RESULT, "before")
    start = begin()
    with held(Path("work/crawl/extract-a", made["fingerprint"])):
        late = job(folder, **start)
        assert f"process {os.getpid()} on" in (line := late.stderr.readline()) and "waiting for it" in line
        if publishes:
            RESULT.parent.mkdir(parents=True)
            Path("before").rename(RESULT)
    assert ("made meanwhile" in late.communicate()[1]) is publishes and late.returncode == 0
    assert json.loads((RESULT / "manifest.json").read_text())["files"] == made["files"]


def test_nodes_of_one_job_do_not_wait_for_each_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first one holds, the second finds held; here both are the first, and one is refused."""
    assert job(folder).wait() == 0
    mark = json.loads((RESULT / "manifest.json").read_text())["fingerprint"]
    (RESULT / "manifest.json").unlink()
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with held(Path("work/crawl/extract-a", mark)):
        other = job(folder, SLURM_JOB_ID="7", **begin())
        assert "of job 7 (since" in other.communicate()[1] and other.returncode == 2
    assert tries.vain(KEY) is None, "it may be free at the next try"
