"""`make gpu-check` runs whole on a CPU, parts with torch and transformers alone; it goes on after a stop."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

HIDDEN = """
from importlib.machinery import PathFinder

find = PathFinder.find_spec


def hide(cls, name, path=None, target=None):
    return None if name.partition(".")[0] in ("vllm", "deepspeed") else find(name, path, target)


PathFinder.find_spec = classmethod(hide)
"""
PLAIN = ["attention", "loss", "rounding", "compiling", "memory", "utilisation", "rl_rows", "ranks"]
ENGINES = ["zero_1", "zero_2", "zero_3", "sampler", "grpo"]
LAST = ["single_gpu"]  # test_single_gpu.py runs it


def start(*words: object, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the kit."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"} | more
    command = [sys.executable, "bench/gpu", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def here(*names: str, **more: str) -> dict[str, dict[str, float]]:
    """Figures of steps that share a process, so that its imports are waited for once."""
    done = start("--here", *names, **more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which DeepSpeed and vLLM cannot be found."""
    folder = tmp_path_factory.mktemp("hidden")
    (folder / "sitecustomize.py").write_text(HIDDEN)
    return {"PYTHONPATH": str(folder)}


def test_steps_of_parts_and_ranks_run_on_a_cpu_with_torch_and_transformers_alone(
    hidden: dict[str, str],
) -> None:
    figures = here(*PLAIN, **hidden)
    assert list(figures) == PLAIN and all(figures.values())
    assert 0 < figures["attention"]["flex: gap"] < 0.02
    assert figures["ranks"]["ranks"] == 4 and min(figures["ranks"].values()) > 0


def test_steps_of_engines_run_on_a_cpu() -> None:
    figures = here(*ENGINES)
    assert list(figures) == ENGINES and figures["sampler"]["gap most"] < 1e-4


def test_it_goes_on_where_it_was_stopped_and_says_what_is_wrong_with_a_step(
    tmp_path: Path, hidden: dict[str, str]
) -> None:
    path, made = tmp_path / "cpu.json", {"figures": {"x": 1.0}, "seconds": 1.0}
    steps = {name: made for name in [*PLAIN, *ENGINES, *LAST]}
    steps |= {"rl_rows": {"error": "killed"}, "zero_1": {"error": "killed"}}
    path.write_text(json.dumps({"steps": steps}))
    done = start("--output", tmp_path, **hidden)
    found = json.loads(path.read_text())["steps"]
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert "No module named 'deepspeed'" in found.pop("zero_1")["error"] and found.pop("rl_rows")["figures"]
    assert found == {name: step for name, step in steps.items() if name not in ("rl_rows", "zero_1")}
    assert set(re.findall(r"^\| (\w+) \|", done.stdout, re.MULTILINE)) == set(steps)
