"""95 % intervals of all that is measured: shares, means, paired differences, models over seeds, pages.

Pages of one host are alike, so for pages hosts are what is drawn: two hundred pages of two hosts say less
than two hundred pages of two hundred hosts. Models are compared over the questions and over the seeds that
they were trained with (`estimate_effect`).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import atan, exp, inf, lgamma, pi, sqrt
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

Z95 = 1.959963984540054
SAME = 1e-9  # numbers that differ by less are equal
POWER = 0.8
DRAWS = 500  # of hosts
NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)
Interval = tuple[float, float]


# ---- shares and means ----


def wilson(right: float, total: float) -> Interval:
    """Return Wilson's interval of a proportion; it stays within 0 and 1 and holds for small samples."""
    return _wilson(right / total, total) if total else (0.0, 1.0)


def _wilson(share: float, size: float) -> Interval:
    z2 = Z95**2
    centre = (share + z2 / (2 * size)) / (1 + z2 / size)
    half = Z95 * sqrt(share * (1 - share) / size + z2 / (4 * size**2)) / (1 + z2 / size)
    return max(0.0, centre - half), min(1.0, centre + half)


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the interval of the mean of values in [0, 1]: normal; Wilson's if all are 0 or 1, or if all are
    equal, since equal values show no spread and no values in [0, 1] have a wider one than 0 and 1.
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


def mean_over_seeds(shares: Sequence[float]) -> tuple[float, list[float]]:
    """Return the mean of shares and its interval by Student's t, which is empty for a single seed."""
    mean = fmean(shares)
    if len(shares) < 2:
        return mean, [mean, mean]
    half = t_quantile(0.025, len(shares) - 1) * stdev(shares) / sqrt(len(shares))
    return mean, [max(0.0, mean - half), min(1.0, mean + half)]


def paired_difference(
    first: Sequence[float], second: Sequence[float]
) -> dict[str, float | list[float] | int]:
    """Return `second` minus `first` by question: mean, normal interval, how many flipped each way. Where all
    questions change alike, the interval is as wide as if one of them had changed by 1. One question says
    nothing: any difference from -1 to 1 is possible.
    """
    if len(first) != len(second) or not first:
        raise ValueError(f"need the same questions for both models, got {len(first)} and {len(second)}")
    change = np.asarray(second, dtype=float) - np.asarray(first, dtype=float)
    mean = float(change.mean())
    half = Z95 * _question_error(change) if len(change) > 1 else 0.0
    return {
        "difference": mean,
        "ci95": [mean - half, mean + half] if len(change) > 1 else [-1.0, 1.0],
        "n": len(change),
        "gained": int((change > 0).sum()),
        "lost": int((change < 0).sum()),
    }


def _question_error(change: NDArray[np.float64]) -> float:
    """Return the standard error of the mean of changes (N,), N > 1. That all questions change alike is no
    certainty: it counts as if one of them had changed by 1.
    """
    return 1 / len(change) if np.ptp(change) < SAME else float(change.std(ddof=1)) / sqrt(len(change))


def in_percent(value: float, bounds: Sequence[float], sign: str = "-") -> str:
    """Write a share and its interval in percent, as 58.3 [49.1, 67.0]; `sign` "+": a difference in points."""
    shown, low, high = (f"{100 * part:{sign}.1f}" for part in (value, *bounds))
    return f"{shown} [{low}, {high}]"


# ---- models over questions and seeds ----


def t_tail(t: float, df: float) -> float:
    """Return the chance that Student's t with `df` degrees of freedom is above `t`."""
    df = min(df, 1e6)  # beyond, it is the normal distribution to six digits
    # In the angle atan(t / sqrt(df)) the density is c cos(angle)^(df - 1). With many degrees of freedom it is
    # narrow, and the nodes must lie where it is: nothing is left beyond ten standard deviations.
    limit = pi / 2 if df < 50 else atan(10 / sqrt(df))
    half = max(-limit, min(limit, atan(t / sqrt(df)))) / 2
    scale = exp(lgamma((df + 1) / 2) - lgamma(df / 2)) / sqrt(pi)
    return min(1.0, max(0.0, 0.5 - scale * half * float(WEIGHTS @ np.cos(half * (NODES + 1)) ** (df - 1))))


@lru_cache(maxsize=4096)
def t_quantile(tail: float, df: float) -> float:
    """Return the value that Student's t exceeds with chance `tail` (below 0.5)."""
    low, high = 0.0, 1.0
    while t_tail(high, df) > tail and high < 1e6:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, df) > tail else (low, middle)
    return high


@dataclass(frozen=True)
class Estimate:
    """An effect, its standard error and the degrees of freedom of that."""

    effect: float
    error: float
    df: float

    def interval(self, level: float = 0.05) -> Interval:
        """Return the interval that misses the truth with chance `level`."""
        half = t_quantile(level / 2, self.df) * self.error
        return self.effect - half, self.effect + half

    def above(self, bound: float) -> float:
        """Return the one-sided p of the null hypothesis that the effect is at most `bound`."""
        return t_tail((self.effect - bound) / self.error, self.df)

    def below(self, bound: float) -> float:
        """Return the one-sided p of the null hypothesis that the effect is at least `bound`."""
        return t_tail((bound - self.effect) / self.error, self.df)

    def detectable(self, level: float) -> float:
        """Return the effect that a two-sided test at `level` sees in four cases of five."""
        return (t_quantile(level / 2, self.df) + t_quantile(1 - POWER, self.df)) * self.error


def estimate_effect(
    tasks: Sequence[tuple[np.ndarray, np.ndarray]], *, matched: bool = False, spread: float = 0.0
) -> Estimate:
    """Estimate the mean over tasks of `better - worse`. A task is a pair of arrays (seeds, questions) of the
    same questions, and all tasks have the same seeds. `matched`: row i of worse, or its only row, is what row
    i of better started from, so only their difference varies. `spread`: standard deviation over seeds where
    there is one.

    An answer is the sum of what its seed, its question and chance do. Chance is in the spread of the means of
    questions and again in that of the means of seeds, so its variance is taken off once:
    V = V(questions) + V(seeds) - V(chance), and at least the larger of the first two. Degrees of freedom are
    Satterthwaite's, because a few seeds say little about their own spread.
    """
    effect = fmean(float(better.mean() - worse.mean()) for better, worse in tasks)
    if any(better.shape[1] < 2 for better, _ in tasks):
        return Estimate(effect, inf, 1.0)
    share = 1 / len(tasks) ** 2  # of a task's variance in that of the mean
    questions = [
        (share * _question_error(better.mean(axis=0) - worse.mean(axis=0)) ** 2, better.shape[1] - 1)
        for better, worse in tasks
    ]
    seeds: list[tuple[float, float]] = []
    chance: list[tuple[float, float]] = []
    drawn = [[better - worse for better, worse in tasks]] if matched else zip(*tasks, strict=True)
    for side in drawn:  # what each seed did on each question, by task
        size = len(side[0])
        if size > 1:
            means = np.mean([values.mean(axis=1) for values in side], axis=0)
            seeds.append((float(means.var(ddof=1)) / size, size - 1))
            chance += [(share * variance, df) for variance, df in map(_chance_variance, side)]
        elif spread:
            seeds.append((spread**2, inf))
    by_questions, by_seeds, by_chance = (
        sum(variance for variance, _ in part) for part in (questions, seeds, chance)
    )
    variance = max(by_questions + by_seeds - by_chance, by_questions, by_seeds)
    weights = sum(part**2 / df for part, df in (*questions, *seeds, *chance))
    return Estimate(effect, sqrt(variance), variance**2 / weights)


def _chance_variance(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the variance of the mean of values (S, Q) by what neither its seed nor its question explains of
    a value, and the degrees of freedom of that.
    """
    rest = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0) + values.mean()
    df = (values.shape[0] - 1) * (values.shape[1] - 1)
    return float((rest**2).sum()) / df / values.size, df


def holm(ps: Sequence[float]) -> list[tuple[float, float]]:
    """Apply Holm's correction: for each p its adjusted value, and the level at which it was tested."""
    order, found, highest = sorted(range(len(ps)), key=ps.__getitem__), {}, 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, ps[place] * (len(ps) - rank)))
        found[place] = (highest, 0.05 / (len(ps) - rank))
    return [found[place] for place in range(len(ps))]


def share_interval(hits: Iterable[bool], hosts: Iterable[str]) -> Interval:
    """Return Wilson's interval of the share of pages (N,) that are hits, with as many independent pages as
    the spread between their hosts (N,) tells; where all hosts agree, as many as there are hosts.
    """
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for hit, host in zip(hits, hosts, strict=True):
        counts[host][0] += hit
        counts[host][1] += 1
    if not counts:
        return 0.0, 1.0
    found, sizes = np.array(list(counts.values()), float).T
    total, number = float(sizes.sum()), len(sizes)
    share, spread = _over_hosts(found, sizes)
    size = min(total, share * (1 - share) / spread) if spread and number > 1 else float(number)
    return _wilson(share, size)


def _over_hosts(sums: NDArray[np.float64], sizes: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean over all pages, and its variance if hosts are drawn; 0 for a single host."""
    total, number = float(sizes.sum()), len(sizes)
    mean = float(sums.sum()) / total
    return mean, float(((sums - mean * sizes) ** 2).sum()) * number / max(number - 1, 1) / total**2


def estimate_over_hosts(sums: Sequence[float], sizes: Sequence[int]) -> Estimate:
    """Estimate the mean of a value in [-1, 1] over the pages of two or more hosts, from each host's sum and
    number of pages. That all pages are alike is no certainty: it counts as if one host's were different.
    """
    mean, variance = _over_hosts(np.asarray(sums, float), np.asarray(sizes, float))
    return Estimate(mean, sqrt(variance) if variance > SAME**2 else 1 / len(sizes), len(sizes) - 1)


def ranking_draws(
    math: Sequence[bool],
    scores: Sequence[float],
    hosts: Sequence[str],
    precision: float,
    unranked: Sequence[str],
) -> NDArray[np.float64]:
    """Draw hosts with replacement: average precision and recall at `precision` of the ranked pages (N,) in
    each draw, (D, 2). `unranked`: the hosts of mathematical pages without a score. Draws without a
    mathematical page are left out. Rankings of the same pages are drawn alike, so that their differences can
    be taken.
    """
    names = {host: index for index, host in enumerate(sorted({*hosts, *unranked}))}
    order = np.argsort(-np.asarray(scores, float), kind="stable")
    host = np.array([names[name] for name in hosts], int)[order]
    hit = np.asarray(math, bool)[order]
    lost = np.bincount([names[name] for name in unranked], minlength=len(names))
    draw, found = np.random.default_rng(0), []
    for counts in draw.multinomial(len(names), np.full(len(names), 1 / len(names)), DRAWS):
        weights = counts[host]
        right, kept = np.cumsum(weights * hit), np.cumsum(weights)
        total = int(right[-1]) + int(lost @ counts)
        if not total:
            continue
        share = right / np.maximum(kept, 1)
        good = right[(share >= precision) & (kept > 0)]
        found.append((float((weights * hit) @ share) / total, float(good.max(initial=0)) / total))
    return np.array(found).reshape(-1, 2)


def ranking_intervals(*ranking: Any) -> tuple[Interval, Interval]:
    """Return the middle 95 % of the `ranking_draws` of these arguments: average precision, and recall."""
    found = ranking_draws(*ranking)
    if not len(found):
        return (0.0, 1.0), (0.0, 1.0)
    (low, other_low), (high, other_high) = np.quantile(found, (0.025, 0.975), axis=0).tolist()
    return (low, high), (other_low, other_high)
