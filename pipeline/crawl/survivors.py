"""Decide which pages stay; list the duplicates of each extraction shard and what survives of each.

One pass in input order: a page goes if a page that stays is like it (`buckets`), so no two similar pages stay
and none goes for the sake of a page unlike it. The first such page survives it. datatrove joins similar pages
to clusters of which one page stays, however unlike the others are. Duplicates by the exact rules went before;
they follow the page that they repeat.

In memory are one bit a page and the pairs of `PAGES` pages.

Writes `removed/<shard>.parquet`: place of a removed page, kind, digest of the signed shard and place of the
page that stays. It depends on the pages of this shard and their targets only. Its metadata holds the digest
of its own signed shard. `shards.json` says where these are.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.config.crawl import CrawlSection
from pipeline.core.data.shards import table_schema
from pipeline.core.progress import Progress
from pipeline.core.stage import Counts, InputError, Stage, run_stage
from pipeline.crawl.compiled import njit
from pipeline.crawl.pairs import PAIR, Pairs, read_pairs
from pipeline.crawl.signature_store import Bits, SignedShards, map_random

PAGES = 1 << 17  # pages that are decided at once
REMOVED = table_schema(
    place=pa.uint32(), kind=pa.uint8(), shard=pa.dictionary(pa.int32(), pa.string()), target=pa.uint32()
)
Numbers = NDArray[np.uint64]


@njit(cache=True)
def remove_similar(pages: Numbers, targets: Numbers, gone: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Remove each page (N,), in order, of which a target (N,) stays; sets its bit in `gone`. Returns which
    pair names the first such target, for each removed page.
    """
    chosen, number, start = np.empty(len(pages), np.int64), 0, 0
    while start < len(pages):
        page, end, best = pages[start], start, -1
        while end < len(pages) and pages[end] == page:
            target = np.int64(targets[end])
            if not (gone[target >> 3] >> (target & 7)) & 1 and (best < 0 or targets[end] < targets[best]):
                best = end
            end += 1
        if best >= 0:
            gone[np.int64(page) >> 3] |= np.uint8(1 << (np.int64(page) & 7))
            chosen[number], number = best, number + 1
        start = end
    return chosen[:number]


@njit(cache=True)
def targets_of(wanted: Numbers, pages: Numbers, targets: Numbers) -> Numbers:
    """Return the targets of pages by a file of sorted pairs; a page that it lacks is its own."""
    found = wanted.copy()
    for number in range(len(wanted)):
        low, high = 0, len(pages)
        while low < high:
            middle = (low + high) // 2
            if pages[middle] < wanted[number]:
                low = middle + 1
            else:
                high = middle
        if low < len(pages) and pages[low] == wanted[number]:
            found[number] = targets[low]
    return found


def follow(pairs: Pairs, gone: Bits, files: list[Path]) -> Pairs:
    """Put the page that stays in the place of each target that is gone, by the pairs of `files`."""
    known = [map_random(file, PAIR) for file in files]
    while len(lost := np.flatnonzero(gone.of(pairs["target"].astype(np.int64)))):
        for rows in known:
            pairs["target"][lost] = targets_of(pairs["target"][lost], rows["page"], rows["target"])
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
    shards, gone = SignedShards.of(result), Bits(result / "removed.bits")
    gone.bits = np.array(gone.bits)
    files = [Path(folder) / "pairs" for folder in stage.inputs["buckets"]]
    same, near = result / "pairs", stage.work / "near"
    near.parent.mkdir(parents=True, exist_ok=True)
    (stage.partial / "removed").mkdir()
    with Progress(f"crawl {stage.instance}", 2 * shards.pages, unit="page") as bar:
        with near.open("wb") as file:
            for low in range(0, shards.pages, PAGES):
                pairs = np.concatenate([read_pairs(path, low, low + PAGES) for path in files])
                pairs = pairs[np.argsort(pairs["page"], kind="stable")]
                pairs[remove_similar(pairs["page"], pairs["target"], gone.bits)].tofile(file)
                bar.update(min(PAGES, shards.pages - low))
        for rank, (low, high) in enumerate(pairwise(shards.starts.tolist())):
            followed = follow(read_pairs(same, low, high), gone, [same, near])
            pairs = np.concatenate([followed, read_pairs(near, low, high)])
            table = _table(pairs[np.argsort(pairs["page"])], shards, rank)
            pq.write_table(table, stage.partial / f"removed/{rank:05d}.parquet", compression="zstd")
            removed += len(pairs)
            bar.update(high - low)
    near.unlink()
    shards.list(stage)
    return {"pages": shards.pages, "removed": removed}


if __name__ == "__main__":
    run_stage("crawl", CrawlSection, run)
