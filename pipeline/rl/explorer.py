"""Exploration (Algorithm 1, lines 5 to 8): a rank's sampler, the questions it asks, what it keeps on disk.

A step asks its questions in rounds; without dynamic sampling there is one. What was sampled before a kill is
read again instead of sampled again. Ranks that share a sampler (`tensor_parallel`) ask the same questions and
train on different ones of them.
"""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from pipeline.common.model import named_weights
from pipeline.common.stage import InputError, Stage
from pipeline.config.rl import RlSection
from pipeline.reward.model import StepScorer
from pipeline.rl.rewards import Reward, score_outputs
from pipeline.rl.rollout import (
    Group,
    Question,
    Rollout,
    RolloutStore,
    published,
    questions_from,
    read_groups,
    sample_seed,
)
from pipeline.rl.watch import summed

if TYPE_CHECKING:
    from pipeline.common.generation import Generator, Sample

ENGINE_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
MAX_SEQUENCES = 512


class Explorer:
    """Samples and scores this rank's groups. `longest`: tokens of the longest prompt."""

    def __init__(
        self,
        stage: Stage[RlSection],
        parent: str,
        questions: Sequence[Question],
        longest: int,
        tokenizer: Any,
        scorer: StepScorer | None,
        device: Any,
    ) -> None:
        self.stage, self.section, self.questions = stage, stage.config, questions
        self.tokenizer, self.scorer, self.device = tokenizer, scorer, device
        self.shared = int(stage.launch.get("tensor_parallel", 1))
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        if self.ranks % self.shared:
            raise InputError(
                f"launch.tensor_parallel is {self.shared}, which does not divide {self.ranks} ranks"
            )
        self.store = RolloutStore(stage.work / "rollouts", self.rank)
        self.generator = self._make_generator(parent, longest)

    def _make_generator(self, parent: str, longest: int) -> "Generator":
        from pipeline.common.generation import Generator

        section, launch = self.section, self.stage.launch
        outputs = section.questions_per_step * section.group_size * self.shared // self.ranks
        return Generator(
            parent,
            dtype=ENGINE_DTYPES[section.precision],
            max_model_len=longest + section.max_tokens,
            max_sequences=min(MAX_SEQUENCES, max(outputs, section.group_size)),
            seed=section.seed,
            gpu_memory=float(launch.get("gpu_memory", 0.4)),
            tensor_parallel=self.shared,
            sleep=bool(launch.get("sleep", False)),
        )

    def sync(self, engine: Any, version: int) -> float:
        """Give the sampler the policy's weights; returns seconds. All ranks must call it."""
        started = time.monotonic()
        self.generator.wake()
        self.generator.load_weights(named_weights(engine, tied=True), version)
        return time.monotonic() - started

    def explore(self, step: int, first: int, version: int) -> tuple[list[Group], int, int]:
        """(this rank's groups, questions asked by all ranks, rounds) of a step.

        `first`: place of the step's first question in the endless order; `version`: the weights sampled from.
        """
        self.generator.wake()
        groups: list[Group] = []
        asked, missing, rounds = 0, self.section.questions_per_step, 0
        while missing > 0 and rounds < self.section.rounds:
            found = self._round(step, rounds, first + asked, missing, version)
            groups += found[self.rank % self.shared :: self.shared]
            asked, rounds = asked + missing, rounds + 1
            if self.section.rounds > 1:
                (useful,) = summed([sum(not group.flat for group in groups)], self.device)
                missing = self.section.questions_per_step - round(useful)
        self.generator.sleep()
        return groups, asked, rounds

    def _round(self, step: int, turn: int, first: int, number: int, version: int) -> list[Group]:
        """The groups of this rank's sampler in one round, recorded earlier or sampled now."""
        places = questions_from(len(self.questions), first, number, self.section.seed)
        mine = places[self.rank // self.shared :: self.ranks // self.shared]
        asked = [(place, self.questions[index]) for place, index in mine]
        groups = self.store.find(step + 1, turn, version, [question.item.id for _, question in asked])
        if groups is None:
            if self.generator.version != version:
                raise RuntimeError(
                    f"sampler has weights {self.generator.version}, step {step} needs {version}"
                )
            groups = explore(self.generator, self.tokenizer, asked, step + 1, self.section, self.scorer)
            self.store.write(step + 1, turn, groups)
            self.stage.counter("vllm.requests", len(groups) * self.section.group_size)
            self.stage.counter("vllm.tokens", sum(group.tokens for group in groups))
        return groups

    def publish(self, target: Path, rounds_of_step: Sequence[int]) -> None:
        """Write all rollouts, one file per step; rank 0 calls it."""
        self.store.publish(target, rounds_of_step, range(0, self.ranks, self.shared))


def replayed(folder: Path, step: int, rank: int, ranks: int) -> list[Group]:
    """This rank's share of the groups that an earlier run published for a step."""
    path = published(folder, step + 1)
    if not path.exists():
        raise InputError(f"{path}: not found (rl.rollouts); the replay has more steps than the recorded run")
    groups = read_groups(path)
    if len(groups) % ranks:
        raise InputError(f"{path}: {len(groups)} groups, which {ranks} ranks cannot share equally")
    return groups[rank::ranks]


def explore(
    generator: "Generator",
    tokenizer: Any,
    asked: Sequence[tuple[int, Question]],
    step: int,
    section: RlSection,
    scorer: StepScorer | None,
) -> list[Group]:
    """Sample and score a group for each (place, question), from the weights that the generator holds.

    Raises InputError if the sampler's log-probabilities are not numbers: its weights are broken.
    """
    if not asked:
        return []
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
    if not all(map(math.isfinite, (logprob for sample in flat for logprob in sample.logprobs))):
        raise InputError(
            f"rl step {step}: the sampler's log-probabilities are not numbers; its weights are broken"
        )
    texts = tokenizer.batch_decode([sample.token_ids for sample in flat], skip_special_tokens=True)
    rewards = score_outputs(
        [question.item for _, question in asked for _ in range(section.group_size)],
        [prompt for prompt in prompts for _ in range(section.group_size)],
        [sample.token_ids for sample in flat],
        texts,
        [sample.finish_reason == "stop" for sample in flat],
        section.rewards,
        scorer,
        by_step=section.supervision == "process",
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


def _rollout(seed: int, sample: "Sample", text: str, reward: Reward) -> Rollout:
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
        step_ends=reward.step_ends,
        step_rewards=reward.step_rewards,
    )
