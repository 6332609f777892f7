"""`make gpu-check` runs whole on a CPU, parts with torch and transformers alone; it goes on after a stop."""

import json
import os
import subprocess
import sys
from pathlib import Path

from conftest import ROOT

HIDDEN = """
from importlib.machinery import PathFinder

find = PathFinder.find_spec


def hide(cls, name, path=None, target=None):
    return None if name.partition(".")[0] in ("vllm", "deepspeed") else find(name, path, target)


PathFinder.find_spec = classmethod(hide)
"""
PLAIN = ["attention", "loss", "rounding", "compiling", "memory", "utilisation", "widths"]
ENGINES = ["zero_1", "zero_2", "zero_3", "sampler", "grpo"]


def check(output: Path, *words: str, **more: str) -> tuple[int, str]:
    """Exit code and table of the kit."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"} | more
    command = [sys.executable, "tests/benchmarks/gpu", "--output", str(output), *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def test_every_step_runs_on_a_cpu_and_those_of_parts_with_torch_and_transformers_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden/sitecustomize.py").write_text(HIDDEN)
    hidden = {"PYTHONPATH": str(tmp_path / "hidden")}
    code, table = check(tmp_path, "--steps", *PLAIN, "zero_1", **hidden)
    results = json.loads((tmp_path / "cpu.json").read_text())
    assert code == 1 and "No module named 'deepspeed'" in results["steps"]["zero_1"].pop("error"), table
    assert all(results["steps"][name]["figures"] for name in PLAIN), table
    code, table = check(tmp_path)  # the rest
    again = json.loads((tmp_path / "cpu.json").read_text())["steps"]
    assert code == 0 and list(again) == [*PLAIN, *ENGINES], table
    assert all(again[name] == results["steps"][name] for name in PLAIN)
    assert again["sampler"]["figures"]["gap most"] < 1e-4 and again["attention"]["figures"]["gap"] > 0
    assert check(tmp_path)[0] == 0 and json.loads((tmp_path / "cpu.json").read_text())["steps"] == again
