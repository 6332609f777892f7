"""Clusters of similar pages, a part of the pages at a time, so that no job holds all of them.

`cluster-<number>` has one of `crawl.cluster_jobs` parts of the extraction shards, and runs after the jobs of
all later parts. It takes the pairs whose later page is in its part: those of `exact` and `buckets`, and those
that later parts passed on. What they connect is joined to its first page. A page of this part is then done:
`forest` names the first page for it, which may be in an earlier part. Pages of earlier parts that were
connected are passed on as pairs with that first page, so nothing is lost: the clusters are the connected
components of all pairs, as datatrove's stage 3 finds them in one job. `resolve` follows the forests.

Pairs come in blocks. They are joined as soon as there are more of them than pages, so memory grows with the
pages of a part that are similar to another, not with their pairs.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.config.crawl import CrawlSection
from pipeline.crawl.pairs import NEAR, Pages, pairs_of, read_pairs
from pipeline.crawl.signature_store import SignedShards, number_of
from pipeline.protocol.progress import Progress
from pipeline.protocol.stage import Counts, InputError, Stage, run_stage

JOINED = 1 << 22  # pairs that are joined at once at least
FOREST, PASSED = "forest", "passed"
Edges = NDArray[np.int64]


def join(edges: Edges) -> Edges:
    """(page, first page of its connected component) for all other pages of `edges` (N, 2), sorted by page.

    Each round hooks every tree of pages to the first tree that an edge leads to, then flattens all trees.
    """
    pages, places = np.unique(edges, return_inverse=True)
    one, other = places.reshape(-1, 2).T
    root = np.arange(len(pages))
    while len(one):
        one, other = root[one], root[other]
        apart = one != other
        one, other = one[apart], other[apart]
        np.minimum.at(root, np.maximum(one, other), np.minimum(one, other))
        while (above := root[root]).tobytes() != root.tobytes():
            root = above
    first = pages[root]
    return np.column_stack([pages, first])[pages != first]


def join_blocks(blocks: Iterable[Edges]) -> Edges:
    """`join` of all blocks (N, 2) together."""
    joined, waiting = np.empty((0, 2), np.int64), list[Edges]()
    for block in blocks:
        waiting.append(block)
        if sum(map(len, waiting)) > max(JOINED, len(joined)):
            joined, waiting = join(np.concatenate([joined, *waiting])), []
    return join(np.concatenate([joined, *waiting])) if waiting else joined


def bounds_of(parts: list[range], shards: SignedShards) -> list[int]:
    """First pages of the parts, then the number of pages."""
    return [*(int(shards.starts[part.start]) for part in parts), shards.pages]


def _blocks(stage: Stage[CrawlSection], low: int, high: int) -> Iterator[Edges]:
    """Yield the pairs of this part's pages, from each job before."""
    files = [stage.input("exact") / "pairs"]
    files += [Path(folder) / "pairs" for folder in stage.inputs["buckets"]]
    files += [Path(folder) / PASSED for folder in stage.inputs.get("later", [])]
    with Progress(f"crawl {stage.instance}", len(files), unit="file") as bar:
        for file in files:
            pairs = read_pairs(file, low, high)
            yield np.column_stack([pairs["page"], pairs["target"]]).astype(np.int64)
            bar.update(1)


def _write(path: Path, pages: Pages, first: Pages) -> None:
    """Write joined pages, which are sorted."""
    pairs_of(pages, first, NEAR).tofile(path)


def run(stage: Stage[CrawlSection]) -> Counts:
    """Join the pairs of a part; returns how many pages have an earlier one, and how many pairs go on."""
    if not stage.inputs.get("buckets"):
        raise InputError("no pairs given: use --input buckets=FOLDER, for each folder that buckets wrote")
    shards = SignedShards.of(stage.input("exact"))
    parts = stage.config.cluster_parts(len(shards))
    number = number_of(stage, len(parts))
    later = len(stage.inputs.get("later", []))
    if later != len(parts) - number - 1:
        raise InputError(f"--input later: {later} folders, expected one for each part after {number:04d}")
    low, high = bounds_of(parts, shards)[number : number + 2]
    joined = join_blocks(_blocks(stage, low, high))
    own = np.searchsorted(joined[:, 0], low)
    _write(stage.partial / PASSED, *joined[:own].T)
    _write(stage.partial / FOREST, *joined[own:].T)
    return {"joined": len(joined) - int(own), "passed": int(own)}


if __name__ == "__main__":
    run_stage("crawl", CrawlSection, run, sys.argv[1:])
