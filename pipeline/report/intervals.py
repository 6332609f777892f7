"""What a difference between groups of models is worth: a bootstrap over questions and training seeds,
Student's t, Holm's correction, and the smallest effect that a comparison could have seen.

Each draw takes questions and seeds anew, with replacement. The standard deviation of the draws is the
standard error. The tails are Student's t with Satterthwaite's degrees of freedom, because a few seeds say
little about their own spread. What a model does on a question by chance is in the spread of questions and in
that of seeds, so intervals err on the wide side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import atan, exp, inf, lgamma, pi, sqrt

import numpy as np

DRAWS = 4000
POWER = 0.8
NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)


def t_tail(t: float, df: float) -> float:
    """Chance that Student's t with `df` degrees of freedom is above `t`."""
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

    def interval(self, level: float = 0.05) -> tuple[float, float]:
        """Interval that misses the truth with chance `level`."""
        half = t_quantile(level / 2, self.df) * self.error
        return self.effect - half, self.effect + half

    def above(self, bound: float) -> float:
        """One-sided p of the null hypothesis that the effect is at most `bound`."""
        return t_tail((self.effect - bound) / self.error, self.df)

    def below(self, bound: float) -> float:
        """One-sided p of the null hypothesis that the effect is at least `bound`."""
        return t_tail((bound - self.effect) / self.error, self.df)

    def detectable(self, level: float) -> float:
        """Return the effect that a two-sided test at `level` sees in four cases of five."""
        return (t_quantile(level / 2, self.df) + t_quantile(1 - POWER, self.df)) * self.error


def _redrawn(values: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Deviations of the mean of n values drawn with replacement, scaled by sqrt(n / (n - 1)); unscaled, a few
    values look less spread than they are.
    """
    size = len(values)
    distinct, counts = np.unique(values.round(9), return_counts=True)
    means = draw.multinomial(size, counts / size, DRAWS) @ distinct / size
    return (means - values.mean()) * sqrt(size / (size - 1))


def estimate(
    tasks: Sequence[tuple[np.ndarray, np.ndarray]], *, matched: bool = False, spread: float = 0.0
) -> Estimate:
    """Mean over tasks of `better - worse`. A task is a pair of arrays (seeds, questions) of the same
    questions, and all tasks have the same seeds. `matched`: row i of worse, or its only row, is what row i of
    better started from, so only their difference varies. `spread`: standard deviation over seeds where there
    is one.
    """
    draw = np.random.default_rng(0)
    sides = [np.mean([side[place].mean(axis=1) for side in tasks], axis=0) for place in (0, 1)]
    parts: list[tuple[np.ndarray, float]] = []  # what is drawn anew: deviations of the effect, their df
    for seeds in [sides[0] - sides[1]] if matched else sides:
        if len(seeds) > 1:
            parts.append((_redrawn(seeds, draw), len(seeds) - 1))
        elif spread:
            parts.append((draw.normal(0, spread, DRAWS), inf))
    for better, worse in tasks:
        change = (better.mean(axis=0) - worse.mean(axis=0)) / len(tasks)
        size = len(change)
        if size < 2:
            return Estimate(float(sides[0].mean() - sides[1].mean()), inf, 1.0)
        # A task on which all questions change alike is no certainty: as if one question had changed.
        least = draw.normal(0, 1 / (size * len(tasks)), DRAWS)
        parts.append((_redrawn(change, draw) if np.ptp(change) > 1e-9 else least, size - 1))
    error = float(np.sum([deviations for deviations, _ in parts], axis=0).std())
    variances = np.array([deviations.var() for deviations, _ in parts])
    df = float(variances.sum() ** 2 / (variances**2 / np.array([df for _, df in parts])).sum())
    return Estimate(float(sides[0].mean() - sides[1].mean()), error, df)


def holm(ps: Sequence[float]) -> list[tuple[float, float]]:
    """Holm's correction: for each p its adjusted value, and the level at which it was tested."""
    order, found, highest = sorted(range(len(ps)), key=ps.__getitem__), {}, 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, ps[place] * (len(ps) - rank)))
        found[place] = (highest, 0.05 / (len(ps) - rank))
    return [found[place] for place in range(len(ps))]
