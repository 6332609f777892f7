"""Evaluation during training: greedy accuracy on held-out questions, and Maj@K and Pass@K of samples."""

from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import Any

import torch.distributed as dist

from pipeline.config.rl import RlSection
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.metrics import accuracy, at_k, right_and_finished
from pipeline.grader.answers import Verdict
from pipeline.protocol.watchdog import enter
from pipeline.rl.rollout import Question, sample_seed


def evaluate(
    generator: Any, tokenizer: Any, questions: Sequence[Question], section: RlSection, shared: int = 1
) -> dict[str, Any]:
    """Scores of the sampler's current weights: accuracy with its interval, of several files that of each, too
    (`accuracy_of`), mean length, maj@k, pass@k.

    Samplers share the questions; the `shared` ranks of a sampler ask the same ones. All ranks must call it,
    and all get the result. A question has the same seeds in every evaluation, so two evaluations differ only
    by the weights.
    """
    enter("evaluation")
    items = [question.item for question in questions]
    ask = partial(_asked, generator, tokenizer, questions, section, shared)
    rows = ask(n=1, temperature=0.0)
    lengths = [length for row in rows for _, length, _ in row]
    rights = [float(row[0][0].right) for row in rows]
    found = accuracy(rights) | {"length": sum(lengths) / len(lengths)}
    found["right_and_finished"] = right_and_finished(rights, [row[0][2] for row in rows])
    by_file: dict[str, list[float]] = {}
    for question, right in zip(questions, rights, strict=True):
        by_file.setdefault(question.file, []).append(right)
    if len(by_file) > 1:
        found["accuracy_of"] = {file: fmean(values) for file, values in by_file.items()}
    if section.evaluation_samples:
        number, temperature = section.evaluation_samples, section.evaluation_temperature
        drawn = ask(n=number, temperature=temperature)
        ks = [2**power for power in range(number.bit_length())]
        found |= at_k(items, [[verdict for verdict, _, _ in row] for row in drawn], ks)
    return found


def _asked(
    generator: Any,
    tokenizer: Any,
    questions: Sequence[Question],
    section: RlSection,
    shared: int,
    *,
    n: int,
    temperature: float,
) -> list[list[tuple[Verdict, int, bool]]]:
    """(verdict, tokens, whether finished) of `n` outputs for every question, in order."""
    sampler, samplers = dist.get_rank() // shared, dist.get_world_size() // shared
    mine = questions[sampler::samplers]
    groups = generator.generate(
        [question.prompt for question in mine],
        n=n,
        temperature=temperature,
        max_tokens=section.max_tokens,
        seeds=[sample_seed(section.seed, -1, question.item.id) for question in mine],
    )
    flat = [sample for group in groups for sample in group]
    items: list[Item] = [question.item for question in mine for _ in range(n)]
    texts = tokenizer.batch_decode([sample.token_ids for sample in flat], skip_special_tokens=True)
    verdicts = [item.grade(text) for item, text in zip(items, texts, strict=True)]
    found = [
        (verdict, len(sample.token_ids), sample.finish_reason == "stop")
        for verdict, sample in zip(verdicts, flat, strict=True)
    ]
    rows = [found[start : start + n] for start in range(0, len(found), n)]
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, rows)
    return [parts[index % samplers * shared][index // samplers] for index in range(len(questions))]
