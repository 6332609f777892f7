"""From verdicts to numbers: accuracy with its interval, Maj@K, unbiased Pass@K, paired difference.

Maj@K is exact: the expectation over all subsets of K of a question's n samples, with ties broken at random,
so that the order of samples has no influence and Maj@1 equals Pass@1 (paper section 12). Equivalent answers
share their votes; samples without an answer do not vote.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import comb, sqrt
from statistics import fmean
from typing import Any

import numpy as np

from pipeline.evaluate.benchmarks import Item
from pipeline.grader.answers import Verdict, compare, numeric_value

Z95 = 1.959963984540054
UNFINISHED = 0.1  # of the right answers: from this share on it is told that they were cut off
SAME = 1e-9  # numbers that differ by less are equal


def wilson(right: float, total: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion; it stays within 0 and 1 and holds for small samples."""
    if total == 0:
        return 0.0, 1.0
    share, z2 = right / total, Z95**2
    centre = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = Z95 * sqrt(share * (1 - share) / total + z2 / (4 * total**2)) / (1 + z2 / total)
    return max(0.0, centre - half), min(1.0, centre + half)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the mean of values in [0, 1]: normal; Wilson's if all are 0 or 1, or if all are equal,
    since equal values show no spread and no values in [0, 1] have a wider one than 0 and 1.
    """
    array = np.asarray(values, dtype=float)
    if all(value in (0, 1) for value in values):
        return wilson(sum(values), len(values))
    if len(values) < 2:
        return 0.0, 1.0
    if np.ptp(array) < SAME:
        return wilson(float(array.sum()), len(values))
    half = Z95 * array.std(ddof=1) / sqrt(len(array))
    return max(0.0, float(array.mean() - half)), min(1.0, float(array.mean() + half))


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


def paired_difference(
    first: Sequence[float], second: Sequence[float]
) -> dict[str, float | list[float] | int]:
    """`second` minus `first` by question: mean, 95 % interval (normal), how many flipped each way. Where all
    questions change alike, the interval is as wide as if one of them had changed by 1.
    """
    if len(first) != len(second) or not first:
        raise ValueError(f"need the same questions for both models, got {len(first)} and {len(second)}")
    change = np.asarray(second, dtype=float) - np.asarray(first, dtype=float)
    mean = float(change.mean())
    half = float("inf")
    if len(change) > 1:
        error = 1 / len(change) if np.ptp(change) < SAME else float(change.std(ddof=1)) / sqrt(len(change))
        half = Z95 * error
    return {
        "difference": mean,
        "ci95": [mean - half, mean + half],
        "n": len(change),
        "gained": int((change > 0).sum()),
        "lost": int((change < 0).sum()),
    }


def majority(item: Item, verdicts: Sequence[Verdict], ks: Sequence[int]) -> dict[int, float]:
    """Maj@K of one question's samples: right answers form one class, the others by equivalence."""

    def same(first: str, second: str) -> bool:
        values = _number(first), _number(second)
        if None not in values and abs(values[0] - values[1]) > 1e-6 * max(map(abs, values)):
            return first.rstrip("%\\ ") == second.rstrip("%\\ ")
        return compare(first, second, question=item.question, choices=item.choices).right

    right = sum(verdict.right for verdict in verdicts)
    others = [verdict.extracted for verdict in verdicts if not verdict.right]
    classes = [number for number in answer_classes(others, same) if number is not None]
    sizes = [classes.count(number) for number in sorted(set(classes))]
    return _counted(right, tuple(sorted(sizes)), others.count(None), tuple(ks))


_number = lru_cache(maxsize=65536)(numeric_value)  # the same wrong answers come again and again


@lru_cache(maxsize=65536)  # many questions have the same counts
def _counted(right: int, others: tuple[int, ...], silent: int, ks: tuple[int, ...]) -> dict[int, float]:
    return maj_at_k(right, others, silent, ks)


def accuracy(values: Sequence[float]) -> dict[str, Any]:
    """Mean over questions with its 95 % interval; `values` are shares of right answers, one per question."""
    return {"accuracy": fmean(values), "ci95": list(mean_interval(values)), "n": len(values)}


def right_and_finished(rights: Sequence[float], finished: Sequence[bool]) -> float:
    """Return the share of answers that are right and were not cut off, however right they were by then."""
    return fmean(right * done for right, done in zip(rights, finished, strict=True))


def parted(right: float, finished: float) -> str | None:
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
