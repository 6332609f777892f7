"""Grading many answers: equal questions and answers once, and votes grouped by equivalence.

A comparison costs well under a millisecond and is bounded, so everything runs in the calling thread; what
repeats (64 samples of one question) is remembered.
"""

from collections.abc import Sequence
from contextlib import nullcontext

from pipeline.common.progress import Progress
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.metrics import answer_classes, maj_at_k
from pipeline.grader.answers import Verdict, compare, final_answer, numeric_value

Job = tuple[Item, str | None]  # the question, and a final answer or None
NO_ANSWER = Verdict("wrong", None, "no answer")
MIN_PROGRESS = 500  # answers from which on progress is shown


def grade_answers(jobs: Sequence[Job], label: str | None = "grade") -> list[Verdict]:
    """Verdicts on final answers, in order; `label` heads the progress shown, None shows none."""
    known: dict[tuple[str, str, str], Verdict] = {}
    verdicts = []
    shown = label is not None and len(jobs) >= MIN_PROGRESS
    with Progress(label, len(jobs), unit="answer") if shown else nullcontext() as bar:
        for item, answer in jobs:
            if answer is None:
                verdicts.append(NO_ANSWER)
            else:
                key = item.question, item.answer, answer
                if key not in known:
                    known[key] = compare(item.answer, answer, question=item.question, choices=item.choices)
                verdicts.append(known[key])
            if bar:
                bar.update()
    return verdicts


def grade_responses(
    items: Sequence[Item], responses: Sequence[str], label: str | None = "grade"
) -> list[Verdict]:
    """Verdicts on whole responses, in order."""
    pairs = zip(items, responses, strict=True)
    return grade_answers(
        [(item, final_answer(item.answer, text, item.choices)) for item, text in pairs], label
    )


def majority(item: Item, verdicts: Sequence[Verdict], ks: Sequence[int]) -> dict[int, float]:
    """Maj@K of one question's samples: right answers are one class, others are compared among themselves."""

    def same(first: str, second: str) -> bool:
        values = numeric_value(first), numeric_value(second)
        if None not in values and abs(values[0] - values[1]) > 1e-6 * max(map(abs, values)):
            return first.rstrip("%\\ ") == second.rstrip("%\\ ")
        return compare(first, second, question=item.question, choices=item.choices).right

    right = sum(verdict.right for verdict in verdicts)
    others = [verdict.extracted for verdict in verdicts if not verdict.right]
    classes = [number for number in answer_classes(others, same) if number is not None]
    sizes = [classes.count(number) for number in sorted(set(classes))]
    return maj_at_k(right, sizes, others.count(None), ks)


def majorities(
    items: Sequence[Item], verdicts: Sequence[Sequence[Verdict]], ks: Sequence[int]
) -> list[dict[int, float]]:
    """`majority` of many questions."""
    return [majority(item, row, ks) for item, row in zip(items, verdicts, strict=True)]
