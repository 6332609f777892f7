"""Reward model (paper 4.2): label the policy's solutions, train on the labels, measure on held-out questions.

Inputs: `parent` (or `init`), a language model whose trunk is trained, or an earlier reward model whose
training continues (4.1.4) with a replay of the labels in `history`; `policy`, whose solutions are labelled;
`prompts`, questions with answers. Output: the reward model's folder, `labels.jsonl`, `replay.jsonl`,
`metrics.json`, and `metrics.jsonl` with a line per step.
"""

import json
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pipeline.training.environment  # noqa: F401  # isort: skip  # before torch and deepspeed

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore
from torch.distributed.distributed_c10d import _get_default_store
from torch.utils.data import ConcatDataset

from pipeline.config.evaluate import BenchmarkNode
from pipeline.config.reward import LABELLING_SHARE, RewardSection
from pipeline.core.folders import wait_for
from pipeline.core.launch.queue import Batch, Queue, make_together
from pipeline.core.manifest import write_json
from pipeline.core.stage import Counts, InputError, Stage, label, run_stage
from pipeline.core.watchdog import beat, enter
from pipeline.evaluate.benchmarks import Item, load
from pipeline.evaluate.prompts import chat_prompt
from pipeline.reward.labelled import Solutions, draw_earlier, read_labels, write_solutions
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
from pipeline.reward.train import example_of, train
from pipeline.training.engine import (
    build_engine,
    prepare,
    settings_from,
    split_weights,
    start_process_group,
    use_threads,
)
from pipeline.training.folder import context_length
from pipeline.training.model import weights_in_memory, whole_parameters
from pipeline.training.tokenizer import load_tokenizer

LABELS, REPLAY = "labels.jsonl", "replay.jsonl"
SCORED_AT_ONCE = 4096  # solutions in memory while the model is measured


def load_questions(stage: Stage[RewardSection]) -> list[Item]:
    """Load the questions of `prompts`, at most as many as the section asks for."""
    sources = stage.inputs.get("prompts", [])
    section = stage.config
    node = BenchmarkNode(source=sources, limit=section.questions, fields=section.fields)
    return load("reward.prompts", node, sources)


def make_labeller(stage: Stage[RewardSection], policy: str, prompts: Sequence[Sequence[int]]) -> Labeller:
    """Make a labeller whose engine has room for the longest prompt and two solutions.

    Keep it until the process ends, because shutting down vLLM destroys the process group. The engine takes
    the GPU, which is empty before training, and sleeps then.
    """
    section = stage.config
    context = min(context_length(policy), max(map(len, prompts)) + 2 * section.max_tokens)

    def start() -> Any:
        from pipeline.training.generation import Generator

        dtype = "bfloat16" if section.precision == "bf16" else "float32"
        limits = {"dtype": dtype, "max_model_len": context, "gpu_memory": LABELLING_SHARE, "sleep": True}
        return Generator(policy, seed=section.seed, **limits)

    sampler = SolutionSampler(start, load_tokenizer(policy), section, context, stage.counters)
    return Labeller(section, sampler)


def prompts_of(items: Sequence[Item], tokenizer: Any, section: RewardSection, model: str) -> list[array]:
    """Return token ids of the questions, in four bytes each: every rank has all of them."""
    suffix = section.suffix
    return [array("i", chat_prompt(tokenizer, item, suffix.get(item.lang, ""), model)) for item in items]


def label_all(
    stage: Stage[RewardSection],
    queue: Queue,
    labeller: Labeller,
    items: Sequence[Item],
    prompts: Sequence[Sequence[int]],
) -> Solutions:
    """Label the solutions of all questions and write them to `labels.jsonl`.

    Ranks share out batches of questions; rank 0 puts the batches together. All ranks call it.
    """
    section = stage.config
    keys = ("solutions", "completions", "max_tokens", "precision", "seed")
    decisive = {name: getattr(section, name) for name in (*keys, "target")}

    def batch(part: slice) -> Batch:
        def asked() -> dict[str, Any]:
            return {
                "items": [asdict(item) for item in items[part]],
                "prompts": list(map(list, prompts[part])),
            }

        def make() -> list[dict[str, Any]]:
            enter("labels")
            return [vars(solution) for solution in labeller.label(items[part], asked()["prompts"])]

        return Batch(stage.work / "labels", f"{part.start:06d}", lambda: decisive | asked(), make)

    size = section.label_batch
    batches = [batch(slice(start, start + size)) for start in range(0, len(items), size)]
    make_together(queue, f"{label(stage)}: labels", batches, labeller.start)
    solutions = (Solution(**row) for batch in batches for row in batch.rows())
    return from_rank_0(queue, lambda: write_solutions(stage.partial / LABELS, solutions))


def queue_of_group(counters: Counter[str]) -> Queue:
    """Return the queue of the ranks of the process group."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    store = PrefixStore("labels", _get_default_store()) if ranks > 1 else None
    return Queue(store, rank, ranks, counters)


def from_rank_0(queue: Queue, make: Callable[[], Solutions]) -> Solutions:
    """Return what rank 0 makes, on all ranks, which may wait for long and then see its files."""
    solutions = queue.on_rank_0(make)
    if queue.ranks > 1:
        found = [solutions if solutions is None else (solutions.files, solutions.table)]
        dist.broadcast_object_list(found, 0)
        solutions = Solutions(*found[0])
        for file in solutions.files:
            wait_for(Path(file))
    return solutions


def check_tokenizer(policy: str, parent: str) -> None:
    """Raise InputError unless both models have the same tokenizer: step labels refer to tokens."""
    if load_tokenizer(policy).get_vocab() != load_tokenizer(parent).get_vocab():
        raise InputError(f"{policy}: its tokenizer is not that of {parent}; step labels refer to tokens")


def check_continues(parent: str, section: RewardSection) -> bool:
    """Whether `parent` is a reward model. Raises InputError if it was trained for another target."""
    if not (Path(parent) / SETTINGS).exists():
        return False
    settings = json.loads((Path(parent) / SETTINGS).read_text())
    if settings["target"] != section.target:
        raise InputError(
            f"reward.target is {section.target}, but {parent}, which training continues, has "
            f"{settings['target']}"
        )
    return True


def draw_replay(stage: Stage[RewardSection], new: Solutions) -> Solutions:
    """Draw earlier rounds' labels to train on beside `new`, and write them to `replay.jsonl`; none is of
    a held-out question, none too long.
    """
    section = stage.config
    history = read_labels(stage.inputs.get("history", []), section.seed)
    usable = (history.table["length"] <= section.context) & ~history.held_out(section.held_out)
    return write_solutions(stage.partial / REPLAY, draw_earlier(new, history[usable], section.replay))


def run(stage: Stage[RewardSection]) -> Counts:
    """Label, train, measure, export; returns counts of solutions and steps."""
    section = stage.config
    use_threads(stage.launch)
    parent, policy = stage.source("parent", "init"), stage.source("policy")
    start_process_group()
    check_tokenizer(policy, parent)
    continues = check_continues(parent, section)
    items = load_questions(stage)
    prompts = prompts_of(items, load_tokenizer(policy), section, policy)
    # The labeller must live until the end of the run (see `make_labeller`).
    labeller = make_labeller(stage, policy, prompts)
    queue = queue_of_group(stage.counters)
    solutions = label_all(stage, queue, labeller, items, prompts)
    labeller.policy.release()

    fitting = solutions[solutions.table["length"] <= section.context]
    apart = fitting.held_out(section.held_out)
    new, held_out = fitting[~apart], fitting[apart]
    if not new or not held_out:
        raise InputError(
            f"reward {stage.instance}: {len(new)} solutions to train on, {len(held_out)} to measure on, "
            f"{len(solutions) - len(fitting)} longer than reward.context; raise questions, held_out or "
            "context"
        )
    replay = from_rank_0(queue, lambda: draw_replay(stage, new)) if continues else new[:0]
    if stage.is_main:
        (stage.partial / REPLAY).touch()

    torch.manual_seed(section.seed)
    model = RewardModel(load_trunk(parent, section.precision, split_weights(stage.launch)))
    if continues:
        load_head(model, Path(parent))
    prepare(model.trunk, stage.launch)
    engine = build_engine(model, settings_from(section, stage.launch))
    before = measure_held_out(engine, held_out, section) if continues else {}
    train(stage, engine, ConcatDataset([new, replay]))
    stage.checks["packing"] = model.verdict
    metrics = measure_held_out(engine, held_out, section) | ({"before": before} if continues else {})
    export(stage, engine, load_tokenizer(parent), metrics)
    return {
        "questions": len(items),
        "solutions": len(solutions),
        "too_long": len(solutions) - len(fitting),
        "steps": int(solutions.table["steps"].sum()),
        "training_solutions": len(new) + len(replay),
        "replayed_solutions": len(replay),
        "held_out_solutions": len(held_out),
    }


def measure_held_out(engine: Any, held_out: Solutions, section: RewardSection) -> dict[str, Any]:
    """Measure the model on held-out solutions, on rank 0; all ranks must call it and score a share."""
    enter("evaluation")
    engine.module.eval()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mine, rows = held_out[rank::ranks], []
    for start in range(0, -(-len(held_out) // ranks), SCORED_AT_ONCE):
        chosen = list(mine[start : start + SCORED_AT_ONCE])
        examples = [example_of(solution, section) for solution in chosen]
        tokens, places = ([getattr(example, name) for example in examples] for name in ("tokens", "places"))
        scores = score_places(engine, tokens, places, together=ranks > 1)
        beat()
        empty = {"prompt": [], "tokens": [], "steps": [], "ends": [], "hard": [], "soft": []}
        small = [replace(solution, **empty) for solution in chosen]
        rows += zip(small, [example.targets for example in examples], scores, strict=True)
    engine.module.train()
    parts: list[Any] = [None] * ranks
    if ranks > 1:
        dist.gather_object(rows, parts if rank == 0 else None)
    else:
        parts = [rows]
    if rank:
        return {}
    in_order = [parts[index % ranks][index // ranks] for index in range(len(held_out))]
    return measure(*zip(*in_order, strict=True))


def export(stage: Stage[RewardSection], engine: Any, tokenizer: Any, metrics: dict[str, Any]) -> None:
    """Write the model's folder and its metrics; all ranks must call it."""
    enter("export")
    state = weights_in_memory(whole_parameters(engine.module))
    if stage.is_main:
        write_json(stage.partial / "metrics.json", metrics)
        names = ("target", "labels", "suffix")
        settings = {name: getattr(stage.config, name) for name in names}
        save_reward_model(stage.partial, engine.module, state, tokenizer, settings)


if __name__ == "__main__":
    run_stage("reward", RewardSection, run)
