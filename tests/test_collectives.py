"""The stand-in for NCCL notices a collective on a tensor that is not on the engine's device."""

import subprocess
from pathlib import Path

import pytest
from programs import OF_RANKS, ROOT

from pipeline.core.start import command

PROGRAM = """
import sys

import torch

import pipeline.training.engine
from pipeline.rl.metrics import sum_over_ranks

pipeline.training.engine.start_process_group()
engine = pipeline.training.engine.build_engine(
    torch.nn.Linear(2, 2), pipeline.training.engine.EngineSettings(1e-3)
)
assert sum_over_ranks([1.0, 2.0], engine.device) == [2.0, 4.0]
with torch.device("meta"):
    assert torch.tensor([]).is_meta and torch.zeros(1).is_meta
try:
    sum_over_ranks([1.0, 2.0], "cpu")
except RuntimeError as error:
    sys.stdout.write(f"refused: {error}\\n")  # in one call: two ranks share the pipe
    sys.stdout.flush()
"""


@pytest.mark.slow
def test_a_collective_off_the_engines_device_fails(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    variables = OF_RANKS | {"PYTHONPATH": f"{OF_RANKS['PYTHONPATH']}:{tmp_path}"}
    done = subprocess.run(
        command(["program"], 2, {}),
        env=variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("refused: all_reduce: a tensor on cpu, not on the engine's device") == 2
