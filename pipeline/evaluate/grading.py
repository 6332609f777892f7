"""Grading many answers: cheap comparisons at once, symbolic ones on as many cores as there are.

The symbolic comparison runs in a process per thread (see `symbolic`), so threads here are only waiting rooms.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache

from pipeline.common.progress import Progress
from pipeline.evaluate.answers import NEEDS_SYMBOLS, Verdict, compare, extract
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.metrics import answer_classes, maj_at_k

Job = tuple[Item, str | None]  # the question, and a final answer or None


def _cores() -> int:
    return len(os.sched_getaffinity(0))


@cache
def _pool() -> ThreadPoolExecutor:
    """One pool for all calls: its threads keep their symbolic processes, which take a second to start."""
    return ThreadPoolExecutor(_cores())


def _compare(job: Job, symbols: bool) -> Verdict:
    item, answer = job
    if answer is None:
        return Verdict("wrong", None, "no answer")
    return compare(item.answer, answer, question=item.question, choices=item.choices, symbols=symbols)


def grade_answers(jobs: Sequence[Job], label: str | None = "grade") -> list[Verdict]:
    """Verdicts on final answers, in order; `label` heads the progress shown, None shows none."""
    verdicts = [_compare(job, symbols=False) for job in jobs]
    open_jobs = [index for index, verdict in enumerate(verdicts) if verdict.reason == NEEDS_SYMBOLS]
    if open_jobs:
        with Progress(label, len(open_jobs), unit="answer") if label else nullcontext() as bar:
            found = _pool().map(lambda index: _compare(jobs[index], symbols=True), open_jobs)
            for index, verdict in zip(open_jobs, found, strict=True):
                verdicts[index] = verdict
                if bar:
                    bar.update()
    return verdicts


def grade_responses(
    items: Sequence[Item], responses: Sequence[str], label: str | None = "grade"
) -> list[Verdict]:
    """Verdicts on whole responses, in order."""
    return grade_answers([(item, extract(text)) for item, text in zip(items, responses, strict=True)], label)


def majority(item: Item, verdicts: Sequence[Verdict], ks: Sequence[int]) -> dict[int, float]:
    """Maj@K of one question's samples: right answers are one class, others are compared among themselves."""

    def same(first: str, second: str) -> bool:
        return compare(first, second, question=item.question, choices=item.choices).right

    right = sum(verdict.right for verdict in verdicts)
    others = [verdict.extracted for verdict in verdicts if not verdict.right]
    classes = [number for number in answer_classes(others, same) if number is not None]
    sizes = [classes.count(number) for number in sorted(set(classes))]
    return maj_at_k(right, sizes, others.count(None), ks)


def majorities(
    items: Sequence[Item], verdicts: Sequence[Sequence[Verdict]], ks: Sequence[int]
) -> list[dict[int, float]]:
    """`majority` of many questions, on all cores."""
    return list(_pool().map(lambda pair: majority(*pair, ks), zip(items, verdicts, strict=True)))
