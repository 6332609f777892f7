"""Reward model (paper 4.2): label the policy's solutions, train on the labels, measure on held-out questions.

Inputs: `parent` (or `init`), a language model whose trunk is trained, or an earlier reward model whose
training continues (4.1.4) with a replay of the labels in `history`; `policy`, whose solutions are labelled;
optionally `completer`; `prompts`, questions with answers. Output: the reward model's folder, `labels.jsonl`,
`replay.jsonl`, `metrics.json`, and `metrics.jsonl` with a line per step.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pipeline.common.environment  # noqa: F401  # isort: skip  # before torch and deepspeed

import torch
import torch.distributed as dist

from pipeline.common.clock import Clock
from pipeline.common.ending import interrupted, received
from pipeline.common.manifest import write_json
from pipeline.common.model import context_length, load_tokenizer, weights_in_memory
from pipeline.common.progress import Progress
from pipeline.common.rows import saved_batch
from pipeline.common.stage import Counts, InputError, Stage, run_stage
from pipeline.common.training import (
    build_engine,
    prepare,
    rank_device,
    settings_from,
    start_process_group,
    use_threads,
)
from pipeline.common.watchdog import WAITING, enter, reached
from pipeline.config.evaluate import BenchmarkNode
from pipeline.config.reward import RewardSection
from pipeline.evaluate.benchmarks import Item, load
from pipeline.evaluate.prompts import chat_prompt
from pipeline.reward.labels import Labeller, Solution, SolutionSampler
from pipeline.reward.measure import measure
from pipeline.reward.model import (
    SETTINGS,
    RewardModel,
    load_head,
    load_trunk,
    save_reward_model,
    score_places,
)
from pipeline.reward.replay import read_labels, replayed
from pipeline.reward.train import StepExample, make_examples, train


def load_questions(stage: Stage[RewardSection]) -> list[Item]:
    """The questions of `prompts`, at most as many as the section asks for."""
    sources = stage.inputs.get("prompts", [])
    return load("reward.prompts", BenchmarkNode(source=sources, limit=stage.config.questions), sources)


def make_sampler(stage: Stage[RewardSection], model: str, longest: int, engines: int) -> SolutionSampler:
    """A sampler whose engine has room for a prompt of `longest` tokens and two solutions.

    Keep it until the process ends, because shutting down vLLM destroys the process group. `engines` samplers
    share vLLM's GPU memory.
    """
    section = stage.config
    context = min(context_length(model), longest + 2 * section.max_tokens)

    def start() -> Any:
        from pipeline.common.generation import Generator

        dtype = "bfloat16" if section.precision == "bf16" else "float32"
        memory = float(stage.launch.get("gpu_memory", 0.4)) / engines
        return Generator(model, dtype=dtype, max_model_len=context, seed=section.seed, gpu_memory=memory)

    return SolutionSampler(start, load_tokenizer(model), section, context)


def make_labeller(
    stage: Stage[RewardSection], policy: str, items: Sequence[Item], prompts: Sequence[list[int]]
) -> Labeller:
    """A labeller whose steps are completed by the policy, or by the `completer` if one is given."""
    section = stage.config
    if not stage.inputs.get("completer"):
        sampler = make_sampler(stage, policy, max(map(len, prompts)), engines=1)
        own = {item.id: prompt for item, prompt in zip(items, prompts, strict=True)}
        return Labeller(section, sampler, sampler, own)
    completer = stage.source("completer")
    tokenizer = load_tokenizer(completer)
    theirs = {item.id: chat_prompt(tokenizer, item, suffix_of(item, section), completer) for item in items}
    return Labeller(
        section,
        make_sampler(stage, policy, max(map(len, prompts)), engines=2),
        make_sampler(stage, completer, max(map(len, theirs.values())), engines=2),
        theirs,
    )


def suffix_of(item: Item, section: RewardSection) -> str:
    """The instruction appended to a question."""
    return section.suffix.get(item.lang, "")


def label_all(
    stage: Stage[RewardSection], labeller: Labeller, items: Sequence[Item], prompts: Sequence[list[int]]
) -> list[Solution]:
    """Labelled solutions of all questions; each rank labels a share of the batches and reads the others'."""
    section = stage.config
    keys = ("solutions", "completions", "temperature", "top_p", "max_tokens", "split", "precision", "seed")
    settings = {name: getattr(section, name) for name in keys}

    def batch(part: slice) -> list[dict[str, Any]]:
        def make() -> list[dict[str, Any]]:
            return [asdict(solution) for solution in labeller.label(items[part], prompts[part])]

        asked = {"items": [asdict(item) for item in items[part]], "prompts": list(prompts[part])}
        return saved_batch(stage.work / "labels", f"{part.start:06d}", settings | asked, make)

    size = section.label_batch
    parts = [slice(start, start + size) for start in range(0, len(items), size)]
    with Progress("label", len(items), unit="question") as bar:
        for done, part in enumerate(parts[dist.get_rank() :: dist.get_world_size()]):
            if received():
                break
            reached(False, done)
            enter("labels")
            batch(part)
            bar.update(len(items[part]))
    for name, count in labeller.counters().items():
        stage.counter(name, count)
    enter(WAITING)
    if signal := Clock(rank_device(), math.inf).ask()[1]:  # all ranks wait here for the last one
        raise interrupted(signal, f"reward {stage.instance}: labelled so far")
    return [Solution(**row) for part in parts for row in batch(part)]


def is_held_out(question: str, share: float) -> bool:
    """Whether a question is held out: its text alone decides, so that no round trains on it."""
    digest = hashlib.sha256(f"held-out/{question}".encode()).digest()
    return int.from_bytes(digest[:4]) < share * 2**32


def write_labels(path: Path, solutions: Sequence[Solution]) -> None:
    """Write one JSON line per solution."""
    with path.open("w") as file:
        file.writelines(json.dumps(asdict(solution), ensure_ascii=False) + "\n" for solution in solutions)


def check_tokenizer(policy: str, parent: str) -> None:
    """Raise InputError unless both models have the same tokenizer: step labels refer to tokens."""
    if load_tokenizer(policy).get_vocab() != load_tokenizer(parent).get_vocab():
        raise InputError(f"{policy}: its tokenizer is not that of {parent}; step labels refer to tokens")


def check_continues(parent: str, section: RewardSection) -> bool:
    """Whether `parent` is a reward model. Raises InputError if it was trained for another target or split."""
    if not (Path(parent) / SETTINGS).exists():
        return False
    settings = json.loads((Path(parent) / SETTINGS).read_text())
    for name in ("target", "split"):
        if settings[name] != getattr(section, name):
            raise InputError(
                f"reward.{name} is {getattr(section, name)}, but {parent}, which training continues, has "
                f"{settings[name]}"
            )
    return True


def draw_replay(stage: Stage[RewardSection], new: Sequence[Solution]) -> list[Solution]:
    """Earlier rounds' labels to train on beside `new`, without held-out questions and too long solutions."""
    section = stage.config
    pairs = make_examples(read_labels(stage.inputs.get("history", [])), section)
    history = [solution for solution, _ in pairs if not is_held_out(solution.question, section.held_out)]
    return replayed(new, history, section.replay, section.seed)


def run(stage: Stage[RewardSection]) -> Counts:
    """Label, train, measure, export; returns counts of solutions and steps."""
    section = stage.config
    use_threads(stage.launch)
    parent, policy = stage.source("parent", "init"), stage.source("policy")
    start_process_group()
    check_tokenizer(policy, parent)
    continues = check_continues(parent, section)
    items, asker = load_questions(stage), load_tokenizer(policy)
    prompts = [chat_prompt(asker, item, suffix_of(item, section), policy) for item in items]
    # The labeller must live until the end of the run (see `make_sampler`).
    labeller = make_labeller(stage, policy, items, prompts)
    solutions = label_all(stage, labeller, items, prompts)

    pairs = list(make_examples(solutions, section))
    held_out = [pair for pair in pairs if is_held_out(pair[0].question, section.held_out)]
    new = [solution for solution, _ in pairs if not is_held_out(solution.question, section.held_out)]
    if not new or not held_out:
        raise InputError(
            f"reward {stage.instance}: {len(new)} solutions to train on, {len(held_out)} to measure on, "
            f"{len(solutions) - len(pairs)} longer than reward.context; raise questions, held_out or context"
        )
    replay = draw_replay(stage, new) if continues else []

    torch.manual_seed(section.seed)
    model = RewardModel(load_trunk(parent, section.precision))
    if continues:
        load_head(model, Path(parent))
    prepare(model.trunk, stage.launch)
    engine = build_engine(model, settings_from(section, stage.launch))
    before = measured(engine, held_out) if continues else {}
    train(stage, engine, [example for _, example in make_examples([*new, *replay], section)])
    metrics = measured(engine, held_out) | ({"before": before} if continues else {})
    export(stage, engine, load_tokenizer(parent), metrics)
    if stage.is_main:
        write_labels(stage.partial / "labels.jsonl", solutions)
        write_labels(stage.partial / "replay.jsonl", replay)
    return {
        "questions": len(items),
        "solutions": len(solutions),
        "too_long": len(solutions) - len(pairs),
        "steps": sum(len(solution.steps) for solution in solutions),
        "training_solutions": len(new) + len(replay),
        "replayed_solutions": len(replay),
        "held_out_solutions": len(held_out),
    }


def measured(engine: Any, held_out: Sequence[tuple[Solution, StepExample]]) -> dict[str, Any]:
    """Measures of the model on held-out solutions; all ranks must call it."""
    enter("evaluation")
    engine.module.eval()
    examples = [example for _, example in held_out]
    scores = score_places(
        engine, [example.tokens for example in examples], [example.places for example in examples]
    )
    engine.module.train()
    return measure([solution for solution, _ in held_out], [example.targets for example in examples], scores)


def export(stage: Stage[RewardSection], engine: Any, tokenizer: Any, metrics: dict[str, Any]) -> None:
    """Write the model's folder and its metrics; all ranks must call it."""
    enter("export")
    state = weights_in_memory(engine.module)
    if stage.is_main:
        write_json(stage.partial / "metrics.json", metrics)
        names = ("split", "target", "labels", "suffix")
        settings = {name: getattr(stage.config, name) for name in names}
        save_reward_model(stage.partial, engine.module, state, tokenizer, settings)


if __name__ == "__main__":
    run_stage("reward", RewardSection, run)
