"""Which pages go and which stays for each: clusters of similar pages by datatrove's stage 3.

One job, with datatrove's Python stage: its Rust tool is not in the package. Memory grows with the pages that
are similar to another. Of a cluster the first page in input order survives; datatrove's own choice depends on
the shape of its union tree. Where that page is the target of an exact rule, its duplicates follow it.

Writes `removed/<shard>.parquet`: place of a removed page, kind, digest of the signed shard and place of the
page that stays. It depends on the pages of this shard and their targets only. Its metadata holds the digest
of its own signed shard. `shards.json` says where these are.
"""

import io
import sys
from contextlib import redirect_stderr
from pathlib import Path
from shutil import rmtree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from datatrove.pipeline.dedup.minhash import MinhashDedupCluster
from loguru import logger
from numpy.typing import NDArray

from pipeline.common.stage import Counts, InputError, Stage, run_stage
from pipeline.config.crawl import CrawlSection
from pipeline.crawl.buckets import READ_AHEAD, Pages, parts_of
from pipeline.crawl.signatures import minhash_config
from pipeline.crawl.signed import PAIR, SignedShards

NEAR = 3
REMOVED = pa.schema(
    [
        ("place", pa.uint32()),
        ("kind", pa.uint8()),
        ("shard", pa.dictionary(pa.int32(), pa.string())),
        ("target", pa.uint32()),
    ]
)


def _near(stage: Stage[CrawlSection], parts: Pages) -> NDArray[np.void]:
    """Pairs of all near-duplicates and the first pages of their clusters, sorted by page."""
    work = stage.work / "minhash"
    rmtree(work, ignore_errors=True)
    (work / "pairs").mkdir(parents=True)
    for folder in stage.inputs.get("buckets", []):
        for path in Path(folder).glob("*.dups"):
            (work / "pairs" / path.name).symlink_to(path.resolve())
    block = MinhashDedupCluster(
        str(work / "pairs"),
        str(work / "clusters"),
        config=minhash_config(stage.config),
        save_cluster_id=True,
        lines_to_buffer=READ_AHEAD,
    )
    with redirect_stderr(io.StringIO()):  # its progress bar cannot be switched off
        block.run()
    stage.counter("datatrove.minhash_clustered", block.stats["duplicates"].total)
    found = [
        np.fromfile(path, "<u4").reshape(-1, 2).astype(np.int64) + [parts[int(path.stem)], 0]
        for path in sorted((work / "clusters").glob("*.clusters"))
    ]
    pages, clusters = np.concatenate([np.empty((0, 2), np.int64), *found]).T
    _, first, cluster = np.unique(clusters, return_index=True, return_inverse=True)
    pairs = np.empty(len(pages), PAIR)
    pairs["page"], pairs["target"], pairs["kind"] = pages, pages[first][cluster], NEAR
    return pairs[pairs["page"] != pairs["target"]]


def survivors(pairs: NDArray[np.void]) -> NDArray[np.void]:
    """Pairs sorted by page in which every target is a page that stays."""
    pairs = np.sort(pairs, order="page")
    while len(pairs):
        place = np.minimum(np.searchsorted(pairs["page"], pairs["target"]), len(pairs) - 1)
        removed = pairs["page"][place] == pairs["target"]
        if not removed.any():
            break
        pairs["target"][removed] = pairs["target"][place[removed]]
    return pairs


def _table(pairs: NDArray[np.void], shards: SignedShards, rank: int) -> pa.Table:
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
    logger.disable("datatrove")
    if not stage.inputs.get("buckets"):
        raise InputError("no pairs given: use --input buckets=FOLDER, for each folder that buckets wrote")
    result = stage.input("exact")
    shards = SignedShards.of(result)
    pairs = survivors(np.concatenate([np.fromfile(result / "pairs", PAIR), _near(stage, parts_of(shards))]))
    (stage.partial / "removed").mkdir()
    bounds = np.searchsorted(pairs["page"], shards.starts.astype(np.uint64)).tolist()
    for rank in range(len(shards)):
        table = _table(pairs[bounds[rank] : bounds[rank + 1]], shards, rank)
        pq.write_table(table, stage.partial / "removed" / f"{rank:05d}.parquet", compression="zstd")
    shards.list(stage)
    return {"pages": shards.pages, "removed": len(pairs)}


if __name__ == "__main__":
    run_stage("crawl", CrawlSection, run, sys.argv[1:])
