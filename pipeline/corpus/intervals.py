"""95 % intervals of what is measured on web pages. Pages of one host are alike, so hosts are what is drawn:
two hundred pages of two hosts say less than two hundred pages of two hundred hosts.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

Z95 = 1.959963984540054
DRAWS = 500
Interval = tuple[float, float]


def share_interval(hits: Iterable[bool], hosts: Iterable[str]) -> Interval:
    """Wilson's interval of the share of pages (N,) that are hits, with as many independent pages as the
    spread between their hosts (N,) tells; where all hosts agree, as many as there are hosts.
    """
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for hit, host in zip(hits, hosts, strict=True):
        counts[host][0] += hit
        counts[host][1] += 1
    if not counts:
        return 0.0, 1.0
    found, sizes = np.array(list(counts.values()), float).T
    total, number = float(sizes.sum()), len(sizes)
    share = float(found.sum()) / total
    spread = float(((found - share * sizes) ** 2).sum()) * number / max(number - 1, 1) / total**2
    size = min(total, share * (1 - share) / spread) if spread and number > 1 else float(number)
    centre = (share + Z95**2 / (2 * size)) / (1 + Z95**2 / size)
    half = Z95 * sqrt(share * (1 - share) / size + Z95**2 / (4 * size**2)) / (1 + Z95**2 / size)
    return max(0.0, centre - half), min(1.0, centre + half)


def ranking_draws(
    math: Sequence[bool],
    scores: Sequence[float],
    hosts: Sequence[str],
    precision: float,
    unranked: Sequence[str],
) -> NDArray[np.float64]:
    """Average precision, and recall at `precision`, of ranked pages (N,) in draws of hosts with replacement:
    (D, 2). `unranked`: the hosts of mathematical pages without a score. Draws without a mathematical page are
    left out. Rankings of the same pages are drawn alike, so that their differences can be taken.
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
    """The middle 95 % of the `ranking_draws` of these arguments: of average precision, and of recall."""
    found = ranking_draws(*ranking)
    if not len(found):
        return (0.0, 1.0), (0.0, 1.0)
    (low, other_low), (high, other_high) = np.quantile(found, (0.025, 0.975), axis=0).tolist()
    return (low, high), (other_low, other_high)
