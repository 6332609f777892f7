"""Where the ranking is cut: by a token budget as in the paper (section 2.1, step 2), by score, or by an
estimated precision.
"""

import numpy as np
from numpy.typing import NDArray

from pipeline.config.corpus import CorpusSection

Scores = NDArray[np.float64]


def within_budget(tokens: NDArray[np.int64], config: CorpusSection, iteration: int) -> int:
    """How many of the top pages, whose lengths are `tokens` (N,), fit into the budget of an iteration,
    counted from 1.
    """
    budget = config.budget_tokens[min(iteration, len(config.budget_tokens)) - 1]
    return int(np.searchsorted(np.cumsum(tokens), budget, side="right"))


def expected_precision(scores: Scores, other: Scores, total_other: float) -> NDArray[np.float64]:
    """Estimated precision (N,) of the first 1..N pages of a ranking with `scores` (N,), best first.

    `other` (M,) are held-out scores of negatives: the share of them at or above a page's score is the chance
    that one of the pool's `total_other` pages that are not mathematical gets so far.
    """
    above = len(other) - np.searchsorted(np.sort(other), scores, side="left")
    return np.maximum(0.0, 1 - above / len(other) * total_other / np.arange(1, len(scores) + 1))


def at_precision(scores: Scores, other: Scores, target: float) -> int:
    """The largest number of top pages whose estimated precision is at least `target`.

    It begins with the cautious belief that nothing in the pool is mathematical, and takes off what it then
    expects above the cut, until the cut stays where it is.
    """
    size, last, total_other = 0, -1, float(len(scores))
    while size != last:
        precision = expected_precision(scores, other, total_other)
        good = np.flatnonzero(precision >= target)
        last, size = size, int(good[-1]) + 1 if len(good) else 0
        total_other = len(scores) - size * (float(precision[size - 1]) if size else 0.0)
    return size
