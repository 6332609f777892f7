"""The time that the jobs of a run will take."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml
from conftest import ROOT

from pipeline.cli.status import read_graph
from workflow.keys import Keys
from workflow.timing import Timing

NAME = "sft/tiny"


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """A run of one model, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    Path("rows.jsonl").write_text("{}\n")
    model = {"stage": "sft", "init": "model", "data": "rows.jsonl", "steps": 6, "benchmarks": []}
    Path("run.yaml").write_text(yaml.safe_dump({"run": "timed", "models": {"tiny": model}}))
    return read_graph(["run.yaml"], [])


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


@pytest.mark.slow
def test_the_rules_do_not_wait_for_torch_to_be_imported() -> None:
    command = "import sys, workflow.terminal; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", command], cwd=ROOT, check=True)
