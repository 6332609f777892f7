"""Steps without an update, because the gradient is not finite: told, counted, traced to a parameter.

DeepSpeed leaves the weights alone when the gradient's norm is not finite. One bad batch does no harm that
way; where the weights are to blame, each further step is skipped too, and training goes on for nothing.
"""

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.core.ending import say
from pipeline.core.errors import InputError

MOST = 3  # skipped steps in a row that end the program


class Skips:
    """The skipped steps of one engine; all ranks count the same ones."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.count = engine, 0

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Run an optimiser step, which must end at the accumulation boundary.

        Raises InputError if it is the third in a row without an update.
        """
        # Only the step that may be the last is watched: looking at all gradients takes time.
        watched = dict(self.engine.module.named_parameters()) if self.count == MOST - 1 else {}
        watched = {name: parameter for name, parameter in watched.items() if parameter.requires_grad}
        largest_P = torch.zeros(len(watched), device=self.engine.device)
        hooks = [
            parameter.register_hook(partial(_note, largest_P, number))
            for number, parameter in enumerate(watched.values())
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        self.count = 0 if self.engine.was_step_applied() else self.count + 1
        if self.count and self.engine.global_rank == 0:
            say(
                f"update {self.engine.global_steps}: the gradient is not finite; the weights stay as they are"
            )
        if self.count == MOST:
            raise InputError(f"{MOST} updates in a row skipped: {self._cause(list(watched), largest_P)}")

    def _cause(self, names: list[str], largest_P: Tensor) -> str:
        if self.engine.world_size > 1:
            dist.all_reduce(largest_P, op=dist.ReduceOp.MAX)
        # The last in the order of the forward pass: what is wrong there spoils all gradients before it.
        broken = (~largest_P.isfinite()).nonzero().flatten().tolist()
        name = names[broken[-1] if broken else int(largest_P.argmax())].removeprefix("model.")
        what = "is not finite" if broken else f"reaches {largest_P.max().item():.3g}"
        return f"the gradient of {name} {what}; lower learning_rate, or start from sound weights"


def _note(largest_P: Tensor, number: int, gradient: Tensor) -> None:
    size = gradient.detach().abs().max().float().nan_to_num(nan=torch.inf, posinf=torch.inf)
    largest_P[number] = torch.maximum(largest_P[number], size)
