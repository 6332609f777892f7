"""Rollouts: which questions a step asks, the seeds of their samples, and the record of what came out.

Questions and seeds are functions of (run seed, step), so that on the CPU a rollout depends on nothing but the
run, the step, the question, the sample and the weights. Every group is kept on disk, with tokens,
log-probabilities, seed, weight version, finish reason and rewards: a train phase can be repeated without a
sampler.
"""

import hashlib
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import zstandard

from pipeline.common.rows import raw_lines
from pipeline.evaluate.benchmarks import Item


@dataclass(frozen=True)
class Question:
    """A question with its prompt's tokens."""

    item: Item
    prompt: list[int]


@dataclass(frozen=True)
class Rollout:
    """One output: what the sampler drew with which seed, its text, its rewards, and the grader's verdict."""

    seed: int
    tokens: list[int]
    logprobs: list[float]
    finish_reason: str
    text: str
    reward: float
    rewards: dict[str, float]
    verdict: str
    extracted: str | None
    reason: str
    step_ends: list[int] = field(default_factory=list)
    step_rewards: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Group:
    """All outputs of one question in one step, sampled from the weights `version`."""

    step: int
    version: int
    id: str
    question: str
    reference: str
    prompt: list[int]
    outputs: list[Rollout]

    @property
    def rewards(self) -> list[float]:
        """Rewards in the order of outputs."""
        return [output.reward for output in self.outputs]

    @property
    def tokens(self) -> int:
        """Sampled tokens of all outputs."""
        return sum(len(output.tokens) for output in self.outputs)

    @property
    def flat(self) -> bool:
        """Whether all rewards are equal, so that no output is better than another."""
        judged = [output.step_rewards or [output.reward] for output in self.outputs]
        return len({reward for rewards in judged for reward in rewards}) <= 1


def questions_from(count: int, first: int, number: int, seed: int) -> list[tuple[int, int]]:
    """(place in the endless order, index of the question) of `number` places from place `first` on.

    Each pass over the `count` questions has its own order, drawn from the seed.
    """
    places = range(first, first + number)
    orders = {epoch: _order(count, epoch, seed) for epoch in {place // count for place in places}}
    return [(place, orders[place // count][place % count]) for place in places]


def _order(count: int, epoch: int, seed: int) -> list[int]:
    order = list(range(count))
    random.Random(f"{seed}/order/{epoch}").shuffle(order)
    return order


def sample_seed(seed: int, place: int, question: str) -> int:
    """Seed of the first sample of a question; sample i has this plus i."""
    digest = hashlib.sha256(f"{seed}/rollout/{place}/{question}".encode()).digest()
    return int.from_bytes(digest[:6])


def write_groups(path: Path, groups: Iterable[Group]) -> None:
    """One JSON line per group, zstd, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(asdict(group), ensure_ascii=False) + "\n" for group in groups)
    partial = path.with_suffix(".partial")
    partial.write_bytes(zstandard.compress(text.encode(), 3))
    partial.replace(path)


def read_groups(path: Path) -> list[Group]:
    """What `write_groups` wrote."""
    return [_group(json.loads(line)) for line in raw_lines(path)]


def _group(row: dict[str, Any]) -> Group:
    return Group(**{**row, "outputs": [Rollout(**output) for output in row["outputs"]]})


class RolloutStore:
    """Groups of each step and round under a folder; each rank keeps its own until `publish`."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder, self.rank = folder, rank

    def path(self, step: int, turn: int = 0) -> Path:
        """This rank's file of a step's round."""
        return self.folder / f"step-{step:05d}.round-{turn:02d}.rank-{self.rank:04d}.jsonl.zst"

    def find(self, step: int, turn: int, version: int, ids: Sequence[str]) -> list[Group] | None:
        """Groups recorded earlier for these questions and weights, if any."""
        if not self.path(step, turn).exists():
            return None
        groups = read_groups(self.path(step, turn))
        same = [group.id for group in groups] == list(ids) and all(
            group.version == version for group in groups
        )
        return groups if same else None

    def write(self, step: int, turn: int, groups: Iterable[Group]) -> None:
        """Record this rank's groups of a step's round."""
        write_groups(self.path(step, turn), groups)

    def publish(self, target: Path, rounds_of_step: Sequence[int], ranks: Sequence[int]) -> None:
        """One file per step with the groups of `ranks`, round by round; rank 0 calls it."""
        stores = [RolloutStore(self.folder, rank) for rank in ranks]
        for step, rounds in enumerate(rounds_of_step, 1):
            parts = [store.path(step, turn) for turn in range(rounds) for store in stores]
            write_groups(published(target, step), [group for part in parts for group in read_groups(part)])


def published(folder: Path, step: int) -> Path:
    """A step's file among the rollouts that a run published."""
    return folder / f"step-{step:05d}.jsonl.zst"
