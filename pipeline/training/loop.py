"""The training loop of cpt, sft and reward.

A stage describes each optimiser step by its number alone. A killed run therefore repeats only the steps since
its last checkpoint, to the bit.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch import Tensor

from pipeline.core.ending import interrupted
from pipeline.core.launch.clock import Clock
from pipeline.core.progress import Progress
from pipeline.core.stage import InputError, Stage
from pipeline.core.watchdog import enter, reached
from pipeline.training import checkpoint
from pipeline.training.engine import Schedule, update
from pipeline.training.metrics import MetricsLog
from pipeline.training.saver import Saver

T = TypeVar("T")


@dataclass(frozen=True)
class Step(Generic[T]):
    """One rank's share of an optimiser step.

    `loss_of` runs the engine on a micro-batch and returns its part of the loss: the parts of all
    micro-batches and ranks add up to the loss. `metrics`, called after the update, returns what to log beside
    loss, learning rate and gradient norm.
    """

    micro_batches: Sequence[T]
    loss_of: Callable[[T], Tensor]
    metrics: Callable[[], dict[str, Any]] = dict


def train(
    stage: Stage[Any],
    engine: Any,
    steps: int,
    schedule: Schedule,
    make_step: Callable[[int], Step[Any]],
    totals: Sequence[str] = (),
    after: Callable[[int], None] = lambda number: None,
) -> dict[str, int]:
    """Train for `steps` steps, from the newest checkpoint if there is one; `make_step` counts from 0.

    `after` is called with the number of steps done, before a checkpoint of them. Returns the sums of the
    metrics named in `totals`; leaves the metrics of each step in `stage.partial`. Raises InputError if the
    loss stops being finite, and Interrupted, once it has saved, after a signal.
    """
    label, folder = f"{stage.name} {stage.instance}", stage.work / "checkpoints"
    start, sums = 0, dict.fromkeys(totals, 0)
    if path := checkpoint.newest(engine, folder):
        start, sums = checkpoint.step_of(path), checkpoint.load(engine, path, stage.fingerprint)
    clock = Clock(engine.device, float(stage.launch.get("save_minutes", 10)))
    saver = Saver({folder: engine}, stage.fingerprint)
    with MetricsLog(stage, start) as log, Progress(label, steps, initial=start) as progress:
        for number in range(start, steps):
            reached(True, number)
            due, signal, writes = clock.ask(saver.writes())
            if not writes:
                saver.commit()
            if number > start and (due or signal):
                saver.save(number, sums)
            if signal:
                saver.finish()
                raise interrupted(signal, f"{label}: after step {number} of {steps}")
            enter("data")
            step, rate = make_step(number), schedule(number)
            loss, norm = update(engine, step.micro_batches, step.loss_of, rate)
            if not math.isfinite(loss):
                raise InputError(f"{label}: the loss is {loss} at step {number + 1}; lower learning_rate")
            metrics = {"step": number + 1, "loss": loss, "lr": rate, "grad_norm": norm} | step.metrics()
            sums = {name: total + metrics[name] for name, total in sums.items()}
            log.write(metrics)
            stage.counter("deepspeed.steps")
            progress.update(loss=loss)
            after(number + 1)
        saver.finish()
    return sums
