"""Reward model (paper 4.2): label the policy's solutions, train on the labels, measure on held-out questions.

Inputs: `parent` (or `init`), the model whose trunk is trained, or an earlier reward model that is continued;
`policy`, whose solutions are labelled; `prompts`, questions with answers. Output: the reward model's folder,
`labels.jsonl`, `metrics.json`, and `metrics.jsonl` with a line per step.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pipeline.common.environment  # noqa: F401  # isort: skip  # before torch and deepspeed

import torch
import torch.distributed as dist

from pipeline.common.batches import saved_batch
from pipeline.common.manifest import write_json
from pipeline.common.model import context_length, load_tokenizer
from pipeline.common.progress import Progress
from pipeline.common.stage import InputError, Stage, run_stage
from pipeline.common.training import start_process_group
from pipeline.config.evaluate import BenchmarkNode
from pipeline.config.reward import RewardSection
from pipeline.evaluate.benchmarks import Item, load
from pipeline.evaluate.prompts import chat_prompt
from pipeline.reward.labels import Labeller, Solution
from pipeline.reward.measure import measure
from pipeline.reward.model import (
    SETTINGS,
    RewardModel,
    load_head,
    load_trunk,
    save_reward_model,
    score_places,
)
from pipeline.reward.train import Example, full_weights, make_examples, train


def source(stage: Stage[RewardSection], *names: str) -> str:
    """The folder or hub id given under one of the input `names`."""
    found = [path for name in names for path in stage.inputs.get(name, [])]
    if len(found) != 1:
        raise InputError(f"--input {' or '.join(names)}: expected one model, got {len(found)}")
    return found[0]


def load_questions(stage: Stage[RewardSection]) -> list[Item]:
    """The questions, first ones only if the section says so."""
    sources = stage.inputs.get("prompts", [])
    return load("reward.prompts", BenchmarkNode(source=sources, limit=stage.config.questions), sources)


def make_labeller(stage: Stage[RewardSection], policy: str, prompts: Sequence[list[int]]) -> Labeller:
    """A labeller whose engine is as long as prompts and solutions need.

    It must live as long as the process group: the end of a vLLM engine is the end of the group.
    """
    section = stage.config
    context = min(context_length(policy), max(map(len, prompts)) + 2 * section.max_tokens)

    def start() -> Any:
        from pipeline.common.generation import Generator

        dtype = "bfloat16" if section.precision == "bf16" else "float32"
        memory = float(stage.launch.get("gpu_memory", 0.4))
        return Generator(policy, dtype=dtype, max_model_len=context, seed=section.seed, gpu_memory=memory)

    return Labeller(start, load_tokenizer(policy), section, context)


def label_all(
    stage: Stage[RewardSection], labeller: Labeller, items: Sequence[Item], prompts: Sequence[list[int]]
) -> list[Solution]:
    """Labelled solutions of all questions; ranks share the batches and read each other's."""
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
        for part in parts[dist.get_rank() :: dist.get_world_size()]:
            batch(part)
            bar.update(len(items[part]))
    for name, count in labeller.counters.items():
        stage.counter(name, count)
    dist.barrier()
    return [Solution(**row) for part in parts for row in batch(part)]


def is_held_out(question: str, share: float, seed: int) -> bool:
    """Whether a question is kept for measuring: a property of its id and the seed."""
    digest = hashlib.sha256(f"{seed}/held-out/{question}".encode()).digest()
    return int.from_bytes(digest[:4]) < share * 2**32


def write_labels(path: Path, solutions: Sequence[Solution]) -> None:
    """`labels.jsonl`: a line per solution."""
    with path.open("w") as file:
        file.writelines(json.dumps(asdict(solution), ensure_ascii=False) + "\n" for solution in solutions)


def run(stage: Stage[RewardSection]) -> dict[str, int | float | str]:
    """Label, train, measure, export; returns counts of solutions and steps."""
    section = stage.config
    parent, policy = source(stage, "parent", "init"), source(stage, "policy")
    start_process_group()
    tokenizer, items = load_tokenizer(parent), load_questions(stage)
    asker = load_tokenizer(policy)
    if asker.get_vocab() != tokenizer.get_vocab():
        raise InputError(f"{policy}: its tokenizer is not that of {parent}; step labels are tied to tokens")
    prompts = [chat_prompt(asker, item, section.suffix.get(item.lang, ""), policy) for item in items]
    labeller = make_labeller(stage, policy, prompts)
    solutions = label_all(stage, labeller, items, prompts)

    by_id = {item.id: prompt for item, prompt in zip(items, prompts, strict=True)}
    pairs = list(make_examples(solutions, by_id, section))
    kept = [is_held_out(solution.id, section.held_out, section.seed) for solution, _ in pairs]
    held_out = [pair for pair, out in zip(pairs, kept, strict=True) if out]
    training = [example for (_, example), out in zip(pairs, kept, strict=True) if not out]
    if not training or not held_out:
        raise InputError("reward: too few solutions to train and to measure; raise questions or held_out")

    torch.manual_seed(section.seed)
    model = RewardModel(load_trunk(parent, section.precision))
    if (Path(parent) / SETTINGS).exists():
        load_head(model, Path(parent))
    engine = train(stage, model, training)
    export(stage, engine, tokenizer, held_out)
    if stage.is_main:
        write_labels(stage.partial / "labels.jsonl", solutions)
    return {
        "questions": len(items),
        "solutions": len(solutions),
        "too_long": len(solutions) - len(pairs),
        "steps": sum(len(solution.steps) for solution in solutions),
        "held_out_solutions": len(held_out),
    }


def export(
    stage: Stage[RewardSection], engine: Any, tokenizer: Any, held_out: Sequence[tuple[Solution, Example]]
) -> None:
    """Measure on held-out solutions and write the folder; all ranks must call it."""
    section, examples = stage.config, [example for _, example in held_out]
    engine.module.eval()
    scores = score_places(
        engine, [example.tokens for example in examples], [example.places for example in examples]
    )
    state = full_weights(engine)
    if stage.is_main:
        targets = [example.targets for example in examples]
        write_json(
            stage.partial / "metrics.json", measure([solution for solution, _ in held_out], targets, scores)
        )
        names = ("split", "target", "labels", "suffix")
        settings = {name: getattr(section, name) for name in names}
        save_reward_model(stage.partial, engine.module, state, tokenizer, settings)


if __name__ == "__main__":
    run_stage("reward", RewardSection, run)
