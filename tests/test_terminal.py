"""What a terminal shows when a run is ended from it, and how long it says that a job takes."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, copy_checkout
from given.instances import graph_of

from pipeline.pages.review.__main__ import login_name
from pipeline.protocol.manifest import SCHEMA
from workflow.keys import Keys
from workflow.terminal import Terminal
from workflow.timing import Timing


def start(folder: Path, words: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a command as a shell does, in a group of its own that Ctrl-C reaches."""
    command, environment = [sys.executable, "-m", "pipeline", *words], {"PYTHONPATH": str(folder)}
    with log.open("w") as said:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | environment,
            stdout=said,
            stderr=said,
            start_new_session=True,
            # A job of a script's background ignores SIGINT, and what it starts does too.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )


def interrupt(started: subprocess.Popen[bytes]) -> None:
    os.killpg(started.pid, signal.SIGINT)
    assert started.wait(120) == 1


@pytest.mark.slow
def test_a_job_that_is_interrupted_is_not_told_as_failed(tmp_path: Path) -> None:
    checkout, log = copy_checkout(tmp_path / "checkout"), tmp_path / "log"
    words = ["configs/demo.yaml", "tests/small.yaml", "miniweb", "--cores", "1"]
    started = start(checkout.folder, ["run", *words], log)
    # Its log, because Snakemake loses a job that it is starting when it is interrupted, and that one runs on.
    while not any(checkout.folder.glob("results/*/logs/miniweb-*.log")) and started.poll() is None:
        time.sleep(0.05)
    interrupt(started)
    said = log.read_text()
    assert "interrupted: waiting for the jobs that run to end" in said, said
    assert said.endswith("error: interrupted; the same command goes on from here\n"), said
    assert "failed" not in said and "Traceback" not in said, said


@pytest.mark.slow
@pytest.mark.parametrize(("command", "reads"), [("status", 1), ("run", 1), ("run", 2)])
def test_an_interruption_before_the_first_job_is_one_line(tmp_path: Path, command: str, reads: int) -> None:
    """`dsm run` looks at a configuration first, then Snakemake reads it."""
    pipe, log = tmp_path / "pipe.yaml", tmp_path / "log"
    os.mkfifo(pipe)
    started = start(ROOT, [command, str(pipe)], log)
    for number in range(reads):
        with pipe.open("w") as file:  # opens when it is being read
            if number < reads - 1:
                file.write("run: ended\n")
            else:
                interrupt(started)
        time.sleep(0.5)
    said = log.read_text()
    assert said.splitlines()[-1] == "error: interrupted" and "Traceback" not in said, said


def test_hundreds_of_jobs_that_fail_together_are_told_after_one_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, waits = Terminal(), []
    monkeypatch.setattr("workflow.terminal.time.sleep", waits.append)
    error = logging.makeLogRecord({"event": "job_error", "jobid": 0, "rule_name": "corpus_score", "log": []})
    assert all(": failed" in terminal.format(error) for _ in range(800)) and len(waits) == 1


def test_the_annotator_has_a_name_where_the_environment_names_no_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    assert login_name()
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # as in a container, whose user has a number alone
    assert login_name() == f"user {os.getuid()}"


def test_another_model_does_not_say_how_long_a_training_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").touch()
    models = {
        name: {"stage": "sft", "init": "hub/model", "data": "rows.jsonl", "benchmarks": []}
        for name in ("instruct", "mine")
    }
    graph = graph_of(run="now", models=models)
    name, node = "sft/instruct", graph.nodes["sft/instruct"]

    def made(run: str, section: dict) -> Timing:
        folder = tmp_path / f"results/{run}/store/{name}/0123456789abcdef"
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"seconds": 115}))
        (folder / "manifest.json").write_text(json.dumps({"schema": SCHEMA, "files": {}, "config": section}))
        return Timing(Keys(graph), graph.nodes, set())

    assert made("other", node.section | {"steps": 7}).about(name) is None
    assert made("seed", node.section | {"seed": 7}).about(name) == 115
    timing = made("now", node.section | {"steps": 9})
    assert (timing.about(name), timing.about("sft/mine")) == (115, None)
