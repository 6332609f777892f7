"""Pairs of a page and an earlier page: files sorted by the later one, of which programs read a part.

`exact`, `buckets` and `survivors` hand them on. Pages have the numbers of `signature_store.py`.
"""

from bisect import bisect_left
from pathlib import Path
from shutil import rmtree

import numpy as np
from numpy.typing import NDArray

from pipeline.crawl.signature_store import map_random

PAIR = np.dtype([("page", "<u8"), ("target", "<u8"), ("kind", "u1")])  # target < page
SAME_URL, SAME_TEXT, NEAR, SAME_TEMPLATE = 1, 2, 3, 4  # kinds
SPAN = 1 << 23  # pages whose pairs are sorted at once
Pages = NDArray[np.int64]
Pairs = NDArray[np.void]


def pairs_of(pages: Pages, targets: Pages, kind: int) -> Pairs:
    """Pairs of pages (N,) and earlier ones (N,)."""
    pairs = np.empty(len(pages), PAIR)
    pairs["page"], pairs["target"], pairs["kind"] = pages, targets, kind
    return pairs


def begins_group(rows: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Whether each of sorted rows (R, words) begins a group: it differs from the one before it."""
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    return fresh


class PairSorter:
    """Sorts pairs that come in any order, in files of `SPAN` pages below `work`."""

    def __init__(self, work: Path) -> None:
        self._work = work
        rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)

    def add(self, pairs: Pairs) -> None:
        """Take pairs (N,)."""
        parts = pairs["page"] // SPAN
        for part in np.unique(parts).tolist():
            with (self._work / f"{part:08d}").open("ab") as file:
                pairs[parts == part].tofile(file)

    def write(self, path: Path) -> int:
        """Write all pairs to a file, by page, then by target; returns their number."""
        number = 0
        with path.open("wb") as file:
            for part in sorted(self._work.iterdir()):
                pairs = np.fromfile(part, PAIR)
                pairs[np.lexsort((pairs["target"], pairs["page"]))].tofile(file)
                number += len(pairs)
        rmtree(self._work)
        return number


def read_pairs(path: Path, low: int, high: int) -> Pairs:
    """Return the pairs of a sorted file whose later page is in [low, high)."""
    pairs = map_random(path, PAIR)
    first = bisect_left(pairs, low, key=lambda pair: int(pair["page"]))
    last = bisect_left(pairs, high, lo=first, key=lambda pair: int(pair["page"]))
    return np.array(pairs[first:last])
