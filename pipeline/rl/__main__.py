"""Reinforcement learning (paper sections 4 and 5.2): sample groups, reward them, update the policy.

One outer iteration of Algorithm 1. A further iteration is another model whose parent is this one, so that its
reference is this one's result. Each DeepSpeed rank hosts its own vLLM engine and samples its share of the
outputs. Before each exploration the weights are copied to the engine in memory; their version is the number
of steps done. Offline methods (RFT, DPO) first sample everything from the initial weights, then train.

Inputs: `parent` (or `init`), `prompts` (bench format), optionally `evaluation`, `reward_model`, `rollouts`.
Output: the model's folder, `metrics.jsonl` with a line per step, `samples.jsonl` with a few outputs of each,
`evaluation.jsonl`, all rollouts, and in `best` the weights of the best evaluation, if those are not the last.

Departure from the paper: the reward is the rule that labelled the data of the paper's reward model, unless
`rl.rewards` says otherwise.
"""

import math
import shutil
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NoReturn

import pipeline.training.environment  # noqa: F401  # isort: skip  # before torch, deepspeed and vllm

import torch.distributed as dist

from pipeline.config.evaluate import BenchmarkNode
from pipeline.config.rl import RlSection
from pipeline.core.ending import interrupted, say
from pipeline.core.errors import Interrupted
from pipeline.core.launch.clock import Clock
from pipeline.core.progress import Progress
from pipeline.core.stage import InputError, Stage, run_stage
from pipeline.core.watchdog import TRIES, reached
from pipeline.evaluate.benchmarks import load
from pipeline.evaluate.interpreter import Interpreter, check_namespaces, is_weak
from pipeline.evaluate.prompts import chat_prompt
from pipeline.reward.model import StepScorer, load_reward_model
from pipeline.rl.explorer import Explorer, read_replay
from pipeline.rl.learner import build_learner
from pipeline.rl.methods import method_of
from pipeline.rl.metrics import (
    StaleSampler,
    check_judged,
    choose_outputs,
    cut_after_answer,
    nothing_to_learn,
    summarise,
)
from pipeline.rl.rewards import Rewarder
from pipeline.rl.rollout import REFUSED, Group, Question
from pipeline.rl.train import train_on
from pipeline.training.engine import constant, start_process_group
from pipeline.training.folder import context_length
from pipeline.training.metrics import EVALUATION, METRICS, SAMPLES, MetricsLog
from pipeline.training.model import export_model
from pipeline.training.next_token import keep_model
from pipeline.training.saver import KEPT
from pipeline.training.tokenizer import load_tokenizer

BEST = "best"  # the folder of the weights of the best evaluation


def load_questions(stage: Stage[RlSection], name: str, tokenizer: Any, room: int) -> list[Question]:
    """Load the questions of input `name` whose prompts have at most `room` tokens."""
    sources, suffix = stage.inputs.get(name, []), stage.config.asks_with
    node = BenchmarkNode(source=sources, fields=stage.config.fields)
    model = stage.source("parent", "init")
    items = load(f"rl.{name}", node, sources)
    files = [
        Path(source).name.partition(".")[0] for source in sources for _ in load(f"rl.{name}", node, [source])
    ]
    questions = [
        Question(item, chat_prompt(tokenizer, item, suffix.get(item.lang, ""), model), file)
        for item, file in zip(items, files, strict=True)
    ]
    return [question for question in questions if len(question.prompt) <= room]


def check_batch(asked: int, found: int, room: int) -> None:
    """Raise InputError unless `asked` questions a step are there."""
    if found < asked:
        raise InputError(
            f"rl.questions_per_step is {asked}, but prompts has {found} questions of at most {room} tokens"
        )


def count_skipped(section: RlSection) -> int:
    """Count the places in the endless order of questions that earlier iterations may have asked."""
    steps = section.earlier_steps
    if steps is None:
        steps = (section.iteration - 1) * section.steps
    return steps * section.questions_per_step * section.rounds


def load_scorer(stage: Stage[RlSection], device: Any) -> StepScorer | None:
    """Load the reward model that the section's weights and supervision ask for."""
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
    scorer = load_reward_model(folder, section.precision, device, stage.launch.get("frozen", "whole"))
    if section.supervision == "process" and scorer.settings["target"] != "process":
        raise InputError(f"{folder}: an outcome reward model, but rl.supervision is process")
    policy = stage.source("parent", "init")
    if load_tokenizer(folder).get_vocab() != load_tokenizer(policy).get_vocab():
        raise InputError(
            f"{folder}: the reward model's vocabulary is not that of {policy}, whose token ids it would"
            " read; train one that starts from a model with the same tokenizer"
        )
    return scorer


class Trainer:
    """One rank's learner and explorer, and what they have done so far."""

    def __init__(self, stage: Stage[RlSection]) -> None:
        section, parent = stage.config, stage.source("parent", "init")
        self.stage, self.section, self.method = stage, section, method_of(section)
        if section.supervision not in self.method.supervision:
            raise InputError(
                f"rl.supervision is {section.supervision}, which method {section.method} does not use"
            )
        if section.runs_programs and not stage.inputs.get("rollouts"):
            check_namespaces(stage)
        self.interpreter = Interpreter(stage.counters, is_weak(stage))
        start_process_group()
        self.tokenizer = load_tokenizer(parent)
        self.replay = Path(stage.source("rollouts")) if stage.inputs.get("rollouts") else None
        self.held_out: list[Question] = []
        self.learner = build_learner(section, stage.launch, parent)
        self.clock, self.saver = Clock(self.learner.engine.device, math.inf), self.learner.saver(stage)
        self.explorer = None if self.replay else self._make_explorer(parent)
        if self.explorer is not None and not self.method.online:
            self.explorer.sync(self.learner.engine, 0)  # all of its samples come from the initial weights
        self.learning_rate = constant(section.learning_rate, section.warmup_steps)
        self.log: list[dict[str, Any]] = []
        self.evaluations: list[dict[str, Any]] = []
        self.saved: list[int] = []  # the best step as each checkpoint of this run knows it

    def _make_explorer(self, parent: str) -> Explorer:
        stage, section = self.stage, self.section
        room = context_length(parent) - section.max_tokens
        questions = load_questions(stage, "prompts", self.tokenizer, room)
        check_batch(section.questions_per_step, len(questions), room)
        if section.evaluation:
            held_out = load_questions(stage, "evaluation", self.tokenizer, room)
            self.held_out = held_out[: section.evaluation_questions]
        longest = max(len(question.prompt) for question in [*questions, *self.held_out])
        scorer = load_scorer(stage, self.learner.engine.device)
        by_step, boxed = section.supervision == "process", section.answer == "boxed"
        run = None
        if section.mode == "pal":
            run = partial(self.interpreter.run_answers, seconds=section.tool_seconds)
        rewarder = Rewarder(section.rewards, scorer, by_step, boxed, run)
        return Explorer(stage, parent, questions, longest, self.tokenizer, rewarder, self.interpreter)

    def done(self, rows: Sequence[dict[str, Any]]) -> bool:
        """Whether the steps in `rows` are all, or used up the token budget."""
        budget = self.section.token_budget
        spent = budget is not None and sum(row["sampled_tokens"] for row in rows) >= budget
        return spent or len(rows) >= self.section.steps

    def _explored(self, rows: Sequence[dict[str, Any]]) -> tuple[list[Group], dict[str, Any]]:
        """Return the groups of the step after those in `rows`, and their metrics."""
        section, step = self.section, len(rows)
        if self.explorer is None:
            assert self.replay is not None
            groups = read_replay(self.replay, step)
            asked, rounds = len(groups), 1
        else:
            first = count_skipped(section) + sum(row["questions"] for row in rows)
            groups, asked, rounds = self.explorer.explore(step, first, step if self.method.online else 0)
        parts = [name for name, weight in section.rewards.by_part.items() if weight or name == "accuracy"]
        row = {"questions": asked, "rounds": rounds, **summarise(groups, parts, section.mode)}
        check_judged([*rows, row], sum(len(group.outputs) for group in groups))
        if self.stage.is_main:
            before = rows[-1] if rows else None
            known = before is not None and before["zero_variance_share"] == 1
            lines = [None if known else nothing_to_learn(groups, section.answer == "boxed")]
            for line in filter(None, [*lines, cut_after_answer(row, before)]):
                say(f"rl {self.stage.instance}: step {step + 1}: {line}")
        return groups, row

    def explore_first(self) -> None:
        """Sample all steps from the initial weights, before the policy changes (offline methods)."""
        rows: list[dict[str, Any]] = []
        with Progress(f"rl {self.stage.instance}: samples", self.section.steps) as bar:
            while not self.done(rows):
                if signal := self.asked_to_stop():
                    raise interrupted(signal, f"rl {self.stage.instance}: {len(rows)} steps sampled")
                reached(False, len(rows))
                rows.append(self._explored(rows)[1])
                bar.update(accuracy=rows[-1]["accuracy"])

    def step(self, written: MetricsLog) -> None:
        """Sample, reward, update; adds a row to the log, which is `written` too."""
        step, times = len(self.log), {}
        reached(True, step)
        evaluates = bool(self.held_out) and step % self.section.evaluate_every == 0
        if self.explorer is not None and (self.method.online or evaluates):
            times["sync_seconds"] = self.explorer.sync(self.learner.engine, step)
        if evaluates:
            self.evaluate(written)
        started = time.monotonic()
        groups, watched = self._explored(self.log)
        times["rollout_seconds"] = time.monotonic() - started
        used = groups if self.section.rounds == 1 else [group for group in groups if not group.flat]
        version = groups[0].version if groups else step
        rate = self.learning_rate(step)
        if self.explorer is not None:
            self.explorer.generator.sleep()
        try:
            trained = train_on(self.learner, used, self.section, rate, on_policy=version == step)
        except StaleSampler as error:
            self.refuse(error)
        self.stage.counter("deepspeed.steps", self.section.updates)
        tokens, tokens_trained = watched["sampled_tokens"], trained.get("trained_tokens", 0)
        scored, updates = self.section.rewards.model > 0, self.section.updates
        watched["flop"] = self.learner.step_flop(groups, tokens_trained, updates, scored)
        speeds = {
            "rollout_tokens_per_second": tokens / times["rollout_seconds"],
            "train_tokens_per_second": tokens / trained["train_seconds"],
        }
        self.log.append(
            {"step": step + 1, "weight_version": version, **watched, **trained, **times, **speeds}
        )
        written.write({"step": step + 1, "samples": choose_outputs(groups)}, SAMPLES)
        written.write(self.log[-1])

    def refuse(self, error: StaleSampler) -> NoReturn:
        """End before an update on rollouts of other weights; the next run samples them again, up to a limit.

        It is another run because a part of the gradient is there already.
        """
        if self.explorer is None:
            raise InputError(f"{error}: {self.replay} was sampled from another model") from error
        tries = self.explorer.put_aside(len(self.log))
        if tries < TRIES:
            raise Interrupted(f"{error}; the step's rollouts are put aside") from error
        raise InputError(
            f"{error}, {tries} times in a row; rounding alone? compare the log-probabilities in "
            f"{self.stage.work / REFUSED}"
        ) from error

    def evaluate(self, written: MetricsLog) -> None:
        """Add a row to `evaluations`; keep the weights if they are the best so far."""
        found = self.explorer.evaluate(self.held_out)
        best = max((row["accuracy"] for row in self.evaluations), default=-1.0)
        self.evaluations.append({"step": len(self.log), **found})
        written.write(self.evaluations[-1], EVALUATION)
        if found["accuracy"] > best:
            keep_model(self.learner.engine, self.tokenizer, self._best(len(self.log)))

    def _best(self, step: int) -> Path:
        """Name the weights of step `step`: a checkpoint that is resumed may know another best step than the
        run that went on from it.
        """
        return self.stage.work / f"{BEST}-{step:07d}"

    def resume(self) -> None:
        """Load the newest checkpoint, if any."""
        if state := self.learner.resume(self.stage):
            self.log, self.evaluations = state["log"], state["evaluations"]
            if self.explorer is not None:
                self.explorer.repair(self.log)

    def save(self) -> None:
        """Begin a checkpoint; drop weights that were the best before all checkpoints that may be resumed."""
        self.saver.save(len(self.log), {"log": self.log, "evaluations": self.evaluations})
        self.saved.append(self.best["step"] if self.evaluations else 0)
        for folder in self.stage.work.glob(f"{BEST}-*") if self.stage.is_main else ():
            if len(self.saved) > KEPT and folder < self._best(self.saved[-1 - KEPT]):
                shutil.rmtree(folder)

    def asked_to_stop(self) -> int:
        """Return the signal that asks to stop, or 0; publish a checkpoint that all ranks have written."""
        _, signal, writes = self.clock.ask(self.saver.writes())
        if not writes:
            self.saver.commit()
        return signal

    def publish(self) -> None:
        """Write the model, the logs and the rollouts to the stage's results; all ranks must call it."""
        folder = self.stage.partial
        export_model(self.learner.engine, self.tokenizer, folder)
        dist.barrier()
        if not self.stage.is_main:
            return
        if self.evaluations:
            shutil.copy(self.stage.work / EVALUATION, folder)
            if self.best["step"] < len(self.log):
                shutil.copytree(self._best(self.best["step"]), folder / BEST)
        if self.explorer is not None:
            self.explorer.publish(folder / "rollouts", len(self.log))

    @property
    def best(self) -> dict[str, Any]:
        """The first of the best evaluations."""
        return max(self.evaluations, key=lambda row: (row["accuracy"], -row["step"]))


def run(stage: Stage[RlSection]) -> dict[str, int | float | str]:
    """Train to the end, from the newest checkpoint if there is one; returns counts.

    Raises Interrupted, once it has saved, after a signal.
    """
    trainer = Trainer(stage)
    with closing(trainer.interpreter):
        return take_steps(trainer)


def take_steps(trainer: Trainer) -> dict[str, int | float | str]:
    """Take all steps that are left, evaluate and publish."""
    stage, section = trainer.stage, trainer.section
    trainer.resume()
    if not trainer.method.online and trainer.explorer is not None:
        trainer.explore_first()
    log = trainer.log
    kept = {METRICS: log, EVALUATION: trainer.evaluations}
    with (
        MetricsLog(stage, len(log), kept) as written,
        Progress(f"rl {stage.instance}", section.steps, initial=len(log)) as bar,
    ):
        start = len(log)
        while not trainer.done(log):
            signal = trainer.asked_to_stop()
            if len(log) > start and (signal or len(log) % section.save_every == 0):
                trainer.save()
            if signal:
                trainer.saver.finish()
                raise interrupted(signal, f"rl {stage.instance}: after step {len(log)} of {section.steps}")
            trainer.step(written)
            last = log[-1]
            bar.update(reward=last["reward"], accuracy=last["accuracy"], length=last["length"])
        trainer.saver.finish()
        if trainer.held_out:
            trainer.explorer.sync(trainer.learner.engine, len(log))
            trainer.evaluate(written)
    stage.checks["packing"] = trainer.learner.engine.module.verdict
    trainer.publish()
    counts = {
        "steps": len(log),
        "questions": sum(row["questions"] for row in log),
        "sampled_tokens": sum(row["sampled_tokens"] for row in log),
        "last_accuracy": round(fmean(row["accuracy"] for row in log[-10:]), 6),
    }
    if trainer.evaluations:
        counts |= {"best_step": trainer.best["step"], "best_accuracy": trainer.best["accuracy"]}
    return counts


if __name__ == "__main__":
    run_stage("rl", RlSection, run)
