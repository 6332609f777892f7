"""Next-token training on packed rows: what cpt and sft give to the training loop.

A row is a function of its number. Step s trains on rows [s * batch, (s + 1) * batch), shared among ranks by
stride and cut into micro-batches that fit in memory; neither changes the loss. Ranks get equally many rows:
where they do not divide the batch, some get a row without targets, which adds nothing to loss and gradients.
Shape suffixes: B rows, T positions, S sources.
"""

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipeline.core.stage import Stage
from pipeline.core.store import put_in_place
from pipeline.training import loop
from pipeline.training.engine import Schedule, build_engine, prepare, settings_from
from pipeline.training.flops import ModelFlops, peak
from pipeline.training.model import TokenLogprobs, causal_model, export_model, parameter_count
from pipeline.training.packing import IGNORE, PackedRow
from pipeline.training.saver import flush

KEPT = "kept"  # folder of the copies of a model in the middle of its training
TokenBatch = tuple[Tensor, Tensor, Tensor, Tensor]  # tokens, positions and targets (B, T), sources (B)


@dataclass(frozen=True)
class TrainingPlan:
    """What is trained: `row(n)` for `steps` steps of `batch` rows; `sources` names the rows' origins.

    `by_example`: the loss is the mean over the documents of a batch of the mean over each one's targets, not
    the mean over all targets. `kept`: steps after which a copy of the model is written, and its name.
    """

    row: Callable[[int], PackedRow]
    steps: int
    batch: int
    schedule: Schedule
    sources: Sequence[str]
    by_example: bool = False
    kept: Mapping[int, str] = field(default_factory=dict)


def train_and_export(
    stage: Stage[Any], model: nn.Module, tokenizer: Any, plan: TrainingPlan
) -> dict[str, int]:
    """Train a transformers model as planned and write it to `stage.partial`.

    Returns the number of steps, parameters, tokens and targets. Raises InputError as `train` does.
    """
    prepare(model, stage.launch)
    module = TokenLogprobs(model, stage.config.precision == "mixed", stage.config.context)
    engine = build_engine(module, settings_from(stage.config, stage.launch))
    folder = stage.work / KEPT

    def keep(done: int) -> None:
        if done in plan.kept:
            keep_model(engine, tokenizer, folder / plan.kept[done])

    seen = train(stage, engine, plan, keep)
    stage.checks["packing"] = module.verdict
    export_model(engine, tokenizer, stage.partial)
    if plan.kept and stage.is_main:
        shutil.copytree(folder, stage.partial / KEPT, copy_function=os.link)
    return {"steps": plan.steps, "parameters": parameter_count(model), **seen}


def keep_model(engine: Any, tokenizer: Any, folder: Path) -> None:
    """Write the model as it is to `folder`, on disk when this returns; all ranks must call it."""
    partial = folder.with_name(f".{folder.name}")
    if engine.global_rank == 0:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    export_model(engine, tokenizer, partial)
    if engine.global_rank == 0:
        flush([*partial.iterdir(), partial])
        put_in_place(partial, folder)


def train(
    stage: Stage[Any], engine: Any, plan: TrainingPlan, after: Callable[[int], None] = lambda number: None
) -> dict[str, int]:
    """Train an engine around `TokenLogprobs` to the end; returns the number of tokens and targets seen.
    `after` is called with the number of steps done.

    Raises InputError if the loss stops being finite.
    """
    model = causal_model(engine)
    narrow = engine.module.mixed or model.dtype == torch.bfloat16
    speed = peak(engine.device, torch.bfloat16 if narrow else torch.float32)
    stage.counter("peak_gflops_per_rank", round(speed / 1e9))
    steps = Steps(engine, plan, int(stage.launch.get("micro_batch", 8)), ModelFlops.of(model), speed)
    return loop.train(stage, engine, plan.steps, plan.schedule, steps.make, ("tokens", "targets"), after)


class Steps:
    """Makes this rank's shares of the steps of a plan; `speed` is a rank's peak in FLOP/s.

    The rows of the next step are read by a thread while this one trains.
    """

    def __init__(
        self, engine: Any, plan: TrainingPlan, micro_batch: int, flops: ModelFlops, speed: float
    ) -> None:
        self.engine, self.plan, self.micro_batch = engine, plan, micro_batch
        self.flops, self.speed = flops, speed
        self.thread = ThreadPoolExecutor(1, "data")
        self.coming: Future[tuple[list[TokenBatch], Tensor]] | None = None

    def take(self, number: int) -> tuple[list[TokenBatch], Tensor]:
        """Return the share of step `number`, the one after the last call's. Raises what its rows raise."""
        share = (self.coming or self.thread.submit(self._read, number)).result()
        last = number + 1 == self.plan.steps
        self.coming = None if last else self.thread.submit(self._read, number + 1)
        return share

    def _read(self, number: int) -> tuple[list[TokenBatch], Tensor]:
        """Return micro-batches in main memory, and their tokens, targets, FLOP and documents with targets."""
        rows = rows_of(self.plan, number, self.engine.global_rank, self.engine.world_size)
        counts = torch.tensor([self._count(row) for row in rows]).sum(0)
        cuts = range(0, len(rows), self.micro_batch)
        return [_tensors(rows[at : at + self.micro_batch]) for at in cuts], counts

    def _count(self, row: PackedRow) -> tuple[int, int, int, int]:
        targets = int((row.targets != IGNORE).sum())
        documents = (row.positions == 0).cumsum()[row.targets != IGNORE]
        return row.length, targets, self.flops.row(row, targets), len(np.unique(documents))

    def make(self, number: int) -> loop.Step[TokenBatch]:
        """Make step `number`; they are asked for in order."""
        started, engine, plan = time.monotonic(), self.engine, self.plan
        share, counts = self.take(number)
        batches = [tuple(tensor.to(engine.device) for tensor in batch) for batch in share]
        tokens, targets, flop, examples = _sum_over_ranks(engine, counts).tolist()
        waited = time.monotonic() - started  # for the slowest rank's rows
        sums_S2 = torch.zeros(len(plan.sources), 2, device=engine.device)

        def loss_of(batch: TokenBatch) -> Tensor:
            tokens_BT, positions_BT, targets_BT, sources_B = batch
            if plan.by_example:
                weights_BT = example_weights(positions_BT, targets_BT) / max(examples, 1)
            else:
                weights_BT = torch.full(targets_BT.shape, 1 / max(targets, 1), device=engine.device)
            loss, logprobs_BT = engine(tokens_BT, positions_BT, targets_BT, weights_BT=weights_BT)
            parts_B2 = torch.stack([-logprobs_BT.sum(1), (targets_BT != IGNORE).sum(1).float()], 1)
            sums_S2.index_add_(0, sources_B, parts_B2)
            return loss

        def metrics() -> dict[str, Any]:
            found: dict[str, Any] = {"tokens": tokens, "targets": targets}
            if len(plan.sources) > 1:
                pairs = zip(plan.sources, _sum_over_ranks(engine, sums_S2).tolist(), strict=True)
                found["source_loss"] = {name: total / count for name, (total, count) in pairs if count}
            seconds = time.monotonic() - started
            mfu = flop / seconds / (self.speed * engine.world_size)
            found |= {"seconds": seconds, "data_seconds": waited}
            return found | {"tokens_per_second": tokens / seconds, "mfu": mfu}

        return loop.Step(batches, loss_of, metrics)


def example_weights(positions_BT: Tensor, targets_BT: Tensor) -> Tensor:
    """Return 1 / the number of targets of a position's document, (B, T); documents start at position 0."""
    document_BT = (positions_BT == 0).cumsum(1)
    counts_BD = torch.zeros(len(document_BT), int(document_BT.max()) + 1, device=document_BT.device)
    counts_BD.scatter_add_(1, document_BT, (targets_BT != IGNORE).float())
    return 1 / counts_BD.gather(1, document_BT).clamp(min=1)


def rows_of(plan: TrainingPlan, step: int, rank: int, ranks: int) -> list[PackedRow]:
    """Return the rows of `step` that `rank` trains on; all have equally many, the last may be padding."""
    first, last = step * plan.batch, (step + 1) * plan.batch
    rows = [plan.row(n) for n in range(first + rank, last, ranks)]
    if len(rows) * ranks < plan.batch:
        like = plan.row(first)
        rows.append(replace(like, targets=np.full_like(like.targets, IGNORE), length=0))
    return rows


def _tensors(rows: Sequence[PackedRow]) -> TokenBatch:
    stacked = (np.stack([getattr(row, name) for row in rows]) for name in ("tokens", "positions", "targets"))
    tokens_BT, positions_BT, targets_BT = map(torch.from_numpy, stacked)
    return tokens_BT, positions_BT, targets_BT, torch.tensor([row.source for row in rows])


def _sum_over_ranks(engine: Any, value: Tensor) -> Tensor:
    if engine.world_size > 1:
        value = value.to(engine.device)
        dist.all_reduce(value)
    return value
