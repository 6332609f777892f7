"""Exploration: which questions a step asks, the seeds of their samples, and the record of what came out.

Questions and seeds are functions of (run seed, step), so that on the CPU a rollout depends on nothing but the
run, the step, the question, the sample and the weights. Every group is kept on disk, with tokens,
log-probabilities, seed, weight version, finish reason and rewards: a train phase can be repeated without a
sampler.
"""

import hashlib
import io
import json
import random
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import zstandard

from pipeline.common.generation import Generator, Sample
from pipeline.config.rl import RlSection
from pipeline.evaluate.benchmarks import Item
from pipeline.reward.model import Scorer
from pipeline.rl.rewards import Reward, score_outputs


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


def questions_of_step(count: int, step: int, per_step: int, seed: int) -> list[tuple[int, int]]:
    """(place in the endless order, index of the question) for each question that `step` asks.

    Each pass over the `count` questions has its own order, drawn from the seed.
    """
    places = range(step * per_step, (step + 1) * per_step)
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


def explore(
    generator: Generator,
    tokenizer: Any,
    asked: Sequence[tuple[int, Question]],
    step: int,
    section: RlSection,
    scorer: Scorer | None,
) -> list[Group]:
    """Sample and score a group for each (place, question), from the weights that the generator holds."""
    prompts = [question.prompt for _, question in asked]
    seeds = [sample_seed(section.seed, place, question.item.id) for place, question in asked]
    samples = generator.generate(
        prompts,
        n=section.group_size,
        temperature=section.temperature,
        max_tokens=section.max_tokens,
        seeds=seeds,
        logprobs=True,
    )
    flat = [sample for group in samples for sample in group]
    texts = tokenizer.batch_decode([sample.token_ids for sample in flat], skip_special_tokens=True)
    rewards = score_outputs(
        [question.item for _, question in asked for _ in range(section.group_size)],
        [prompt for prompt in prompts for _ in range(section.group_size)],
        [sample.token_ids for sample in flat],
        texts,
        [sample.finish_reason == "stop" for sample in flat],
        section.rewards,
        scorer,
    )
    outputs = [
        _rollout(seeds[index // section.group_size] + index % section.group_size, *drawn)
        for index, drawn in enumerate(zip(flat, texts, rewards, strict=True))
    ]
    return [
        Group(
            step=step,
            version=generator.version,
            id=question.item.id,
            question=question.item.text,
            reference=question.item.answer,
            prompt=question.prompt,
            outputs=outputs[index * section.group_size : (index + 1) * section.group_size],
        )
        for index, (_, question) in enumerate(asked)
    ]


def _rollout(seed: int, sample: Sample, text: str, reward: Reward) -> Rollout:
    return Rollout(
        seed=seed,
        tokens=sample.token_ids,
        logprobs=[float(f"{logprob:.9g}") for logprob in sample.logprobs],  # an fp32 number, written short
        finish_reason=sample.finish_reason,
        text=text,
        reward=reward.total,
        rewards=reward.parts,
        verdict=reward.verdict.verdict,
        extracted=reward.verdict.extracted,
        reason=reward.verdict.reason,
    )


def write_groups(path: Path, groups: Iterable[Group]) -> None:
    """One JSON line per group, zstd, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(asdict(group), ensure_ascii=False) + "\n" for group in groups)
    partial = path.with_suffix(".partial")
    partial.write_bytes(zstandard.compress(text.encode(), 3))
    partial.replace(path)


def read_groups(path: Path) -> list[Group]:
    """What `write_groups` wrote."""
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
        return [_group(json.loads(line)) for line in io.TextIOWrapper(stream, encoding="utf-8")]


def _group(row: dict[str, Any]) -> Group:
    return Group(**{**row, "outputs": [Rollout(**output) for output in row["outputs"]]})


class RolloutStore:
    """Groups of each step under a folder; each rank keeps its own until `publish`."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder, self.rank = folder, rank

    def path(self, step: int) -> Path:
        """This rank's file of a step."""
        return self.folder / f"step-{step:05d}.rank-{self.rank:04d}.jsonl.zst"

    def find(self, step: int, version: int, ids: Sequence[str]) -> list[Group] | None:
        """Groups recorded earlier for these questions and weights, if any."""
        if not self.path(step).exists():
            return None
        groups = read_groups(self.path(step))
        same = [group.id for group in groups] == list(ids) and all(
            group.version == version for group in groups
        )
        return groups if same else None

    def write(self, step: int, groups: Iterable[Group]) -> None:
        """Record this rank's groups of a step."""
        write_groups(self.path(step), groups)

    def publish(self, target: Path, steps: int, ranks: int) -> None:
        """One file per step with the groups of all ranks; rank 0 calls it."""
        target.mkdir(parents=True, exist_ok=True)
        stores = [RolloutStore(self.folder, rank) for rank in range(ranks)]
        for step in range(1, steps + 1):
            file = target / f"step-{step:05d}.jsonl.zst"
            if ranks == 1:
                shutil.copyfile(self.path(step), file)
            else:
                write_groups(file, [group for store in stores for group in read_groups(store.path(step))])
