"""Exploration (Algorithm 1, lines 5 to 8): sample a step's questions, reward the outputs, keep them on disk.

A step asks its questions in rounds; without dynamic sampling there is one. Samplers share the outputs, not
the questions, so any number of ranks works; then all ranks get all groups. A run that was killed reads back
what it had sampled. Ranks that share a sampler (`tensor_parallel`) sample the same outputs. During training
the sampler answers held-out questions too. In mode tool outputs are written by the evaluation's own loop.
"""

import math
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from mathverdict.answers import Verdict
from sealedpy.pool import Outcome

from pipeline.config.rl import RlSection
from pipeline.core.launch.section import MAX_SEQUENCES
from pipeline.core.stage import InputError, Stage
from pipeline.core.watchdog import beat, enter
from pipeline.evaluate.interpreter import Interpreter
from pipeline.evaluate.metrics import accuracy, right_and_finished
from pipeline.evaluate.programs import OUTPUT_FENCE
from pipeline.evaluate.tool_use import Draft, count_own, draft_of, write_with_tools
from pipeline.rl.rewards import Reward, Rewarder
from pipeline.rl.rollout import (
    Group,
    Question,
    Rollout,
    RolloutStore,
    join_groups,
    published,
    questions_from,
    read_groups,
    rollout_seed,
    share_outputs,
    write_groups,
)
from pipeline.training.asking import draw_in_context
from pipeline.training.chat import encode
from pipeline.training.isolation import BOUND, evaluating
from pipeline.training.model import causal_model, sampler_weights
from pipeline.training.tokenizer import PROBES

if TYPE_CHECKING:
    from pipeline.training.generation import Generator

ENGINE_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


class Explorer:
    """Samples and rewards groups. `longest`: tokens of the longest prompt. Raises InputError for a number of
    ranks that cannot share a sampler: in mode tool each would run the programs, whose outputs may differ.
    """

    def __init__(
        self,
        stage: Stage[RlSection],
        parent: str,
        questions: Sequence[Question],
        longest: int,
        tokenizer: Any,
        rewarder: Rewarder,
        interpreter: Interpreter,
    ) -> None:
        self.stage, self.section, self.questions = stage, stage.config, questions
        self.tokenizer, self.rewarder, self.interpreter = tokenizer, rewarder, interpreter
        self.stop = [OUTPUT_FENCE] if self.section.runs_programs else []  # as in the evaluation
        self.shared = int(stage.launch.get("tensor_parallel", 1))
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        if self.ranks % self.shared:
            raise InputError(
                f"launch.tensor_parallel is {self.shared}, which does not divide {self.ranks} ranks"
            )
        if self.section.mode == "tool" and self.shared > 1:
            raise InputError("rl.mode is tool, where ranks share no sampler: set launch.tensor_parallel to 1")
        self.store = RolloutStore(stage.work / "rollouts", self.rank)
        self.room = longest + self.section.max_tokens
        self.generator = self._make_generator(parent)

    def _make_generator(self, parent: str) -> "Generator":
        from pipeline.training.generation import Generator

        section, launch = self.section, self.stage.launch
        outputs = -(-section.questions_per_step * section.group_size * self.shared // self.ranks)
        return Generator(
            parent,
            dtype=ENGINE_DTYPES[section.precision],
            max_model_len=self.room,
            max_sequences=min(MAX_SEQUENCES, max(outputs, section.group_size)),
            seed=section.seed,
            gpu_memory=float(launch.get("gpu_memory", 0.4)),
            tensor_parallel=self.shared,
            sleep=bool(launch.get("sleep", False)),
            empty=True,
        )

    def sync(self, engine: Any, version: int) -> float:
        """Give the sampler the policy's weights; returns seconds. All ranks must call it.

        The first time raises InputError unless both give a fixed prompt the same log-probabilities: tensors
        may have arrived in another order or layout, or not at all.
        """
        started, first = time.monotonic(), "sampler" not in self.stage.checks
        enter("sync")
        self.generator.load_weights(sampler_weights(engine), version)
        if first:
            words = "\n".join([*PROBES, *(question.item.text for question in self.questions[:8])])
            tokens = encode(self.tokenizer, [words])[0][: self.room - 1]
            self.stage.checks["sampler"] = check_sampler(self.generator, engine, tokens)
        return time.monotonic() - started

    def explore(self, step: int, first: int, version: int) -> tuple[list[Group], int, int]:
        """Return (groups, questions asked, rounds) of a step, the same on all ranks.

        `first`: place of the step's first question in the endless order; `version`: the weights sampled from.
        """
        groups: list[Group] = []
        asked, missing, rounds = 0, self.section.questions_per_step, 0
        while missing > 0 and rounds < self.section.rounds:
            groups += self._round(step, rounds, first + asked, missing, version)
            asked, rounds = asked + missing, rounds + 1
            if self.section.rounds > 1:
                missing = self.section.questions_per_step - sum(not group.flat for group in groups)
        if self.rank == 0:
            write_groups(published(self.store.folder, step + 1), groups)
        return groups, asked, rounds

    def _round(self, step: int, turn: int, first: int, number: int, version: int) -> list[Group]:
        """Return the groups of one round; this rank's share is read back or sampled now."""
        enter("rollout")
        size, seed = self.section.group_size, self.section.seed
        places = questions_from(len(self.questions), first, number, seed)
        asked: list[tuple[Question, range]] = []
        for at, outputs in share_outputs(number, size, self.rank // self.shared, self.ranks // self.shared):
            place, question = places[at][0], self.questions[places[at][1]]
            start = rollout_seed(seed, place, question.item.id)
            asked.append((question, range(start + outputs.start, start + outputs.stop)))
        groups = self.store.find(step + 1, turn, version, [seeds for _, seeds in asked])
        if not self._all_of_sampler(groups is not None):
            if self.generator.version != version:
                raise RuntimeError(
                    f"sampler has weights {self.generator.version}, step {step} needs {version}"
                )
            groups = self._sample(asked, step + 1)
            self.store.write(step + 1, turn, groups)
        else:
            self.rewarder.score([], [], [], [])  # ranks share a split reward model: others may score
        parts: list[Any] = [None] * self.ranks
        dist.all_gather_object(parts, groups)
        return join_groups([group for part in parts[:: self.shared] for group in part], size)

    def _all_of_sampler(self, found: bool) -> bool:
        """Whether all ranks that share this rank's sampler found something: they must sample together."""
        if self.shared == 1:
            return found
        flags = [False] * self.ranks
        dist.all_gather_object(flags, found)
        first = self.rank // self.shared * self.shared
        return all(flags[first : first + self.shared])

    def _sample(self, asked: Sequence[tuple[Question, range]], step: int) -> list[Group]:
        """Sample and score outputs for each (question, seeds), from the weights that the generator holds.

        Raises InputError if the sampler's log-probabilities are not numbers: its weights are broken.
        """
        flat = self._draw(asked, 1.0, logprobs=True)
        if not all(math.isfinite(logprob) for draft in flat for logprob in draft.logprobs):
            raise InputError(
                f"rl step {step}: the sampler's log-probabilities are not numbers; its weights are broken"
            )
        rewards = self.rewarder.score(
            [question.item for question, seeds in asked for _ in seeds],
            [question.prompt for question, seeds in asked for _ in seeds],
            [draft.tokens for draft in flat],
            [draft.text for draft in flat],
        )
        drawn = zip(flat, rewards, strict=True)
        return [
            Group(
                step=step,
                version=self.generator.version,
                id=question.item.id,
                question=question.item.text,
                reference=question.item.answer,
                prompt=question.prompt,
                outputs=[_rollout(seed, *next(drawn)) for seed in seeds],
            )
            for question, seeds in asked
        ]

    def _draw(
        self, asked: Sequence[tuple[Question, range]], temperature: float, logprobs: bool = False
    ) -> list[Draft]:
        """Sample an output for each seed of each question; `max_tokens` bounds it with what a tool wrote."""
        section, longest = self.section, self.section.max_tokens
        options = {"temperature": temperature, "stop": self.stop, "logprobs": logprobs}

        def sample(
            prompts: list[list[int]], rooms: list[int], seeds: list[int], n: Sequence[int] | int = 1
        ) -> list[list[Draft]]:
            counters = self.stage.counters
            drawn = draw_in_context(self.generator, prompts, rooms, seeds, counters, n=n, **options)
            return [[draft_of(self.tokenizer, one) for one in row] for row in drawn]

        prompts, starts = [question.prompt for question, _ in asked], [seeds.start for _, seeds in asked]
        rows = sample(prompts, [longest] * len(asked), starts, [len(seeds) for _, seeds in asked])
        drafts = [draft for row in rows for draft in row]
        if section.mode != "tool":
            return drafts
        prompts = [question.prompt for question, seeds in asked for _ in seeds]
        seeds = [seed for _, seeds in asked for seed in seeds]

        def draw(indices: list[int], contexts: list[list[int]], left: int) -> list[list[Draft]]:
            asking = list(zip(indices, contexts, strict=True))
            rooms = [len(prompts[index]) + longest - len(context) for index, context in asking]
            return sample(contexts, rooms, [rollout_seed(seeds[index], left, "") for index in indices])

        def run(programs: Sequence[str]) -> list[Outcome]:
            return self.interpreter.run(programs, section.tool_seconds)

        write_with_tools(drafts, prompts, draw, run, self.tokenizer, section.tool_rounds, section.tool_result)
        return drafts

    def evaluate(self, questions: Sequence[Question]) -> dict[str, Any]:
        """Score the sampler's current weights on held-out questions: greedy accuracy with its interval, of
        several files that of each, too (`accuracy_of`), and mean length.

        All ranks must call it, and all get the result. A question has the same seeds in every evaluation, so
        two evaluations differ only by the weights.
        """
        enter("evaluation")
        rows = self._ask(questions)
        rights = [float(verdict.right) for verdict, _, _ in rows]
        found = accuracy(rights) | {"length": fmean(length for _, length, _ in rows)}
        found["right_and_finished"] = right_and_finished(rights, [done for _, _, done in rows])
        by_file: dict[str, list[float]] = {}
        for question, right in zip(questions, rights, strict=True):
            by_file.setdefault(question.file, []).append(right)
        if len(by_file) > 1:
            found["accuracy_of"] = {file: fmean(values) for file, values in by_file.items()}
        return found

    def _ask(self, questions: Sequence[Question]) -> list[tuple[Verdict, int, bool]]:
        """Return (verdict, tokens, whether finished) of the greedy answer to every question, in order.

        Samplers share the questions; the ranks of a sampler ask the same ones.
        """
        sampler, samplers = self.rank // self.shared, self.ranks // self.shared
        mine = questions[sampler::samplers]
        starts = [rollout_seed(self.section.seed, -1, question.item.id) for question in mine]
        seeds = [range(start, start + 1) for start in starts]
        flat = self._draw(list(zip(mine, seeds, strict=True)), 0.0)
        items = [question.item for question in mine]
        judged = zip(self.rewarder.judge(items, [draft.text for draft in flat]), flat, strict=True)
        found = [
            (verdict, count_own(draft.tokens, draft.tool_spans), draft.finish_reason == "stop")
            for verdict, draft in judged
        ]
        parts: list[Any] = [None] * self.ranks
        dist.all_gather_object(parts, found)
        return [parts[index % samplers * self.shared][index // samplers] for index in range(len(questions))]

    def put_aside(self, step: int) -> int:
        """Put the rollouts of step `step` + 1 aside, so that the next run samples them again; returns how
        often that was done. All ranks call it.
        """
        tries = [0] * self.ranks
        dist.all_gather_object(tries, self.store.put_aside(step + 1))  # which also waits for all
        return max(tries)

    def repair(self, log: Sequence[dict[str, Any]]) -> None:
        """See that the rollouts of the steps in `log` are whole; all ranks call it, rank 0 does it."""
        for row in log if self.rank == 0 else ():
            shape = row["questions"], row["sampled_tokens"]
            self.store.repair(row["step"], *shape, self.section.group_size, self.shared)
            beat()  # thousands of steps take minutes

    def publish(self, target: Path, steps: int) -> None:
        """Copy the rollouts of `steps` steps, one file per step; rank 0 calls it."""
        target.mkdir(parents=True, exist_ok=True)
        for step in range(1, steps + 1):
            shutil.copy(published(self.store.folder, step), target)


def read_replay(folder: Path, step: int) -> list[Group]:
    """Read a step's groups from the rollouts that an earlier run published."""
    path = published(folder, step + 1)
    if not path.exists():
        raise InputError(f"{path}: not found (rl.rollouts); the replay has more steps than the recorded run")
    return read_groups(path)


def _rollout(seed: int, draft: Draft, reward: Reward) -> Rollout:
    return Rollout(
        seed=seed,
        tokens=draft.tokens,
        logprobs=[float(f"{logprob:.9g}") for logprob in draft.logprobs],  # an fp32 number, written short
        finish_reason=draft.finish_reason,
        text=draft.text,
        reward=reward.total,
        rewards=reward.parts,
        verdict=reward.verdict.verdict,
        extracted=reward.verdict.extracted,
        reason=reward.verdict.reason,
        step_ends=reward.step_ends,
        step_rewards=reward.step_rewards,
        tool_spans=draft.tool_spans,
    )


def check_sampler(generator: "Generator", engine: Any, tokens: list[int]) -> dict[str, float]:
    """Return how far the sampler's log-probabilities of `tokens` are from the policy's (in bf16 the mean),
    and how far they may be. Raises InputError if they are farther.
    """
    model, tokens_1T = causal_model(engine), torch.tensor([tokens], device=engine.device)
    positions_1T = torch.arange(len(tokens), device=engine.device)[None]
    with evaluating(engine.module, engine.device):
        policy_T = engine.module(tokens_1T, positions_1T, tokens_1T.roll(-1, 1))[0, :-1].cpu()
    gaps, exact = (policy_T - torch.tensor(generator.score(tokens))).abs(), model.dtype == torch.float32
    gap, bound = float(gaps.max() if exact else gaps.mean()), BOUND["fp32" if exact else "bf16"]
    if not gap <= bound:
        raise InputError(
            f"{model.config.model_type}: after the first sync sampler and policy differ by {gap:.3g} nats "
            f"(allowed {bound}); vLLM cannot sample for the training of this kind of model"
        )
    return {"gap": gap, "bound": bound}
