"""Where the ranking is cut: by a token budget as in the paper (section 2.1, step 2), by score, or by an
estimated precision.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.common.shards import read_table
from pipeline.common.stage import InputError
from pipeline.config.corpus import CorpusSection
from pipeline.corpus.candidates import candidates
from pipeline.corpus.ranking import Ranking

Scores = NDArray[np.float64]


def cut(ranking: Ranking, train: Path, config: CorpusSection, iteration: int) -> int:
    """How many of the candidates are kept, as `corpus.cut` says; `train`: the trained classifier's folder.

    Raises InputError for a cut by precision without held-out pages.
    """
    scores = (batch["score"].to_numpy() for batch in candidates(ranking))
    match config.cut:
        case "tokens":
            tokens = (batch["tokens"].to_numpy() for batch in candidates(ranking))
            return within_budget(tokens, config, iteration)
        case "score":
            return sum(int((part >= config.threshold).sum()) for part in scores)
    if not (train / "held_out.parquet").exists():
        raise InputError(
            "corpus.cut: `precision` is estimated on held-out pages: set corpus.folds to 2 or more"
        )
    table = read_table(train / "held_out.parquet", ["math", "score"])
    return at_precision(scores, table.filter(pc.invert(table["math"]))["score"].to_numpy(), config.precision)


def within_budget(batches: Iterable[NDArray[np.int64]], config: CorpusSection, iteration: int) -> int:
    """How many of the top pages fit into the token budget of an iteration (counted from 1); `batches`: the
    pages' tokens, in rank order.
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

    `above` (K,) of the held-out `negatives` reach the score of the last of these pages. The same share of
    the pool's `total_other` pages that are not mathematical is expected among them.
    """
    return np.maximum(0.0, 1 - above / negatives * total_other / ends)


def at_precision(batches: Iterable[Scores], other: Scores, target: float) -> int:
    """The largest number of top pages whose estimated precision is at least `target`; `batches` are the
    pages' scores, `other` (M,) those of held-out negatives.

    Fixed-point iteration from zero positives: each cut gives an estimate of the pool's mathematical pages,
    which gives the next cut. If cuts repeat in a cycle, the smallest of the cycle counts. Between two
    neighbouring scores of `other` the estimate rises with each page, so the numbers of pages between them
    are all that is needed.
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
