"""Reinforcement learning (paper sections 4 and 5.2): sample groups, score them, update the policy.

One outer iteration of Algorithm 1; further ones are models of their own whose parent is this one, so that
their reference is this one's result. Each rank is a DeepSpeed rank that hosts its own vLLM engine and samples
its share of the questions. Weights go over in memory before each exploration, under a version number: the
updates done. RFT and DPO sample everything from the initial weights first, and train on it then.

Inputs: `parent` (or `init`), `prompts` (bench format), optionally `evaluation`, `reward_model`, `rollouts`.
Output: the model's folder, `metrics.jsonl` with a line per step, `evaluation.jsonl`, all rollouts, and in
`best` the weights of the best evaluation, if those are not the last.

Departure from the paper: the reward is the rule that labelled the paper's reward model's data, unless a
reward model is given.
"""

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pipeline.common.environment  # noqa: F401  # isort: skip  # before torch, deepspeed and vllm

import torch.distributed as dist

from pipeline.common.model import context_length, export_model, load_tokenizer
from pipeline.common.progress import Progress
from pipeline.common.stage import InputError, Stage, run_stage
from pipeline.common.training import constant, start_process_group
from pipeline.config.evaluate import BenchmarkNode
from pipeline.config.rl import RlSection
from pipeline.evaluate.benchmarks import load
from pipeline.evaluate.prompts import chat_prompt
from pipeline.reward.model import StepScorer, load_reward_model
from pipeline.rl import learner
from pipeline.rl.explorer import Explorer, replayed
from pipeline.rl.held_out import evaluate
from pipeline.rl.methods import METHODS
from pipeline.rl.rollout import Group, Question
from pipeline.rl.train import train_on
from pipeline.rl.watch import summarise


def load_questions(stage: Stage[RlSection], name: str, tokenizer: Any, room: int) -> list[Question]:
    """The questions of input `name` whose prompts have at most `room` tokens."""
    sources, suffix = stage.inputs.get(name, []), stage.config.suffix
    items = load(f"rl.{name}", BenchmarkNode(source=sources), sources)
    model = stage.source("parent", "init")
    questions = [
        Question(item, chat_prompt(tokenizer, item, suffix.get(item.lang, ""), model)) for item in items
    ]
    return [question for question in questions if len(question.prompt) <= room]


def check_batch(asked: int, found: int, room: int, ranks: int) -> None:
    """Whether a step can ask `asked` questions: enough of them fit, and the ranks can share them."""
    if found < asked:
        raise InputError(
            f"rl.questions_per_step is {asked}, but prompts has {found} questions of at most {room} tokens"
        )
    if asked % ranks:
        raise InputError(f"rl.questions_per_step is {asked}, which {ranks} ranks cannot share equally")


def load_scorer(stage: Stage[RlSection], device: Any) -> StepScorer | None:
    """The reward model that the section's weights and supervision ask for."""
    section = stage.config
    if not section.rewards.model:
        if section.supervision == "process":
            raise InputError(
                "rl.supervision is process, but rl.rewards.model, the weight of its scores, is 0"
            )
        return None
    if not stage.inputs.get("reward_model"):
        raise InputError("rl.rewards.model is not 0, but the model's node names no reward_model")
    folder = stage.source("reward_model")
    scorer = load_reward_model(folder, section.precision, str(device))
    if section.supervision == "process" and scorer.settings["target"] != "process":
        raise InputError(f"{folder}: an outcome reward model, but rl.supervision is process")
    return scorer


class Run:
    """Policy and sampler of one rank, what they work on, and how far they are."""

    def __init__(self, stage: Stage[RlSection]) -> None:
        section, parent = stage.config, stage.source("parent", "init")
        self.stage, self.section = stage, section
        if section.supervision == "process" and section.method != "grpo":
            raise InputError(f"rl.supervision is process, which method {section.method} does not use")
        start_process_group()
        self.tokenizer = load_tokenizer(parent)
        self.replay = Path(stage.source("rollouts")) if stage.inputs.get("rollouts") else None
        self.held_out: list[Question] = []
        self.models = learner.build_models(stage, parent)
        self.explorer = None if self.replay else self._make_explorer(parent)
        self.learning_rate = constant(section.learning_rate, section.warmup_steps)
        self.online = METHODS[section.method].online
        self.log: list[dict[str, Any]] = []
        self.evaluations: list[dict[str, Any]] = []

    def _make_explorer(self, parent: str) -> Explorer:
        stage, section = self.stage, self.section
        room = context_length(parent) - section.max_tokens
        questions = load_questions(stage, "prompts", self.tokenizer, room)
        check_batch(section.questions_per_step, len(questions), room, dist.get_world_size())
        if section.evaluation:
            held_out = load_questions(stage, "evaluation", self.tokenizer, room)
            self.held_out = held_out[: section.evaluation_questions]
        longest = max(len(question.prompt) for question in [*questions, *self.held_out])
        device = self.models.engine.device
        scorer = load_scorer(stage, device)
        return Explorer(stage, parent, questions, longest, self.tokenizer, scorer, device)

    @property
    def done(self) -> bool:
        """Whether all steps are done, or all tokens sampled."""
        return len(self.log) >= self.section.steps or self._spent(self.log)

    def _spent(self, rows: Sequence[dict[str, Any]]) -> bool:
        budget = self.section.token_budget
        return budget is not None and sum(row["sampled_tokens"] for row in rows) >= budget

    def _first_place(self, questions: int) -> int:
        """Place in the endless order of questions of a step before which this run asked `questions`."""
        section = self.section
        return (
            section.iteration - 1
        ) * section.steps * section.questions_per_step * section.rounds + questions

    def _explored(self, step: int, questions: int) -> tuple[list[Group], dict[str, Any]]:
        """This rank's groups of a step, and what the log says about them."""
        if self.explorer is None:
            assert self.replay is not None
            groups = replayed(self.replay, step, dist.get_rank(), dist.get_world_size())
            asked, rounds = len(groups) * dist.get_world_size(), 1
        else:
            place, version = self._first_place(questions), step if self.online else 0
            groups, asked, rounds = self.explorer.explore(step, place, version)
        parts = [name for name, weight in self.section.rewards if weight or name == "accuracy"]
        watched = summarise(groups, parts, self.models.engine.device)
        return groups, {"questions": asked, "rounds": rounds, **watched}

    def explore_first(self) -> None:
        """Offline methods: sample all steps from the initial weights, before the policy changes."""
        rows: list[dict[str, Any]] = []
        with Progress("rl samples", self.section.steps) as bar:
            while len(rows) < self.section.steps and not self._spent(rows):
                _, row = self._explored(len(rows), sum(row["questions"] for row in rows))
                rows.append(row)
                bar.update(accuracy=row["accuracy"])

    def step(self, step: int) -> None:
        """Sample, score, update; adds a line to the log."""
        times = {}
        if self.explorer is not None and (self.online or self._evaluates(step)):
            times["sync_seconds"] = self.explorer.sync(self.models.engine, step)
        if self._evaluates(step):
            self.evaluate(step)
        started = time.monotonic()
        groups, watched = self._explored(step, sum(row["questions"] for row in self.log))
        times["rollout_seconds"] = time.monotonic() - started
        used = groups if self.section.rounds == 1 else [group for group in groups if not group.flat]
        version = groups[0].version if groups else step
        trained = train_on(self.models, used, self.section, self.learning_rate(step), version == step)
        self.stage.counter("deepspeed.steps", self.section.updates)
        tokens = watched["sampled_tokens"]
        speeds = {
            "rollout_tokens_per_second": tokens / times["rollout_seconds"],
            "train_tokens_per_second": tokens / trained["train_seconds"],
        }
        self.log.append(
            {"step": step + 1, "weight_version": version, **watched, **trained, **times, **speeds}
        )

    def _evaluates(self, step: int) -> bool:
        return bool(self.held_out) and step % self.section.evaluate_every == 0

    def evaluate(self, step: int) -> None:
        """Add a line to `evaluations`, and keep the weights in `work/best` if they are the best so far."""
        self.explorer.generator.wake()
        found = evaluate(self.explorer.generator, self.tokenizer, self.held_out, self.section)
        best = max((row["accuracy"] for row in self.evaluations), default=-1.0)
        self.evaluations.append({"step": step, **found})
        if found["accuracy"] > best:
            folder = self.stage.work / "best"
            if self.stage.is_main:
                shutil.rmtree(folder, ignore_errors=True)
            dist.barrier()
            export_model(self.models.engine, self.tokenizer, folder)

    def resume(self) -> int:
        """Load the newest checkpoint, if any; returns the steps done."""
        steps, state = learner.resume(self.models, self.stage)
        if state is not None:
            self.log, self.evaluations = state["log"], state["evaluations"]
        return steps

    def save(self, step: int) -> None:
        """Write a checkpoint after `step` steps."""
        state = {"log": self.log, "evaluations": self.evaluations}
        learner.save(self.models, self.stage, step, state)

    def publish(self) -> None:
        """Write the model, the logs and the rollouts to the stage's results; all ranks must call it."""
        folder = self.stage.partial
        export_model(self.models.engine, self.tokenizer, folder)
        dist.barrier()
        if not self.stage.is_main:
            return
        write_lines(folder / "metrics.jsonl", self.log)
        if self.evaluations:
            write_lines(folder / "evaluation.jsonl", self.evaluations)
            if self.best["step"] < len(self.log):
                shutil.copytree(self.stage.work / "best", folder / "best")
        if self.explorer is not None:
            self.explorer.publish(folder / "rollouts", [row["rounds"] for row in self.log])

    @property
    def best(self) -> dict[str, Any]:
        """The first of the best evaluations."""
        return max(self.evaluations, key=lambda row: (row["accuracy"], -row["step"]))


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """One JSON object per line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(stage: Stage[RlSection]) -> dict[str, int | float | str]:
    """Train to the end, from the newest checkpoint if there is one; returns counts."""
    work = Run(stage)
    section = stage.config
    start = work.resume()
    if not work.online and work.explorer is not None:
        work.explore_first()
    with Progress(f"rl {stage.instance}", section.steps, initial=start) as bar:
        while not work.done:
            work.step(len(work.log))
            last = work.log[-1]
            bar.update(reward=last["reward"], accuracy=last["accuracy"], length=last["length"])
            if len(work.log) % section.save_every == 0 and not work.done:
                work.save(len(work.log))
    steps = len(work.log)
    if work.held_out:
        work.explorer.sync(work.models.engine, steps)
        work.evaluate(steps)
    work.publish()
    counts = {
        "steps": steps,
        "questions": sum(row["questions"] for row in work.log),
        "sampled_tokens": sum(row["sampled_tokens"] for row in work.log),
        "last_accuracy": round(fmean(row["accuracy"] for row in work.log[-10:]), 6),
    }
    if work.evaluations:
        counts |= {"best_step": work.best["step"], "best_accuracy": work.best["accuracy"]}
    return counts


if __name__ == "__main__":
    run_stage("rl", RlSection, run)
