"""Training a reward model: labelled solutions in packed rows, binary cross-entropy at step ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.config.reward import RewardSection
from pipeline.core.stage import Stage
from pipeline.reward.labels import Solution
from pipeline.reward.model import StepRows, make_rows
from pipeline.training import loop
from pipeline.training.engine import constant
from pipeline.training.packing import concatenate

StepBatch = tuple[StepRows, Tensor, float]  # rows, targets of their steps, weight in the loss


@dataclass(frozen=True)
class StepExample:
    """A solution to train on: tokens of prompt and solution, places of the step ends, and their targets."""

    tokens: list[int]
    places: list[int]
    targets: list[float]


def example_of(solution: Solution, section: RewardSection) -> StepExample:
    """Return what a solution is trained on."""
    steps = slice(-1, None) if section.target == "outcome" else slice(None)
    targets = solution.hard if section.labels == "hard" else solution.soft
    places = [len(solution.prompt) + end for end in solution.ends]
    tokens = [*solution.prompt, *solution.tokens]
    return StepExample(tokens, places[steps], [float(value) for value in targets[steps]])


def step_batches(count: int, section: RewardSection) -> list[list[int]]:
    """Return the examples' indices of each optimiser step; an epoch's order depends on the seed alone."""
    order: list[int] = []
    for epoch in range(section.epochs):
        generator = torch.Generator().manual_seed(section.seed * 1000 + epoch)
        order += torch.randperm(count, generator=generator).tolist()
    return [order[start : start + section.batch] for start in range(0, len(order), section.batch)]


def micro_batches(
    examples: Sequence[StepExample], length: int, rows_at_once: int, rank: int, ranks: int
) -> list[StepBatch]:
    """Return this rank's micro-batches of a step; ranks get equally many, filled up with weight 0."""
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


def train(stage: Stage[RewardSection], engine: Any, solutions: Sequence[Solution]) -> None:
    """Train an engine around a `RewardModel` to the end; raises InputError if the loss stops being finite.

    A step asks for its solutions one by one, so they need not be in memory.

    The loss is the binary cross-entropy, mean over all steps of all solutions of the batch.
    """
    section, rows_at_once = stage.config, int(stage.launch.get("micro_batch", 8))
    batches = step_batches(len(solutions), section)

    def make_step(number: int) -> loop.Step[StepBatch]:
        chosen = [example_of(solutions[index], section) for index in batches[number]]
        total = sum(len(example.targets) for example in chosen)

        def loss_of(part: StepBatch) -> Tensor:
            rows, targets_S, weight = part
            logits_S = engine(*(tensor.to(engine.device) for tensor in rows))
            targets_S = targets_S.to(engine.device)
            losses_S = F.binary_cross_entropy_with_logits(logits_S, targets_S, reduction="sum")
            return weight * losses_S / total

        place = engine.global_rank, engine.world_size
        return loop.Step(micro_batches(chosen, section.context, rows_at_once, *place), loss_of)

    loop.train(stage, engine, len(batches), constant(section.learning_rate), make_step)
