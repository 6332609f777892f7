"""Gradients of two ranks: how they are summed, and what happens when they are not finite."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from programs import OF_RANKS, ROOT

SUMS = """
import torch
from torch import distributed
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.training.engine import EngineSettings, build_engine, start_process_group, update


class Spy(TorchDispatchMode):
    types = set()

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if function.namespace == "c10d" and "reduce" in function.__name__:
            tensors = [leaf for leaf in _pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
            self.types |= {str(tensor.dtype) for tensor in tensors if tensor.numel() > 1}
        return function(*arguments, **(options or {}))


start_process_group()
for stage in (1, 2, 3):
    weights = torch.nn.Linear(8, 8, bias=False, dtype=torch.bfloat16)
    settings = EngineSettings(1e-3, precision="bf16", zero_stage=stage, gradient_clipping=1e9)
    engine = build_engine(weights, settings)
    value = 1 if distributed.get_rank() == 0 else 2**-9
    row = torch.full((1, 8), value, dtype=torch.bfloat16)
    with Spy() as spy:
        _, norm = update(engine, [row, row], lambda row: engine(row).float().sum(), 1e-3)
    tell([stage, norm, sorted(spy.types)])
    spy.types.clear()
"""

SKIPS = """
import torch
from torch import distributed

from pipeline.protocol.errors import InputError
from pipeline.training.engine import EngineSettings, build_engine, start_process_group, update

start_process_group()


def run(stage, precision, bad):
    torch.manual_seed(0)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    layers = torch.nn.Sequential(*(torch.nn.Linear(16, 16, bias=False, dtype=dtype) for _ in range(3)))
    engine = build_engine(layers, EngineSettings(1e-2, precision=precision, zero_stage=stage))
    spoiled = False

    def spoil(module, inputs, output):
        if spoiled and distributed.get_rank() == 1:
            output.register_hook(lambda gradient: gradient * torch.nan)

    layers[1].register_forward_hook(spoil)
    rows, norms = [torch.full((1, 16), 1.0 + n, dtype=dtype) for n in range(2)], []
    try:
        for spoiled in bad:
            norms.append(update(engine, rows, lambda row: engine(row).float().square().mean(), 1e-2)[1])
    except InputError as error:
        return str(error)
    return norms, engine(rows[0]).tolist()


for stage in (1, 2, 3):
    for precision in ("bf16", "fp32"):
        cases = ([0, 1, 1, 0, 1, 0], [0, 0, 0], [0, 1, 1, 1])
        tell([run(stage, precision, case) for case in cases])
"""

TELL = """
import json
import sys


def tell(found):
    if distributed.get_rank() == 0:
        sys.stdout.write(f"told {json.dumps(found)}\\n")
"""


def told(program: str, folder: Path) -> list:
    """What a program says by `tell` on the first of its two ranks."""
    path = folder / "program.py"
    path.write_text(f"import pipeline.training.environment\n{TELL}{program}")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", path]
    done = subprocess.run(command, env=OF_RANKS, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("told ")]


@pytest.mark.slow
def test_those_of_bf16_weights_are_summed_in_fp32(tmp_path: Path) -> None:
    """In bf16 the sum of 1 and 1/512 is 1. A collective on gradients has more than one element."""
    norm = pytest.approx(8 * 2 * (1 + 2**-9), rel=1e-5)
    assert told(SUMS, tmp_path) == [[stage, norm, ["torch.float32"]] for stage in (1, 2, 3)]


@pytest.mark.slow
def test_a_gradient_that_is_not_finite_changes_nothing_and_three_in_a_row_name_the_weight(
    tmp_path: Path,
) -> None:
    found = told(SKIPS, tmp_path)
    assert len(found) == 6
    for (norms, outputs), (expected, same), message in found:
        assert [norms[number] for number in (0, 3, 5)] == expected and outputs == same
        assert norms[1] is norms[2] is norms[4] is None
        assert message == (
            "3 updates in a row skipped: the gradient of 1.weight is not finite; "
            "lower learning_rate, or start from sound weights"
        )
