"""Where the ranking is cut: by a token budget as in the paper (section 2.1, step 2), by score, or by an
estimated precision.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from pipeline.config.corpus import CorpusSection

Scores = NDArray[np.float64]


def within_budget(batches: Iterable[NDArray[np.int64]], config: CorpusSection, iteration: int) -> int:
    """How many of the top pages, whose lengths are `batches` one after another, fit into the budget of an
    iteration, counted from 1.
    """
    budget = config.budget_tokens[min(iteration, len(config.budget_tokens)) - 1]
    size = used = 0
    for tokens in batches:
        ends = used + np.cumsum(tokens)
        fit = int(np.searchsorted(ends, budget, side="right"))
        size += fit
        if fit < len(tokens):
            break
        used = int(ends[-1])
    return size


def expected_precision(
    ends: NDArray[np.int64], above: NDArray[np.int64], negatives: int, total_other: float
) -> NDArray[np.float64]:
    """Estimated precision (K,) of the first `ends` (K,) pages of a ranking.

    `above` (K,) of the held-out `negatives` reach the score of the last of these pages: that share is the
    chance that one of the pool's `total_other` pages that are not mathematical gets so far.
    """
    return np.maximum(0.0, 1 - above / negatives * total_other / ends)


def at_precision(batches: Iterable[Scores], other: Scores, target: float) -> int:
    """The largest number of top pages whose estimated precision is at least `target`; `batches` are the
    pages' scores, `other` (M,) those of held-out negatives.

    It begins with the cautious belief that nothing in the pool is mathematical, and takes off what it then
    expects above the cut, until the cut stays where it is, or comes back to an earlier place: then the
    smallest since counts. Between two neighbouring scores of `other` the
    estimate rises with each page, so the numbers of pages between them are all that is needed.
    """
    other = np.sort(other)
    counts = np.zeros(len(other) + 1, np.int64)  # by how many of `other` are at or above the score
    for scores in batches:
        above = len(other) - np.searchsorted(other, scores, side="left")
        counts += np.bincount(above, minlength=len(counts))
    above = np.flatnonzero(counts)
    ends = np.cumsum(counts)[above]
    pages = int(counts.sum())
    sizes, total_other = [0], float(pages)
    while sizes[-1] not in sizes[:-1]:
        precision = expected_precision(ends, above, len(other), total_other)
        good = np.flatnonzero(precision >= target)
        if not len(good):
            return 0
        sizes.append(int(ends[good[-1]]))
        total_other = pages - sizes[-1] * float(precision[good[-1]])
    return min(sizes[sizes.index(sizes[-1]) :])
