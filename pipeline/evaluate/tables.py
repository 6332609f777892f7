"""The scores of one task: accuracy and votes, by subject and level, without leaked questions, and rates."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.sampling import PROMPT_TOO_LONG, Answer
from pipeline.evaluate.scores import accuracy, at_k
from pipeline.grader.answers import Verdict


def by_label(items: Sequence[Item], rights: Sequence[float]) -> dict[str, dict[str, dict[str, Any]]]:
    """Accuracy with its interval by subject and by level, for the labels that a benchmark has."""
    found: dict[str, dict[str, list[float]]] = {}
    for item, right in zip(items, rights, strict=True):
        for label, value in item.labels.items():
            found.setdefault(label, {}).setdefault(str(value), []).append(right)
    return {
        label: {value: accuracy(groups[value]) for value in sorted(groups)} for label, groups in found.items()
    }


def contamination(items: Sequence[Item], rights: Sequence[float], flagged: set[str]) -> dict[str, Any]:
    """How many questions stand in the collected pages, and accuracy on those, and on the others."""
    parts = {"leaked": [], "clean": []}
    for item, right in zip(items, rights, strict=True):
        parts["leaked" if item.id in flagged else "clean"].append(right)
    return {"items": len(parts["leaked"])} | {
        name: accuracy(values) for name, values in parts.items() if values
    }


def task_scores(
    items: Sequence[Item],
    answers: Sequence[Answer],
    verdicts: Sequence[Verdict],
    samples: Sequence[Sequence[Verdict]],
    ks: Sequence[int],
    flagged: set[str] | None,
) -> dict[str, Any]:
    """All numbers of `scores.json` for one task; rates are counts of greedy answers."""
    rights = [float(verdict.right) for verdict in verdicts]
    programs = [answer.status for answer in answers if answer.status is not None]
    return {
        **accuracy(rights),
        **at_k(items, samples, ks),
        "by": by_label(items, rights),
        **({} if flagged is None else {"contamination": contamination(items, rights, flagged)}),
        "undecided": sum(verdict.verdict == "undecided" for verdict in verdicts),
        "no_answer": sum(verdict.extracted is None for verdict in verdicts),
        "truncated": sum(answer.finish_reason == "length" for answer in answers),
        "prompt_too_long": sum(answer.finish_reason == PROMPT_TOO_LONG for answer in answers),
        **({"programs": len(programs), "failed": len(programs) - programs.count("ok")} if programs else {}),
        "tokens": fmean(answer.tokens for answer in answers),
    }
