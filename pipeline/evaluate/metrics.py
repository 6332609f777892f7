"""From verdicts to numbers: accuracy with its interval, Maj@K, unbiased Pass@K.

Maj@K is exact: the expectation over all subsets of K of a question's n samples, with ties broken at random,
so that the order of samples has no influence and Maj@1 equals Pass@1 (paper section 12). Equivalent answers
share their votes; samples without an answer do not vote.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import comb
from statistics import fmean
from typing import Any

import numpy as np
from mathverdict.answers import Verdict, compare, numeric_value

from pipeline.evaluate.benchmarks import Item
from pipeline.intervals import mean_interval

UNFINISHED = 0.1  # of the right answers: from this share on it is told that they were cut off


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Unbiased Pass@K: 1 - C(n-c, k) / C(n, k), the chance that k of n samples hold a right one."""
    if k > samples:
        raise ValueError(f"Pass@{k} needs at least {k} samples, got {samples}")
    return 1.0 - comb(samples - right, k) / comb(samples, k)


def answer_classes(answers: Sequence[str | None], same: Callable[[str, str], bool]) -> list[int | None]:
    """Return the number of the equivalence class of each answer, in order of first occurrence; None for no
    answer.
    """
    representatives: list[str] = []
    known: dict[str, int] = {}
    for answer in answers:
        if answer is None or answer in known:
            continue
        found = next((index for index, other in enumerate(representatives) if same(other, answer)), None)
        if found is None:
            found = len(representatives)
            representatives.append(answer)
        known[answer] = found
    return [None if answer is None else known[answer] for answer in answers]


def maj_at_k(right: int, others: Sequence[int], silent: int, ks: Sequence[int]) -> dict[int, float]:
    """Chance that the majority vote of a random subset of K samples is right, for each K.

    `right` samples gave the right answer, `others` are the sizes of the other classes, `silent` samples gave
    none. With j right samples in the subset and t other classes that also have j votes (none more), the vote
    is right with chance 1 / (1 + t). For each j, ways[m, t] counts the ways to draw m more samples from the
    others: one polynomial product per class.
    """
    total, largest = right + sum(others) + silent, max(ks)
    if largest > total:
        raise ValueError(f"Maj@{largest} needs at least {largest} samples, got {total}")
    if min(ks) == total:  # the only subset is all samples
        wins = 0 < right >= max(others, default=0)
        return dict.fromkeys(ks, 1.0 / (1 + list(others).count(right)) if wins else 0.0)
    chances = dict.fromkeys(ks, 0.0)
    for votes in range(1, min(right, largest) + 1):
        room = largest - votes
        rivals = room // votes
        ways = np.zeros((room + 1, rivals + 1))
        ways[0, 0] = 1.0
        for size in others:
            new = np.zeros_like(ways)
            for drawn in range(min(size, votes, room) + 1):
                part = comb(size, drawn) * ways[: room + 1 - drawn]
                if drawn < votes:
                    new[drawn:] += part
                else:
                    new[drawn:, 1:] += part[:, :-1]
            ways = new
        ways = sum(
            np.pad(comb(silent, m) * ways[: room + 1 - m], ((m, 0), (0, 0)))
            for m in range(min(silent, room) + 1)
        )
        wins = ways @ (1.0 / (1.0 + np.arange(rivals + 1)))
        for k in ks:
            if k >= votes:
                chances[k] += comb(right, votes) * wins[k - votes] / comb(total, k)
    return chances


def majority(item: Item, verdicts: Sequence[Verdict], ks: Sequence[int]) -> dict[int, float]:
    """Maj@K of one question's samples: right answers form one class, the others by equivalence."""

    def same(first: str, second: str) -> bool:
        values = numeric_value(first), numeric_value(second)
        if None not in values and abs(values[0] - values[1]) > 1e-6 * max(map(abs, values)):
            return first.rstrip("%\\ ") == second.rstrip("%\\ ")
        return compare(first, second, question=item.question, choices=item.choices).right

    right = sum(verdict.right for verdict in verdicts)
    others = [verdict.extracted for verdict in verdicts if not verdict.right]
    classes = [number for number in answer_classes(others, same) if number is not None]
    sizes = [classes.count(number) for number in sorted(set(classes))]
    return _counted(right, tuple(sorted(sizes)), others.count(None), tuple(ks))


@lru_cache(maxsize=65536)  # many questions have the same counts
def _counted(right: int, others: tuple[int, ...], silent: int, ks: tuple[int, ...]) -> dict[int, float]:
    return maj_at_k(right, others, silent, ks)


def accuracy(values: Sequence[float]) -> dict[str, Any]:
    """Mean over questions with its 95 % interval; `values` are shares of right answers, one per question."""
    return {"accuracy": fmean(values), "ci95": list(mean_interval(values)), "n": len(values)}


def right_and_finished(rights: Sequence[float], finished: Sequence[bool]) -> float:
    """Return the share of answers that are right and were not cut off, however right they were by then."""
    return fmean(right * done for right, done in zip(rights, finished, strict=True))


def describe_unfinished(right: float, finished: float) -> str | None:
    """Half a line, where more than a tenth of the `right` answers (a share) are not `finished` ones."""
    if right - finished <= UNFINISHED * right:
        return None
    return f"{right:.1%} right, but only {finished:.1%} right and finished"


def at_k(items: Sequence[Item], samples: Sequence[Sequence[Verdict]], ks: Sequence[int]) -> dict[str, Any]:
    """Maj@K and Pass@K with 95 % intervals, for those `ks` that every question has samples for."""
    ks = sorted({k for k in ks if k <= min(map(len, samples))})
    if not ks:
        return {}
    votes = [majority(item, row, ks) for item, row in zip(items, samples, strict=True)]
    rights = [(len(verdicts), sum(verdict.right for verdict in verdicts)) for verdicts in samples]
    result: dict[str, Any] = {"maj@k": {}, "maj@k_ci95": {}, "pass@k": {}, "pass@k_ci95": {}}
    for k in ks:
        for metric, values in (
            ("maj@k", [vote[k] for vote in votes]),
            ("pass@k", [pass_at_k(total, right, k) for total, right in rights]),
        ):
            result[metric][str(k)] = fmean(values)
            result[f"{metric}_ci95"][str(k)] = list(mean_interval(values))
    return result


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
    """Return the number of questions found in the corpus, and the accuracy on these and on the others."""
    parts = {"leaked": [], "clean": []}
    for item, right in zip(items, rights, strict=True):
        parts["leaked" if item.id in flagged else "clean"].append(right)
    return {"items": len(parts["leaked"])} | {
        name: accuracy(values) for name, values in parts.items() if values
    }
