"""The loop of cpt and sft: a row of training is a function of its number, all else follows from the step.

Step s trains on rows [s * batch, (s + 1) * batch), shared among ranks by stride and cut into micro-batches as
memory allows; neither changes the loss. What a kill costs is the steps since the last checkpoint, which are
then done again, to the bit.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.common import checkpoint
from pipeline.common.flops import Work, peak
from pipeline.common.metrics import Metrics
from pipeline.common.model import causal_model
from pipeline.common.packing import IGNORE, Row
from pipeline.common.progress import Progress
from pipeline.common.stage import InputError, Stage
from pipeline.common.training import Schedule, update

Batch = tuple[Tensor, Tensor, Tensor, Tensor]  # tokens, positions and targets (B, T), sources (B)


@dataclass(frozen=True)
class Plan:
    """What is trained: `row(n)` for `steps` steps of `batch` rows; `sources` names the rows' origins."""

    row: Callable[[int], Row]
    steps: int
    batch: int
    schedule: Schedule
    sources: Sequence[str]


def train(stage: Stage[Any], engine: Any, plan: Plan) -> dict[str, int]:
    """Train to the end, from the newest checkpoint if there is one; returns tokens and targets seen.

    Leaves metrics of each step in `stage.partial`. Raises InputError if the batch cannot be shared among the
    ranks, or if the loss stops being finite.
    """
    label = f"{stage.name} {stage.instance}"
    if plan.batch % engine.world_size:
        raise InputError(
            f"{label}: a batch of {plan.batch} sequences cannot be shared among "
            f"{engine.world_size} ranks; choose a multiple"
        )
    folder = stage.work / "checkpoints"
    path = checkpoint.newest(folder)
    totals = checkpoint.load(engine, path, stage.fingerprint) if path else {"tokens": 0, "targets": 0}
    start = checkpoint.step_of(path) if path else 0
    clock = checkpoint.Clock(engine, float(stage.launch.get("save_minutes", 10)))
    machine = _machine(stage, engine)
    with Metrics(stage, start) as log, Progress(label, plan.steps, initial=start) as progress:
        for step in range(start, plan.steps):
            metrics = _step(stage, engine, plan, step, machine)
            if not math.isfinite(metrics["loss"]):
                raise InputError(
                    f"{label}: the loss is {metrics['loss']} at step {step + 1}; lower learning_rate"
                )
            totals = {name: total + metrics[name] for name, total in totals.items()}
            log.write(metrics)
            stage.counter("deepspeed.steps")
            progress.update(loss=metrics["loss"])
            if step + 1 < plan.steps and clock.due():
                checkpoint.save(engine, folder, step + 1, totals, stage.fingerprint)
    return totals


def _machine(stage: Stage[Any], engine: Any) -> tuple[Work, float]:
    """What a token costs, and FLOP/s of all ranks together; the latter goes to `run.json`."""
    model = causal_model(engine)
    narrow = engine.module.mixed or model.dtype == torch.bfloat16
    speed = peak(engine.device, torch.bfloat16 if narrow else torch.float32)
    stage.counter("peak_gflops_per_rank", round(speed / 1e9))
    return Work.of(model), speed * engine.world_size


def _step(
    stage: Stage[Any], engine: Any, plan: Plan, step: int, machine: tuple[Work, float]
) -> dict[str, Any]:
    """One optimiser step; returns its line of metrics."""
    started = time.monotonic()
    first = step * plan.batch
    rows = [plan.row(n) for n in range(first + engine.global_rank, first + plan.batch, engine.world_size)]
    size = int(stage.launch.get("micro_batch", 8))
    batches = [_tensors(rows[at : at + size], engine.device) for at in range(0, len(rows), size)]
    work, speed = machine
    counts = [(row.length, int((row.targets != IGNORE).sum())) for row in rows]
    counts = [(*count, work.row(row, count[1])) for row, count in zip(rows, counts, strict=True)]
    tokens, targets, flop = _sum_over_ranks(engine, torch.tensor(counts).sum(0)).tolist()
    sums_S2 = torch.zeros(len(plan.sources), 2, device=engine.device)

    def loss_of(batch: Batch) -> Tensor:
        tokens_BT, positions_BT, targets_BT, sources_B = batch
        weights_BT = torch.full(targets_BT.shape, 1 / max(targets, 1), device=engine.device)
        loss, logprobs_BT = engine(tokens_BT, positions_BT, targets_BT, weights_BT=weights_BT)
        parts_B2 = torch.stack([-logprobs_BT.sum(1), (targets_BT != IGNORE).sum(1).float()], 1)
        sums_S2.index_add_(0, sources_B, parts_B2)
        return loss

    rate = plan.schedule(step)
    loss, norm = update(engine, batches, loss_of, rate)
    metrics = {
        "step": step + 1,
        "loss": loss,
        "lr": rate,
        "grad_norm": norm,
        "tokens": tokens,
        "targets": targets,
    }
    if len(plan.sources) > 1:
        sums = _sum_over_ranks(engine, sums_S2).tolist()
        metrics["source_loss"] = {name: s / n for name, (s, n) in zip(plan.sources, sums, strict=True) if n}
    seconds = time.monotonic() - started
    speeds = {"tokens_per_second": tokens / seconds, "mfu": flop / seconds / speed}
    return metrics | {"seconds": seconds} | speeds


def _tensors(rows: Sequence[Row], device: torch.device) -> Batch:
    stacked = (np.stack([getattr(row, name) for row in rows]) for name in ("tokens", "positions", "targets"))
    tokens_BT, positions_BT, targets_BT = (torch.from_numpy(array).to(device) for array in stacked)
    return tokens_BT, positions_BT, targets_BT, torch.tensor([row.source for row in rows], device=device)


def _sum_over_ranks(engine: Any, value: Tensor) -> Tensor:
    if engine.world_size > 1:
        value = value.to(engine.device)
        dist.all_reduce(value)
    return value
