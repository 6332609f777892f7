"""For each extraction shard, list its duplicates and the surviving copy of each.

Of a cluster the first page in input order survives; datatrove's own choice depends on the shape of its union
tree. Duplicates by the exact rules are joined with the page that they repeat, so they follow it.
`resolve-<number>` has the shards of `cluster-<number>` and follows its forest through those of earlier parts.

Writes `removed/<shard>.parquet`: place of a removed page, kind, digest of the signed shard and place of the
page that stays. It depends on the pages of this shard and their targets only. Its metadata holds the digest
of its own signed shard. `shards.json` says where these are.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config.crawl import CrawlSection
from pipeline.crawl.cluster import FOREST, bounds_of
from pipeline.crawl.pairs import PAIR, Pairs, read_pairs
from pipeline.crawl.signature_store import SignedShards, number_of
from pipeline.protocol.stage import Counts, InputError, Stage, run_stage

REMOVED = pa.schema(
    [
        ("place", pa.uint32()),
        ("kind", pa.uint8()),
        ("shard", pa.dictionary(pa.int32(), pa.string())),
        ("target", pa.uint32()),
    ]
)


def follow(pairs: Pairs, forest: Pairs) -> None:
    """Put the page that `forest` (sorted) names for it in the place of each target of `pairs`."""
    if not len(forest):
        return
    pages = np.ascontiguousarray(forest["page"])
    places = np.minimum(np.searchsorted(pages, pairs["target"]), len(pages) - 1)
    found = pages[places] == pairs["target"]
    pairs["target"][found] = forest["target"][places[found]]


def mark_kinds(pairs: Pairs, same: Pairs) -> None:
    """Give those of `pairs` that an exact rule removed, which are all of `same`, the rule's kind."""
    pairs["kind"][np.searchsorted(pairs["page"], same["page"])] = same["kind"]


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
    """Decide which pages of a part are removed; returns the numbers of pages and of removed ones."""
    result = stage.input("exact")
    shards = SignedShards.of(result)
    parts = stage.config.cluster_parts(len(shards))
    number = number_of(stage, len(parts))
    forests = [Path(folder) / FOREST for folder in stage.inputs.get("cluster", [])]
    if len(forests) != number + 1:
        raise InputError(
            f"--input cluster: {len(forests)} folders, expected one for each part up to {number:04d}"
        )
    low, high = bounds_of(parts, shards)[number : number + 2]
    pairs = np.fromfile(forests.pop(), PAIR)
    while forests:
        follow(pairs, np.fromfile(forests.pop(), PAIR))
    mark_kinds(pairs, read_pairs(result / "pairs", low, high))
    (stage.partial / "removed").mkdir()
    bounds = np.searchsorted(pairs["page"], shards.starts.astype(np.uint64)).tolist()
    for rank in parts[number]:
        table = _table(pairs[bounds[rank] : bounds[rank + 1]], shards, rank)
        pq.write_table(table, stage.partial / "removed" / f"{rank:05d}.parquet", compression="zstd")
    shards.list(stage)
    return {"pages": high - low, "removed": len(pairs)}


if __name__ == "__main__":
    run_stage("crawl", CrawlSection, run, sys.argv[1:])
