"""Near-duplicate pairs of some MinHash buckets: pages with equal hashes there, and a check of each pair.

The instance `buckets-<number>` does every `crawl.bucket_jobs`-th rank: a bucket, or, with more jobs than
buckets, a range of its hashes. Candidates are those of datatrove's stage 2, which merges sorted files instead
of the ranges that are in memory here. Each candidate pair must reach the minimum similarity, estimated from
the whole signatures, so that the threshold is sharp and does not depend on the number of buckets.

Writes `pairs` (`pairs.py`): of each set of similar pages the others with the first.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pipeline.config.crawl import CrawlSection
from pipeline.crawl.pairs import NEAR, PairSorter, begins_group, pairs_of
from pipeline.crawl.signature_store import HASH_END, OF_SHARD, Bits, SignedShards, number_of
from pipeline.protocol.progress import Progress
from pipeline.protocol.stage import Counts, Stage, run_stage

SORTED = 1 << 21  # records that are in memory at once
COMPARED = 1 << 19  # pages whose signatures are in memory at once
ROWS = 1 << 12  # pairs of signatures compared at once
GROUP = 500  # pages of a group that are compared pair by pair
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


def small_groups(groups: Pages, places: Pages, rows: Hashes, least: float) -> Iterator[Pages]:
    """Yield what `similar_pairs` does, for many groups at once: in each round the first page of all of them.
    `places` (M,) in `rows` (N, hashes) of the sorted groups' (M,) pages.
    """
    while len(groups):
        first, sizes = firsts(groups)
        leaders = np.repeat(places[first], sizes - 1)
        groups, members = np.delete(groups, first), np.delete(places, first)
        similar = np.zeros(len(members), bool)
        for start in range(0, len(members), ROWS):
            some = slice(start, start + ROWS)
            equal = np.count_nonzero(rows[leaders[some]] == rows[members[some]], axis=1)
            similar[some] = equal / rows.shape[1] >= least
        yield np.column_stack([leaders, members])[similar]
        groups, places = groups[~similar], members[~similar]


def similar_pairs(group: Pages, rows: Hashes, least: float) -> Iterator[Pages]:
    """(leader, member) pairs (M, 2) among a group's pages with their signatures (N, hashes).

    The first remaining page and all remaining pages similar to it form one set. A group of more than `GROUP`
    pages, such as the pages of one template, would take quadratic time, so it is split further, by one hash
    after the other as in an LSH forest (Bawa et al. 2005), until its pages are few or all alike. The order of
    the columns is that of the hashes: another one in each bucket loses other pairs.
    """
    todo = [(group, rows, 0)]
    while todo:
        group, rows, column = todo.pop()
        while len(group) > GROUP and column < rows.shape[1]:
            values, inverse = np.unique(rows[:, column], return_inverse=True)
            column += 1
            if len(values) > 1:
                order = np.argsort(inverse, kind="stable")
                borders = np.searchsorted(inverse[order], range(1, len(values)))
                todo += [(group[some], rows[some], column) for some in np.split(order, borders)]
                group = group[:0]
        while len(group) > 1:
            similar = np.count_nonzero(rows[1:] == rows[0], axis=1) / rows.shape[1] >= least
            members = group[1:][similar]
            if len(members):
                yield np.column_stack([np.full(len(members), group[0]), members])
            group, rows = group[1:][~similar], rows[1:][~similar]


def verified(
    groups: Pages, members: Pages, bucket: int, shards: SignedShards, config: CrawlSection
) -> Iterator[Pages]:
    """(earlier, later) pairs (M, 2) of similar pages among the candidates (`candidates`) of a bucket."""
    least = config.min_similarity
    for batch in batches(groups):
        pages, places = np.unique(members[batch], return_inverse=True)
        rows = shards.signatures(pages, config.buckets * config.hashes_per_bucket)
        first, sizes = firsts(groups[batch])
        small = np.repeat(sizes <= GROUP, sizes)
        similar = [*small_groups(groups[batch][small], places[small], rows, least)]
        for start, size in zip(first[sizes > GROUP].tolist(), sizes[sizes > GROUP].tolist(), strict=True):
            large = places[start : start + size]
            own = np.roll(rows[large], -bucket * config.hashes_per_bucket, axis=1)  # its own hashes first
            similar += similar_pairs(large, own, least)
        yield pages[np.concatenate(similar or [np.empty((0, 2), np.int64)])]


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
                for similar in verified(groups, members, bucket, shards, config):
                    kept.add(pairs_of(similar[:, 1], similar[:, 0], NEAR))
            bar.update(1)
    stage.counter("minhash.pairs", compared)
    return {"ranks": len(ranks), "candidates": compared, "similar": kept.write(stage.partial / "pairs")}


if __name__ == "__main__":
    run_stage("crawl", CrawlSection, run)
