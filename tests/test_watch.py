"""The page on a running workflow, read by Chromium while a run is killed and resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Thread

import pytest
import yaml
from browser import browser
from conftest import ROOT

from pipeline.config.sft import SftSection
from pipeline.pages.watch.__main__ import serve, write
from pipeline.pages.watch.state import POINTS, Watch, _points
from pipeline.protocol.stage import Stage, run_stage
from pipeline.status import read_graph
from pipeline.training.metrics import SAMPLES, MetricsLog
from workflow.keys import Keys
from workflow.timing import Timing

NAME = "sft/tiny"
SAMPLE = {
    "id": "q1",
    "question": "2 + 3?",
    "reference": "5",
    "text": "<script>document.title = 'taken'</script> \\boxed{5}",
    "reward": 1.0,
    "verdict": "right",
    "reason": "integers",
    "finish_reason": "stop",
}


def program(start: int, stop: int, steps: int) -> Callable[[Stage[SftSection]], dict[str, int]]:
    """What a training program does for the page: it logs steps up to `stop`, and ends if that is all."""

    def run(stage: Stage[SftSection]) -> dict[str, int]:
        with MetricsLog(stage, start) as log:
            for step in range(start, stop):
                log.write({"step": step + 1, "samples": [SAMPLE]}, SAMPLES)
                log.write({"step": step + 1, "loss": 1 / (step + 1), "lr": 0.1})
            while stop < steps:
                time.sleep(0.01)
        return {"steps": steps}

    run.__module__ = MetricsLog.__module__  # the manifest has the code of a module of the project
    return run


def started(graph: object, run: Callable[[Stage[SftSection]], dict[str, int]]) -> int:
    """Run the model's program in a process of its own, with the workflow's arguments; returns its id."""
    node = graph.nodes[NAME]
    words = ["--result", str(Keys(graph).entry(NAME).manifest), "--config", json.dumps(node.section)]
    words += [word for key, source in node.inputs for word in ("--input", f"{key}={source}")]
    child = os.fork()
    if not child:
        try:
            run_stage("sft", SftSection, run, words)
            os._exit(0)
        finally:
            os._exit(1)
    return child


def state_of(seen: dict) -> str:
    """The model's state on the page."""
    return next(group["state"] for group in seen["groups"] if group["name"] == NAME)


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """A run of one model, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    Path("rows.jsonl").write_text("{}\n")
    model = {"stage": "sft", "init": "model", "data": "rows.jsonl", "steps": 6, "benchmarks": []}
    Path("run.yaml").write_text(yaml.safe_dump({"run": "watched", "models": {"tiny": model}}))
    return read_graph(["run.yaml"], [])


TEXTS = """(() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  while (walker.nextNode())
    if (walker.currentNode.parentElement.localName !== 'script') found.push(walker.currentNode.data);
  return found.join(' ');
})()"""


def browsed(address: str) -> str:
    """The text of a page after its script has run."""
    with browser(Path("chromium")) as tab:
        tab.open(address, "document.getElementById('overall').textContent")
        assert tab.js("document.title").startswith("watched: ")  # what a model wrote did not run
        return " ".join(tab.js(TEXTS).split())


@pytest.mark.slow
def test_the_page_follows_a_run_that_is_killed_and_resumed(graph: object) -> None:
    import torch.utils.tensorboard  # noqa: F401  # once, for the programs forked from here

    watch = Watch(graph)
    assert state_of(watch.look()) == "waiting"
    child = started(graph, program(0, 4, steps=6))
    deadline = time.monotonic() + 60
    while not (models := watch.look()["models"]) or models[0]["step"] < 4:
        assert time.monotonic() < deadline and os.waitpid(child, os.WNOHANG) == (0, 0)
        time.sleep(0.2)
    assert state_of(watch.look()) == "running"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    write(watch, Path("page.html"), seconds=0)
    text = browsed(Path("page.html").absolute().as_uri())
    assert "0 of 2 jobs done, 1 stopped" in text and "sft/tiny, stopped at step 4 of 6" in text
    assert "<script>document.title = 'taken'</script> \\boxed{5}" in text and "rule: integers" in text
    assert os.waitpid(started(graph, program(3, 6, steps=6)), 0)[1] == 0
    server = serve(watch, 0)
    Thread(target=server.serve_forever, daemon=True).start()
    text = browsed(server.address)
    assert "1 of 2 jobs done" in text and "sft/tiny, done at step 6 of 6" in text
    assert "loss 0.1667" in text and "step 1 to 6" in text
    (model,) = watch.look()["models"]
    assert [step for step, _ in model["curves"]["loss"]] == [1, 2, 3, 4, 5, 6]
    server.shutdown()


@pytest.mark.slow
def test_a_result_whose_manifest_cannot_be_read_is_not_done(graph: object) -> None:
    manifest = Keys(graph).entry(NAME).manifest
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    assert state_of(Watch(graph).look()) == "waiting"


@pytest.mark.slow
def test_a_failed_job_is_named_with_its_cause(graph: object) -> None:
    log = Keys(graph).log(NAME)
    log.parent.mkdir(parents=True)
    log.write_text(
        "sft tiny: 3/6 steps in 10s\nerror: sft tiny: the loss is nan at step 4; lower learning_rate\n"
    )
    seen = Watch(graph).look()
    why = f"sft tiny: the loss is nan at step 4; lower learning_rate (log: {log})"
    assert state_of(seen) == "failed" and seen["errors"] == [{"name": NAME, "why": why}]


@pytest.mark.parametrize(("line", "seconds"), [("1h17m", 4620), ("3m05s", 185), ("42s", 42)])
def test_the_time_left_is_what_a_running_job_says(graph: object, line: str, seconds: int) -> None:
    timing = Timing(Keys(graph), graph.nodes, set())
    log = Keys(graph).log(NAME)
    log.parent.mkdir(parents=True)
    log.write_text(f"sft tiny: 9/400 steps in 1m47s, {line} left, loss 5.932\n")
    assert timing.left(0) == (0, 2)
    timing.running[NAME] = 0
    assert timing.left(10)[0] == seconds
    log.write_text(f"{log.read_text()}sft tiny: 400/400 steps in 2m00s, loss 0.1\n")
    assert timing.left(10)[0] == 0


@pytest.mark.slow
def test_the_time_left_is_kept_up_to_date_as_jobs_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    graph = read_graph(["configs/demo.yaml"], [])
    monkeypatch.chdir(tmp_path)
    keys = Keys(graph)
    timing = Timing(keys, graph.nodes, set())
    for place, name in enumerate(graph.nodes):
        if place % 3:
            timing.learn(name, 1.0 + place % 7)
    timing.most, done = 2, timing.done
    while waiting := [name for name in graph.nodes if name not in done]:
        name = next(name for name in waiting if graph.before(name).keys() <= done)
        rest = {job: (timing.about(job) or 0) - (job == name) for job in waiting}

        @cache
        def chain(job: str, rest: dict[str, float] = rest) -> float:
            before = graph.before(job).keys() & rest
            return max(rest[job], 0) + max(map(chain, before), default=0)

        timing.running = {name: 10.0}
        expected = max(sum(max(seconds, 0) for seconds in rest.values()) / 2, *map(chain, rest))
        unknown = sum(timing.about(job) is None for job in rest)
        assert timing.left(11.0) == (pytest.approx(expected, abs=1e-3), unknown)
        timing.finish(name, 3.0)
    timing.running = {}
    assert timing.left(12.0) == (0, 0)


def test_the_demo_is_drawn_without_edges_that_follow_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    watch = Watch(read_graph(["configs/demo.yaml"], []))
    assert ("sft/instruct", "rl/grpo") in watch.edges and ("cpt/base", "rl/grpo") not in watch.edges
    assert {"crawl/extract", "corpus/iteration-1", "tokens/math", "report"} <= watch.groups.keys()


def test_a_long_curve_is_thinned_and_keeps_its_last_point() -> None:
    rows = [{"step": step, "loss": 1 / step, "kl": None} for step in range(1, 10_001)]
    points = _points(rows, "loss")
    assert 0.9 * POINTS < len(points) <= POINTS and points[-1] == (10_000, 1e-4) and _points(rows, "kl") == []


@pytest.mark.slow
def test_neither_the_page_nor_the_rules_wait_for_torch_to_be_imported() -> None:
    command = "import sys, workflow.terminal, pipeline.pages.watch.__main__; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", command], cwd=ROOT, check=True)
