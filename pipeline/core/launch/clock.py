"""When to save, whether all have saved, whether to stop: what all ranks must agree on after each step."""

import time

import torch
import torch.distributed as dist

from pipeline.core.ending import received


class Clock:
    """Decides when the next checkpoint is due: `minutes` after the last one, by rank 0's clock.

    `device`: where the ranks' collectives run.
    """

    def __init__(self, device: torch.device, minutes: float) -> None:
        self.device, self.seconds, self.last = device, 60 * minutes, time.monotonic()

    def ask(self, writes: bool = False) -> tuple[bool, int, bool]:
        """(whether to save now, the signal that asks to stop or 0, whether a rank `writes` its checkpoint).

        All ranks must ask together; they get the same answer, whichever of them got the signal. A yes to the
        first restarts the clock.
        """
        first = dist.get_rank() == 0
        due = first and time.monotonic() - self.last >= self.seconds
        answer = torch.tensor([int(due), received(), int(writes)], device=self.device)
        if dist.get_world_size() > 1:
            dist.all_reduce(answer, op=dist.ReduceOp.MAX)
        save, signal, busy = answer.tolist()
        if save:
            self.last = time.monotonic()
        return bool(save), signal, bool(busy)
