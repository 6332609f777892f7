"""Training a reward model: labelled solutions in packed rows, binary cross-entropy at step ends."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from torch.nn import functional as F

from pipeline.common import checkpoint
from pipeline.common.metrics import Metrics
from pipeline.common.packing import concatenate
from pipeline.common.progress import Progress
from pipeline.common.stage import InputError, Stage
from pipeline.common.training import build_engine, constant, prepare, settings_from, update
from pipeline.config.reward import RewardSection
from pipeline.reward.labels import Solution
from pipeline.reward.model import RewardModel, Rows, make_rows


@dataclass(frozen=True)
class Example:
    """A solution as it is trained on: prompt and solution tokens, places of the step ends, their targets."""

    tokens: list[int]
    places: list[int]
    targets: list[float]


def make_examples(
    solutions: Sequence[Solution], section: RewardSection
) -> Iterator[tuple[Solution, Example]]:
    """Each solution as an example; those longer than the context are left out."""
    steps = slice(-1, None) if section.target == "outcome" else slice(None)
    for solution in solutions:
        tokens = [*solution.prompt, *solution.tokens]
        if len(tokens) <= section.context:
            targets = solution.hard if section.labels == "hard" else solution.soft
            places = [len(solution.prompt) + end for end in solution.ends]
            yield solution, Example(tokens, places[steps], [float(value) for value in targets[steps]])


def step_batches(count: int, section: RewardSection) -> list[list[int]]:
    """Indices of the examples of each optimiser step: every epoch a new order, from the seed alone."""
    order: list[int] = []
    for epoch in range(section.epochs):
        generator = torch.Generator().manual_seed(section.seed * 1000 + epoch)
        order += torch.randperm(count, generator=generator).tolist()
    return [order[start : start + section.batch] for start in range(0, len(order), section.batch)]


def micro_batches(
    examples: Sequence[Example], length: int, rows_at_once: int, rank: int, ranks: int
) -> list[tuple[Rows, torch.Tensor, float]]:
    """This rank's (rows, targets, weight) of one step; ranks get equally many, filled up with weight 0."""
    sequences, places = [example.tokens for example in examples], [example.places for example in examples]
    packed = concatenate(map(len, sequences), length)
    groups = [packed[start : start + rows_at_once] for start in range(0, len(packed), rows_at_once)]
    weights = [1.0] * len(groups) + [0.0] * (-len(groups) % ranks)
    groups += groups[:1] * (len(weights) - len(groups))
    found = []
    for group, weight in list(zip(groups, weights, strict=True))[rank::ranks]:
        targets = [value for row in group for index in row for value in examples[index].targets]
        found.append((make_rows(group, sequences, places), torch.tensor(targets), weight))
    return found


def build(stage: Stage[RewardSection], model: RewardModel) -> Any:
    """The engine that trains the model."""
    prepare(model.trunk, stage.launch)
    return build_engine(model, settings_from(stage.config, stage.launch))


def train(stage: Stage[RewardSection], engine: Any, examples: Sequence[Example]) -> None:
    """Train to the end, from the newest checkpoint if there is one; leaves metrics in `stage.partial`."""
    section, folder = stage.config, stage.work / "checkpoints"
    path, start = checkpoint.newest(folder), 0
    if path is not None:
        checkpoint.load(engine, path, stage.fingerprint)
        start = checkpoint.step_of(path)
    schedule = constant(section.learning_rate, section.warmup_steps)
    clock = checkpoint.Clock(engine, float(stage.launch.get("save_minutes", 10)))
    batches = step_batches(len(examples), section)
    with Metrics(stage, start) as log, Progress("reward", len(batches), initial=start) as bar:
        for step in range(start, len(batches)):
            chosen = [examples[index] for index in batches[step]]
            loss, norm = _step(engine, chosen, stage, schedule(step))
            if not math.isfinite(loss):
                raise InputError(
                    f"reward {stage.instance}: the loss is {loss} at step {step + 1}; lower learning_rate"
                )
            log.write({"step": step + 1, "loss": loss, "grad_norm": norm, "lr": schedule(step)})
            stage.counter("deepspeed.steps")
            bar.update(loss=loss)
            if step + 1 < len(batches) and clock.due():
                checkpoint.save(engine, folder, step + 1, {}, stage.fingerprint)


def _step(
    engine: Any, examples: Sequence[Example], stage: Stage[RewardSection], rate: float
) -> tuple[float, float]:
    """One optimiser step: binary cross-entropy, mean over all steps of all solutions of the batch."""
    total = sum(len(example.targets) for example in examples)
    rows_at_once = int(stage.launch.get("micro_batch", 8))
    parts = micro_batches(
        examples, stage.config.context, rows_at_once, dist.get_rank(), dist.get_world_size()
    )

    def loss_of(part: tuple[Rows, torch.Tensor, float]) -> torch.Tensor:
        rows, targets_S, weight = part
        tensors = (rows.tokens_BT, rows.positions_BT, rows.rows_S, rows.columns_S)
        logits_S = engine(*(tensor.to(engine.device) for tensor in tensors))
        losses_S = F.binary_cross_entropy_with_logits(logits_S, targets_S.to(engine.device), reduction="sum")
        return weight * losses_S / total

    return update(engine, parts, loss_of, rate)


def full_weights(engine: Any) -> dict[str, torch.Tensor]:
    """All weights on the CPU, whatever the ZeRO stage; all ranks must call it."""
    state = {}
    for name, parameter in engine.module.named_parameters():
        with deepspeed.zero.GatheredParameters([parameter], enabled=hasattr(parameter, "ds_id")):
            state[name] = parameter.data.detach().cpu().clone()
    return state
