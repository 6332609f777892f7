"""GRPO (paper section 4, Algorithm 1 without its outer loop): sample groups, score them, update the policy.

Each rank is a DeepSpeed rank that hosts its own vLLM engine and samples its share of the questions. Weights
go over in memory before each exploration, under a version number: the updates done. Inputs: `parent` (or
`init`), `prompts` (bench format), optionally `evaluation` and `reward_model`. Output: the model's folder,
`metrics.jsonl` with a line per step, `evaluation.jsonl`, and all rollouts.

Departure from the paper: the reward is the rule that labelled the paper's reward model's data, unless a
reward model is given.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pipeline.common.environment  # noqa: F401  # isort: skip  # before torch, deepspeed and vllm

import torch.distributed as dist

from pipeline.common import checkpoint
from pipeline.common.generation import Generator
from pipeline.common.model import (
    TokenLogprobs,
    context_length,
    export_model,
    load_model,
    load_tokenizer,
    named_weights,
)
from pipeline.common.progress import Progress
from pipeline.common.stage import InputError, Stage, run_stage
from pipeline.common.training import EngineSettings, build_engine, constant, start_process_group
from pipeline.config.evaluate import BenchmarkNode
from pipeline.config.rl import RlSection
from pipeline.evaluate.benchmarks import load
from pipeline.evaluate.grading import grade_responses
from pipeline.evaluate.prompts import chat_prompt
from pipeline.reward.model import Scorer, load_reward_model
from pipeline.rl.rollout import Group, Question, RolloutStore, explore, questions_of_step
from pipeline.rl.train import summed, train_on

ENGINE_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
MAX_SEQUENCES = 512


def source(stage: Stage[RlSection], *names: str) -> str:
    """The folder or hub id given under one of the input `names`."""
    found = [path for name in names for path in stage.inputs.get(name, [])]
    if len(found) != 1:
        raise InputError(f"--input {' or '.join(names)}: expected one model, got {len(found)}")
    return found[0]


def load_questions(stage: Stage[RlSection], name: str, tokenizer: Any, room: int) -> list[Question]:
    """The questions of input `name` whose prompts have at most `room` tokens."""
    sources, suffix = stage.inputs.get(name, []), stage.config.suffix
    items = load(f"rl.{name}", BenchmarkNode(source=sources), sources)
    model = source(stage, "parent", "init")
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


class Run:
    """Policy, reference and sampler of one rank, and what they work on."""

    def __init__(self, stage: Stage[RlSection]) -> None:
        section, parent = stage.config, source(stage, "parent", "init")
        self.stage, self.section = stage, section
        start_process_group()
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.tokenizer = load_tokenizer(parent)
        room = context_length(parent) - section.max_tokens
        self.questions = load_questions(stage, "prompts", self.tokenizer, room)
        held_out = load_questions(stage, "evaluation", self.tokenizer, room) if section.evaluation else []
        self.held_out = held_out[: section.evaluation_questions]
        check_batch(section.questions_per_step, len(self.questions), room, self.ranks)
        self.engine = self._make_engine(parent)
        self.reference = (
            TokenLogprobs(load_model(parent, section.precision)) if section.kl_coefficient else None
        )
        if self.reference is not None:
            self.reference.eval().requires_grad_(False).to(self.engine.device)
        self.scorer = self._load_scorer()
        self.generator = self._make_generator(parent)
        self.store = RolloutStore(stage.work / "rollouts", self.rank)
        self.learning_rate = constant(section.learning_rate, section.warmup_steps)
        self.log: list[dict[str, Any]] = []
        self.evaluations: list[dict[str, Any]] = []

    def _make_engine(self, parent: str) -> Any:
        section, launch = self.section, self.stage.launch
        model = load_model(parent, section.precision)
        if launch.get("activation_checkpointing"):
            model.gradient_checkpointing_enable()
        settings = EngineSettings(
            learning_rate=section.learning_rate,
            beta2=section.beta2,
            weight_decay=section.weight_decay,
            gradient_clipping=section.gradient_clipping,
            precision=section.precision,
            zero_stage=int(launch.get("zero_stage", 1)),
        )
        return build_engine(TokenLogprobs(model), settings)

    def _load_scorer(self) -> Scorer | None:
        if not self.section.rewards.model:
            return None
        if not self.stage.inputs.get("reward_model"):
            raise InputError("rl.rewards.model is not 0, but the model's node names no reward_model")
        folder = source(self.stage, "reward_model")
        return load_reward_model(folder, self.section.precision, str(self.engine.device))

    def _make_generator(self, parent: str) -> Generator:
        section = self.section
        longest = max(len(question.prompt) for question in [*self.questions, *self.held_out])
        return Generator(
            parent,
            dtype=ENGINE_DTYPES[section.precision],
            max_model_len=longest + section.max_tokens,
            max_sequences=min(MAX_SEQUENCES, section.questions_per_step * section.group_size // self.ranks),
            seed=section.seed,
            gpu_memory=float(self.stage.launch.get("gpu_memory", 0.4)),
        )

    def sync(self, version: int) -> float:
        """Give the sampler the policy's weights; returns seconds. All ranks must call it."""
        started = time.monotonic()
        self.generator.load_weights(named_weights(self.engine, tied=True), version)
        return time.monotonic() - started

    def explore(self, step: int) -> list[Group]:
        """This rank's groups of a step, recorded earlier or sampled now."""
        section = self.section
        places = questions_of_step(len(self.questions), step, section.questions_per_step, section.seed)
        asked = [(place, self.questions[index]) for place, index in places[self.rank :: self.ranks]]
        ids = [question.item.id for _, question in asked]
        groups = self.store.find(step + 1, self.generator.version, ids)
        if groups is None:
            groups = explore(self.generator, self.tokenizer, asked, step + 1, section, self.scorer)
            self.store.write(step + 1, groups)
            self.stage.counter("vllm.requests", len(groups) * section.group_size)
            self.stage.counter(
                "vllm.tokens", sum(len(out.tokens) for group in groups for out in group.outputs)
            )
        return groups

    def step(self, step: int) -> None:
        """Sample, score, update; adds a line to the log."""
        sync_seconds = self.sync(step)
        if self.held_out and step % self.section.evaluate_every == 0:
            self.evaluate(step)
        started = time.monotonic()
        groups = self.explore(step)
        rollout_seconds = time.monotonic() - started
        watched = summarise(groups, self.engine.device)
        rows_at_once = int(self.stage.launch.get("micro_batch", 8))
        trained = train_on(
            self.engine, self.reference, groups, self.section, rows_at_once, self.learning_rate(step)
        )
        self.stage.counter("deepspeed.steps", self.section.updates)
        seconds = {"sync_seconds": sync_seconds, "rollout_seconds": rollout_seconds}
        self.log.append({"step": step + 1, "weight_version": step, **watched, **trained, **seconds})

    def evaluate(self, step: int) -> None:
        """Greedy accuracy of the sampler's weights on held-out questions; adds a line to `evaluations`."""
        mine = self.held_out[self.rank :: self.ranks]
        prompts = [question.prompt for question in mine]
        samples = self.generator.generate(prompts, temperature=0.0, max_tokens=self.section.max_tokens)
        outputs = [sample.token_ids for (sample,) in samples]
        texts = self.tokenizer.batch_decode(outputs, skip_special_tokens=True)
        verdicts = grade_responses([question.item for question in mine], texts, label=None)
        sums = [sum(verdict.right for verdict in verdicts), sum(map(len, outputs))]
        right, tokens = (total / len(self.held_out) for total in summed(sums, self.engine.device))
        row = {"step": step, "accuracy": right, "n": len(self.held_out), "length": tokens}
        self.evaluations.append(row)

    def resume(self) -> int:
        """Load the newest checkpoint, if any; returns the steps done."""
        path = checkpoint.newest(self.stage.work / "checkpoints")
        if path is None:
            return 0
        state = checkpoint.load(self.engine, path)
        self.log, self.evaluations = state["log"], state["evaluations"]
        return checkpoint.step_of(path)

    def save(self, step: int) -> None:
        """Write a checkpoint after `step` steps."""
        state = {"log": self.log, "evaluations": self.evaluations}
        checkpoint.save(self.engine, self.stage.work / "checkpoints", step, state)

    def publish(self) -> None:
        """Write the model, the logs and the rollouts to the stage's results; all ranks must call it."""
        folder = self.stage.partial
        export_model(self.engine, self.tokenizer, folder)
        dist.barrier()
        if self.stage.is_main:
            write_lines(folder / "metrics.jsonl", self.log)
            if self.evaluations:
                write_lines(folder / "evaluation.jsonl", self.evaluations)
            self.store.publish(folder / "rollouts", self.section.steps, self.ranks)


def summarise(groups: Sequence[Group], device: Any) -> dict[str, float]:
    """What the groups of all ranks look like; entropy (nats) is estimated by the samples' own surprise."""
    outputs = [output for group in groups for output in group.outputs]
    sums = summed(
        [
            len(outputs),
            sum(len(output.tokens) for output in outputs),
            sum(output.reward for output in outputs),
            sum(output.verdict == "right" for output in outputs),
            sum(output.verdict == "undecided" for output in outputs),
            sum(output.finish_reason != "stop" for output in outputs),
            -sum(sum(output.logprobs) for output in outputs),
            len(groups),
            sum(len(set(group.rewards)) == 1 for group in groups),
        ],
        device,
    )
    count, tokens, reward, right, undecided, truncated, surprise, all_groups, flat = sums
    return {
        "reward": reward / count,
        "accuracy": right / count,
        "undecided": undecided / count,
        "length": tokens / count,
        "truncated": truncated / count,
        "entropy": surprise / tokens,
        "zero_variance_share": flat / all_groups,
    }


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """One JSON object per line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(stage: Stage[RlSection]) -> dict[str, int | float | str]:
    """Train to the end, from the newest checkpoint if there is one; returns counts."""
    work = Run(stage)
    section = stage.config
    start = work.resume()
    with Progress("rl", section.steps, initial=start) as bar:
        for step in range(start, section.steps):
            work.step(step)
            last = work.log[-1]
            bar.update(reward=last["reward"], accuracy=last["accuracy"], length=last["length"])
            if (step + 1) % section.save_every == 0 and step + 1 < section.steps:
                work.save(step + 1)
    if work.held_out:
        work.sync(section.steps)
        work.evaluate(section.steps)
    work.publish()
    tail = work.log[-10:]
    return {
        "questions": len(work.questions),
        "steps": section.steps,
        "outputs": section.steps * section.questions_per_step * section.group_size,
        "last_accuracy": round(fmean(row["accuracy"] for row in tail), 6),
    }


if __name__ == "__main__":
    run_stage("rl", RlSection, run)
