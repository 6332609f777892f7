"""Near-duplicate pairs of some MinHash buckets: pages with equal hashes there, and a check of each pair.

The instance `buckets-<number>` does every `crawl.bucket_jobs`-th rank: a bucket, or, with more jobs than
buckets, a range of its hashes. Candidates are those of datatrove's stage 2, which merges sorted files instead
of the ranges that are in memory here. Each candidate pair must reach the minimum similarity of its sketches,
so that the threshold is sharp and does not depend on the number of buckets.

Writes `pairs` (`pairs.py`): pages with earlier pages that they are like.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pipeline.config.crawl import CrawlSection
from pipeline.core.progress import Progress
from pipeline.core.stage import Counts, Stage, run_stage
from pipeline.crawl.compiled import njit
from pipeline.crawl.pairs import NEAR, PairSorter, begins_group, pairs_of
from pipeline.crawl.signature_store import HASH_END, OF_SHARD, Bits, SignedShards, number_of
from pipeline.crawl.signatures import similarity

SORTED = 1 << 21  # records that are in memory at once
COMPARED = 1 << 17  # pages whose sketches are in memory at once
NEAR_BY, MOST = 32, 8  # pages at each end of a group that a page is compared with; pairs of a page in a group
Pages = NDArray[np.int64]
Hashes = NDArray[np.uint32]


def bounds_of(shards: SignedShards, bucket: int, parts: int, words: int) -> list[int]:
    """Limits between `parts` ranges of first hashes, each with about as many records: quantiles of the shard
    with most pages. Hashes are minima, so most of them are low.
    """
    hashes = shards.records(int(np.argmax(np.diff(shards.starts))), bucket, words)[0][:, 0]
    inner = hashes[len(hashes) * np.arange(1, parts) // parts] if len(hashes) else np.zeros(parts - 1, int)
    return [0, *inner.tolist(), HASH_END]


def candidates(hashes: Hashes, pages: Pages) -> tuple[Pages, Pages]:
    """Find the pages (R,) whose hashes (R, words) another page has too: sorted (groups, pages), both (M,).

    A group of more than `COMPARED` pages is cut.
    """
    first_two = np.ascontiguousarray(hashes[:, :2]).view(f"u{4 * min(2, hashes.shape[1])}").ravel()
    _, inverse, counts = np.unique(first_two, return_inverse=True, return_counts=True)
    again = np.flatnonzero(counts[inverse] > 1)  # few: most signatures are of one page
    hashes, pages = hashes[again], pages[again]
    order = np.lexsort((pages, *hashes.T[::-1]))
    hashes, pages = hashes[order], pages[order]
    first, sizes = firsts(np.cumsum(begins_group(hashes)))
    places = np.arange(len(pages)) - np.repeat(first, sizes)
    groups = np.cumsum(places % COMPARED == 0)
    several = np.repeat(sizes, sizes) > 1
    return groups[several], pages[several]


def firsts(groups: Pages) -> tuple[Pages, Pages]:
    """Where each of the sorted groups (M,) begins, and its size."""
    first = np.flatnonzero(np.diff(groups, prepend=-1))
    return first, np.diff(first, append=len(groups))


def batches(groups: Pages) -> Iterator[slice]:
    """Parts of the sorted groups (M,), each of whole groups with up to `COMPARED` pages together."""
    ends, start = np.append(firsts(groups)[0][1:], len(groups)), 0
    while start < len(groups):
        end = int(ends[np.searchsorted(ends, start + COMPARED, side="right") - 1])
        yield slice(start, end)
        start = end


@njit(cache=True)
def similar_in_groups(
    groups: Pages, places: Pages, hashes: Hashes, begins: Pages, least: float
) -> tuple[Pages, Pages]:
    """(earlier, later) places of similar pages (P,) of the sorted groups (M,); `places` (M,) of their pages
    in the sketches, all `hashes` of which `begins` says where each begins.

    A page is compared with the first and the last `NEAR_BY` pages before it in its group, and paired with
    the first `MOST` of those that it is like: it goes if one of these stays.
    """
    earlier, later = np.empty(MOST * len(groups), np.int64), np.empty(MOST * len(groups), np.int64)
    number = start = 0
    for own in range(len(groups)):
        if groups[own] != groups[start]:
            start = own
        page, similar = places[own], 0
        sketch = hashes[begins[page] : begins[page + 1]]
        for other in range(start, own):
            if start + NEAR_BY <= other < own - NEAR_BY:
                continue
            before = places[other]
            if similarity(hashes[begins[before] : begins[before + 1]], sketch, least) > 0 or least == 0:
                earlier[number], later[number] = before, page
                number, similar = number + 1, similar + 1
                if similar == MOST:
                    break
    return earlier[:number], later[:number]


def verified(
    groups: Pages, members: Pages, shards: SignedShards, least: float
) -> Iterator[tuple[Pages, Pages]]:
    """(earlier pages, later pages) that are similar among the candidates (`candidates`) of a bucket."""
    for batch in batches(groups):
        pages, places = np.unique(members[batch], return_inverse=True)
        earlier, later = similar_in_groups(groups[batch], places, *shards.sketches(pages), least)
        yield pages[earlier], pages[later]


def run(stage: Stage[CrawlSection]) -> Counts:
    """Find the similar pairs of this job's ranks; returns the numbers of candidates and of similar pairs."""
    config, result = stage.config, stage.input("exact")
    shards, removed = SignedShards.of(result), Bits(result / "removed.bits")
    workers = -(-config.bucket_jobs // config.buckets)
    steps = max(1, -(-shards.pages // (workers * max(SORTED, OF_SHARD * len(shards)))))
    ranks = range(number_of(stage, config.bucket_jobs), config.buckets * workers, config.bucket_jobs)
    kept, compared = PairSorter(stage.work / "pairs"), 0
    with Progress(f"crawl {stage.instance}", len(ranks), unit="rank") as bar:
        for rank in ranks:
            bucket, worker = divmod(rank, workers)
            bounds = bounds_of(shards, bucket, workers * steps, config.hashes_per_bucket)
            own = bounds[worker * steps : (worker + 1) * steps + 1]
            begins = shards.begins(bucket, config.hashes_per_bucket, own)
            for step in range(steps):
                span = begins[step : step + 2]
                records = shards.records_left(removed, bucket, config.hashes_per_bucket, span)
                stage.counter("minhash.documents", 0 if bucket else len(records[1]))
                groups, members = candidates(*records)
                compared += len(groups) - len(firsts(groups)[0])
                for earlier, later in verified(groups, members, shards, config.min_similarity):
                    kept.add(pairs_of(later, earlier, NEAR))
            bar.update(1)
    stage.counter("minhash.pairs", compared)
    return {"ranks": len(ranks), "candidates": compared, "similar": kept.write(stage.partial / "pairs")}


if __name__ == "__main__":
    run_stage("crawl", CrawlSection, run)
