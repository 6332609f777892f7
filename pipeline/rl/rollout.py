"""Rollouts: which questions a step asks, the seeds of their samples, and the files that keep the outputs.

Questions and seeds are pure functions of the run's seed and the step, so on a CPU a killed run samples the
same outputs again. A file keeps all that training needs (tokens, log-probabilities, rewards) and where it
comes from (seed, version of the weights): the train phase can be repeated without a sampler.
"""

import hashlib
import json
import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import zstandard

from pipeline.core.atomic import atomic_write
from pipeline.core.data.rows import raw_lines, read_as
from pipeline.core.errors import InputError
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.tool_use import Spans, count_own
from pipeline.rl.objectives import ROUNDING

REFUSED = "refused"  # folder of rollouts that were not sampled from the weights of their step
SUFFIX = ".jsonl.zst"


@dataclass(frozen=True)
class Question:
    """A question with its prompt's tokens, and the file that it is from."""

    item: Item
    prompt: list[int]
    file: str = ""


@dataclass(frozen=True)
class Rollout:
    """One sampled output: the sampler's seed and draws, the text, the rewards and the grader's verdict.

    `tool_spans`: [first, end) of `tokens` that a tool wrote; their log-probabilities are 0.
    """

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
    tool_spans: Spans = field(default_factory=list)

    @property
    def length(self) -> int:
        """Sampled tokens."""
        return count_own(self.tokens, self.tool_spans)


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
        return sum(output.length for output in self.outputs)

    @property
    def flat(self) -> bool:
        """Whether all rewards are equal, so that no output is better than another."""
        parts = [output.step_rewards or [output.reward] for output in self.outputs]
        rewards = [reward for part in parts for reward in part] or [0.0]
        return max(rewards) - min(rewards) <= ROUNDING * max(map(abs, rewards))


def questions_from(count: int, first: int, number: int, seed: int) -> list[tuple[int, int]]:
    """Return (place, index of the question) for `number` places from `first` on, in an endless order.

    Each pass over the `count` questions has its own order, drawn from the seed.
    """
    places = range(first, first + number)
    orders = {epoch: _order(count, epoch, seed) for epoch in {place // count for place in places}}
    return [(place, orders[place // count][place % count]) for place in places]


def _order(count: int, epoch: int, seed: int) -> list[int]:
    order = list(range(count))
    random.Random(f"{seed}/order/{epoch}").shuffle(order)
    return order


def share_outputs(questions: int, size: int, sampler: int, samplers: int) -> list[tuple[int, range]]:
    """Return (index of a question, its outputs) that one of `samplers` samples, of `size` to each question.

    A sampler's outputs are consecutive, so that most of them share a prompt; shares differ by at most one.
    """
    start, stop = (questions * size * edge // samplers for edge in (sampler, sampler + 1))
    parts = [
        (index, range(max(start - index * size, 0), min(stop - index * size, size)))
        for index in range(start // size, -(-stop // size))
    ]
    return [(index, outputs) for index, outputs in parts if outputs]


def join_groups(parts: Iterable[Group], size: int) -> list[Group]:
    """Join consecutive parts of groups to whole ones of `size` outputs."""
    groups: list[Group] = []
    for part in parts:
        if groups and len(groups[-1].outputs) < size:
            groups[-1] = replace(groups[-1], outputs=groups[-1].outputs + part.outputs)
        else:
            groups.append(part)
    return groups


def rollout_seed(seed: int, place: int, question: str) -> int:
    """Return the seed of the first sample of a question; sample i has this plus i."""
    digest = hashlib.sha256(f"{seed}/rollout/{place}/{question}".encode()).digest()
    return int.from_bytes(digest[:6])


def write_groups(path: Path, groups: Iterable[Group]) -> None:
    """Write one JSON line per group, zstd with a checksum, whole or not at all."""
    text = "".join(json.dumps(asdict(group), ensure_ascii=False) + "\n" for group in groups)
    with atomic_write(path) as partial:
        partial.write_bytes(zstandard.ZstdCompressor(3, write_checksum=True).compress(text.encode()))


def read_groups(path: Path) -> list[Group]:
    """Read what `write_groups` wrote. Raises InputError for rows that are no groups."""
    groups = []
    for place, group in read_as(Group, str(path)):
        if any(len(output.tokens) != len(output.logprobs) for output in group.outputs):
            raise InputError(f"{place}: `tokens` and `logprobs` of an output differ in length")
        for output in group.outputs:
            edges = [0, *(edge for span in output.tool_spans for edge in span), len(output.tokens)]
            if edges != sorted(edges):
                raise InputError(f"{place}: `tool_spans` of an output are no places of its tokens, in order")
        groups.append(group)
    return groups


class RolloutStore:
    """What this rank sampled in each step and round: parts of groups, in a folder that all ranks share."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder, self.rank = folder, rank

    def path(self, step: int, turn: int = 0) -> Path:
        """Return this rank's file of a step's round."""
        return self.folder / f"step-{step:05d}.round-{turn:02d}.rank-{self.rank:04d}{SUFFIX}"

    def find(self, step: int, turn: int, version: int, seeds: Sequence[range]) -> list[Group] | None:
        """Return groups recorded for these weights and seeds of outputs, if any; a damaged file is none."""
        path = self.path(step, turn)
        if not path.exists():
            return None
        try:
            groups = read_groups(path)
        except InputError as error:
            print(f"{error}; its outputs are sampled again", file=sys.stderr, flush=True)
            return None
        found = [(group.version, [output.seed for output in group.outputs]) for group in groups]
        return groups if found == [(version, list(part)) for part in seeds] else None

    def write(self, step: int, turn: int, groups: Iterable[Group]) -> None:
        """Record this rank's groups of a step's round."""
        write_groups(self.path(step, turn), groups)

    def put_aside(self, step: int) -> int:
        """Move this rank's files of a step out of the way, rank 0 also the published one; returns how often
        that was done for this step.
        """
        aside = self.folder.with_name(REFUSED)
        aside.mkdir(parents=True, exist_ok=True)
        tries = len(list(aside.glob(self.path(step).name.replace(SUFFIX, ".try-*")))) + 1
        own = sorted(self.folder.glob(self.path(step).name.replace(".round-00.", ".round-*.")))
        for path in [*own, *([published(self.folder, step)] if self.rank == 0 else [])]:
            path.rename(aside / path.name.replace(SUFFIX, f".try-{tries:02d}{SUFFIX}"))
        return tries

    def repair(self, step: int, questions: int, tokens: int, size: int, shared: int) -> None:
        """Make sure that the published file of a step is whole: `questions` groups of `size` outputs,
        `tokens` tokens. A damaged or missing one is put together from the ranks' files; `shared` ranks have
        the same outputs. Raises InputError if those are damaged too.
        """
        path = published(self.folder, step)
        try:
            if sum(1 for _ in raw_lines(path)) == questions:
                return
        except OSError:
            pass
        parts: dict[str, list[Path]] = {}
        for file in sorted(self.folder.glob(f"step-{step:05d}.round-*.rank-*{SUFFIX}")):
            parts.setdefault(file.name.split(".")[1], []).append(file)
        groups: list[Group] = []
        for files in parts.values():
            groups += join_groups((group for file in files[::shared] for group in read_groups(file)), size)
        if len(groups) != questions or sum(group.tokens for group in groups) != tokens:
            raise InputError(
                f"{path}: damaged or missing, and what the ranks recorded is not all of it; "
                f"delete {self.folder.parent} to start again"
            )
        write_groups(path, groups)
        print(f"{path}: damaged or missing; put together from the ranks' files", file=sys.stderr, flush=True)


def published(folder: Path, step: int) -> Path:
    """Return a step's file in a folder of published rollouts."""
    return folder / f"step-{step:05d}{SUFFIX}"
