"""Join similar pages to clusters; list the duplicates of each extraction shard and what survives of each.

Of a cluster the first page in input order survives; datatrove's own choice depends on the shape of its union
tree. Duplicates by the exact rules are joined with the page that they repeat, so they follow it.

At most `crawl.cluster_jobs` parts of the shards are in memory one after the other, the last one first. A part
takes the pairs whose later page is in it: those of `exact` and `buckets`, and those that later parts passed
on. What they connect is joined to its first page. A page of this part is then done: its `forest` names the
first page for it, which may be in an earlier part. Pages of earlier parts that were connected are passed on
as pairs with that first page, so nothing is lost: the clusters are the connected components of all pairs, as
datatrove's stage 3 finds them at once. Then each forest is followed through those of earlier parts. A part
that is finished is not joined again after a kill.

Pairs come in blocks. They are joined as soon as there are more of them than pages, so memory grows with the
pages of a part that are similar to another, not with their pairs.

Writes `removed/<shard>.parquet`: place of a removed page, kind, digest of the signed shard and place of the
page that stays. It depends on the pages of this shard and their targets only. Its metadata holds the digest
of its own signed shard. `shards.json` says where these are.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.config.crawl import CrawlSection
from pipeline.crawl.pairs import NEAR, PAIR, Pairs, pairs_of, read_pairs
from pipeline.crawl.signature_store import SignedShards
from pipeline.data.shards import table_schema
from pipeline.protocol.atomic import atomic_write
from pipeline.protocol.progress import Progress
from pipeline.protocol.stage import Counts, InputError, Stage, run_stage

JOINED = 1 << 22  # pairs that are joined at once at least
REMOVED = table_schema(
    place=pa.uint32(), kind=pa.uint8(), shard=pa.dictionary(pa.int32(), pa.string()), target=pa.uint32()
)
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


def join_part(files: list[Path], low: int, high: int, forest: Path, passed: Path) -> None:
    """Join the pairs of `files` of pages in [low, high); writes the pairs that go on, then the forest."""

    def blocks() -> Iterator[Edges]:
        for file in files:
            pairs = read_pairs(file, low, high)
            yield np.column_stack([pairs["page"], pairs["target"]]).astype(np.int64)

    joined = join_blocks(blocks())
    own = np.searchsorted(joined[:, 0], low)
    for path, some in ((passed, joined[:own]), (forest, joined[own:])):
        with atomic_write(path) as whole:
            pairs_of(*some.T, NEAR).tofile(whole)


def follow(pairs: Pairs, forest: Pairs) -> None:
    """Put the page that `forest` (sorted) names for it in the place of each target of `pairs`."""
    if not len(forest):
        return
    pages = np.ascontiguousarray(forest["page"])
    places = np.minimum(np.searchsorted(pages, pairs["target"]), len(pages) - 1)
    found = pages[places] == pairs["target"]
    pairs["target"][found] = forest["target"][places[found]]


def removed_of(forests: list[Path], same: Pairs) -> Pairs:
    """Follow the last of the forests through all before it; returns the pages that go, those of `same` with
    the kind of the exact rule that removed them.
    """
    *before, own = forests
    pairs = np.fromfile(own, PAIR)
    for forest in reversed(before):
        follow(pairs, np.fromfile(forest, PAIR))
    pairs["kind"][np.searchsorted(pairs["page"], same["page"])] = same["kind"]
    return pairs


def _table(pairs: Pairs, shards: SignedShards, rank: int) -> pa.Table:
    ranks, places = shards.locate(pairs["target"].astype(np.int64))
    digests = pa.array([shards.digests[one] for one in ranks.tolist()], pa.string()).dictionary_encode()
    columns = [
        pa.array((pairs["page"] - np.uint64(shards.starts[rank])).astype(np.uint32)),
        pa.array(pairs["kind"]),
        digests,
        pa.array(places.astype(np.uint32)),
    ]
    return pa.table(columns, REMOVED.with_metadata({"sign": shards.digests[rank]}))


def run(stage: Stage[CrawlSection]) -> Counts:
    """Decide which pages are removed; returns the numbers of pages and of removed ones."""
    if not stage.inputs.get("buckets"):
        raise InputError("no pairs given: use --input buckets=FOLDER, for each folder that buckets wrote")
    result, removed = stage.input("exact"), 0
    shards = SignedShards.of(result)
    files = [result / "pairs", *(Path(folder) / "pairs" for folder in stage.inputs["buckets"])]
    parts = stage.config.cluster_parts(len(shards))
    bounds = [*(int(shards.starts[part.start]) for part in parts), shards.pages]
    forests, passed = (
        [stage.work / f"{name}-{n:04d}" for n in range(len(parts))] for name in ("forest", "on")
    )
    (stage.partial / "removed").mkdir()
    with Progress(f"crawl {stage.instance}", 2 * len(parts), unit="part") as bar:
        for n in reversed(range(len(parts))):
            if not forests[n].exists():
                join_part([*files, *passed[n + 1 :]], bounds[n], bounds[n + 1], forests[n], passed[n])
            bar.update(1)
        for n, part in enumerate(parts):
            pairs = removed_of(forests[: n + 1], read_pairs(files[0], bounds[n], bounds[n + 1]))
            borders = np.searchsorted(pairs["page"], shards.starts.astype(np.uint64)).tolist()
            for rank in part:
                table = _table(pairs[borders[rank] : borders[rank + 1]], shards, rank)
                pq.write_table(table, stage.partial / f"removed/{rank:05d}.parquet", compression="zstd")
            removed += len(pairs)
            bar.update(1)
    shards.list(stage)
    return {"pages": shards.pages, "removed": removed}


if __name__ == "__main__":
    run_stage("crawl", CrawlSection, run)
