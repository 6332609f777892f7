"""Gradients are summed in fp32, over ranks and micro-batches; those that are not finite change nothing."""

import json
import subprocess
import sys
from typing import Any

import pytest
from programs import OF_RANKS, ROOT

pytestmark = pytest.mark.slow
STAGES = (1, 2, 3)
PROGRAM = """
import pipeline.training.environment

import json
import sys

import torch
from torch import distributed
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.core.errors import InputError
from pipeline.training.engine import EngineSettings, build_engine, start_process_group, update


class Spy(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.types = set()

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if function.namespace == "c10d" and "reduce" in function.__name__:
            tensors = [leaf for leaf in _pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
            self.types |= {str(tensor.dtype) for tensor in tensors if tensor.numel() > 1}
        return function(*arguments, **(options or {}))


def engine_of(stage, precision, *layers):
    settings = EngineSettings(1e-2, precision=precision, zero_stage=stage, gradient_clipping=1e9)
    return build_engine(torch.nn.Sequential(*layers), settings)


def summed(stage, values, share):
    engine = engine_of(stage, "bf16", torch.nn.Linear(8, 8, bias=False, dtype=torch.bfloat16))
    rows = [torch.full((1, 8), value, dtype=torch.bfloat16) for value in values]
    with Spy() as spy:
        _, norm = update(engine, rows, lambda row: engine(row).float().sum() * share, 1e-3)
    return norm, sorted(spy.types)


def skipped(stage, precision, bad):
    torch.manual_seed(0)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    layers = [torch.nn.Linear(16, 16, bias=False, dtype=dtype) for _ in range(3)]
    engine = engine_of(stage, precision, *layers)
    spoiled = False

    def spoil(module, inputs, output):
        if spoiled and rank == 1:
            output.register_hook(lambda gradient: gradient * torch.nan)

    layers[1].register_forward_hook(spoil)
    rows, norms = [torch.full((1, 16), 1.0 + n, dtype=dtype) for n in range(2)], []
    try:
        for spoiled in bad:
            norms.append(update(engine, rows, lambda row: engine(row).float().square().mean(), 1e-2)[1])
    except InputError as error:
        return str(error)
    return norms, engine(rows[0]).tolist()


start_process_group()
rank, found = distributed.get_rank(), {"ranks": [], "micro-batches": [], "skips": []}
for stage in (1, 2, 3):
    found["ranks"].append(summed(stage, [2 ** (-9 * rank)] * 2, 1))
    found["micro-batches"].append(summed(stage, [1] * 300, 1 / 1024))
    for precision in ("bf16", "fp32"):
        cases = ([0, 1, 1, 0, 1, 0], [0, 0, 0], [0, 1, 1, 1])
        found["skips"].append([skipped(stage, precision, case) for case in cases])
if rank == 0:
    sys.stdout.write(json.dumps(found) + "\\n")
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two ranks find, at all stages in one program: DeepSpeed takes seconds to import."""
    path = tmp_path_factory.mktemp("gradients") / "program.py"
    path.write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", path]
    done = subprocess.run(command, env=OF_RANKS, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_those_of_two_ranks_are_summed_in_fp32(found: dict[str, Any]) -> None:
    """In bf16 the sum of 1 and 1/512 is 1. A collective on gradients has more than one element."""
    norm = pytest.approx(8 * 2 * (1 + 2**-9), rel=1e-5)
    assert found["ranks"] == [[norm, ["torch.float32"]]] * len(STAGES)


def test_those_of_many_micro_batches_are_summed_in_fp32(found: dict[str, Any]) -> None:
    """In bf16 a sum of equal terms stops growing at 256 of them."""
    norm = pytest.approx(8 * 2 * 300 / 1024, rel=1e-4)  # of 64 equal gradients on two ranks
    assert found["micro-batches"] == [[norm, ["torch.float32"]]] * len(STAGES)


def test_those_that_are_not_finite_change_nothing_and_three_in_a_row_name_the_weight(
    found: dict[str, Any],
) -> None:
    assert len(found["skips"]) == 2 * len(STAGES)
    for (norms, outputs), (expected, same), message in found["skips"]:
        assert [norms[number] for number in (0, 3, 5)] == expected and outputs == same
        assert norms[1] is norms[2] is norms[4] is None
        assert message == (
            "3 updates in a row skipped: the gradient of 1.weight is not finite; "
            "lower learning_rate, or start from sound weights"
        )
