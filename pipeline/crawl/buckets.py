"""Near-duplicate pairs of some MinHash buckets: datatrove's stage 2, and a check of its candidates.

The instance `buckets-<number>` does every `crawl.bucket_jobs`-th of datatrove's ranks. With more jobs than
buckets several ranks share one, each with a range of hashes. Stage 2 is given the signatures that more than
one page has: those of most pages are theirs alone. Each candidate pair must reach the minimum similarity,
estimated from the whole signatures, so that the threshold is sharp and does not depend on the number of
buckets.

Writes `pairs` (`pairs.py`): of each set of similar pages the others with the first.
"""

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from shutil import rmtree

import numpy as np
from datatrove.pipeline.dedup.minhash import MinhashDedupBuckets
from loguru import logger
from numpy.typing import NDArray

from pipeline.common.progress import Progress
from pipeline.common.stage import Counts, Stage, run_stage
from pipeline.config.crawl import CrawlSection
from pipeline.crawl.exact import Bits
from pipeline.crawl.pairs import NEAR, PairSorter, pairs_of
from pipeline.crawl.signatures import minhash_config
from pipeline.crawl.signed import HASH_END, SignedShards, number_of

READ_AHEAD = 1000  # signatures that datatrove reads at once from each file
FILES = 400  # datatrove's stages keep a file or two open for each of its input files
PAIRS = 1 << 20  # candidate pairs read at once
SORTED = 1 << 21  # records that are in memory at once
COMPARED = 1 << 18  # pages whose signatures are in memory at once
ROWS = 1 << 12  # pairs of signatures compared at once
FEW = 16  # pages of a group that is compared together with others
GROUP = 500  # pages of a group that are compared pair by pair
Pages = NDArray[np.int64]
Pairs = NDArray[np.uint32]


def parts_of(shards: SignedShards) -> Pages:
    """First pages of at most `FILES` groups of shards in a row, then the number of pages: (parts + 1,)."""
    size = max(1, -(-len(shards) // FILES))
    return np.append(shards.starts[:-1:size], shards.pages)


def bounds_of(shards: SignedShards, bucket: int, parts: int, words: int) -> list[int]:
    """Limits between `parts` ranges of first hashes, each with about as many records: quantiles of the shard
    with most pages. Hashes are minima, so most of them are low.
    """
    hashes = shards.records(int(np.argmax(np.diff(shards.starts))), bucket, words)[0][:, 0]
    inner = hashes[len(hashes) * np.arange(1, parts) // parts] if len(hashes) else np.zeros(parts - 1, int)
    return [0, *inner.tolist(), HASH_END]


def repeated(hashes: Pairs) -> NDArray[np.bool_]:
    """Which of hashes (R, words) may have an equal among the others: those whose first two words have."""
    _, inverse, counts = np.unique(
        np.ascontiguousarray(hashes[:, :2]).view(f"u{4 * min(2, hashes.shape[1])}").ravel(),
        return_inverse=True,
        return_counts=True,
    )
    return counts[inverse] > 1


def write_signatures(
    folder: Path, bucket: int, bounds: list[int], shards: SignedShards, removed: Bits, words: int
) -> int:
    """Write signatures of the pages left whose first hash is within `bounds`, a sorted file for each part, as
    datatrove's stage 1 does; returns the number of these pages. Signatures that no other page has are left
    out: they make no pair. Those between two bounds are in memory at once.
    """
    parts, left = parts_of(shards), 0
    place = folder / f"bucket_{bucket:03d}"
    place.mkdir(parents=True)
    for span in pairwise(bounds):
        records = [records_left(part, bucket, span, shards, removed, words) for part in pairwise(parts)]
        again = repeated(np.concatenate(records)[:, :words])
        left += len(again)
        ends = np.cumsum([len(some) for some in records])
        for part, (some, chosen) in enumerate(zip(records, np.split(again, ends[:-1]), strict=True)):
            kept = some[chosen]
            with (place / f"{part:05d}.minhash.sig").open("ab") as file:
                kept[np.lexsort(kept.T[::-1])].astype("<u4").tofile(file)
    return left


def records_left(
    part: tuple[int, int], bucket: int, span: tuple[int, int], shards: SignedShards, removed: Bits, words: int
) -> Pairs:
    """Records (R, words + 1) of the pages left in a part: hashes, and the place in the part."""
    first, end = part
    ranks = np.flatnonzero((shards.starts[:-1] >= first) & (shards.starts[1:] <= end)).tolist()
    found = [shards.records(rank, bucket, words, *span) for rank in ranks]
    hashes, pages = (np.concatenate(some) for some in zip(*found, strict=True))
    left = ~removed.of(pages)
    return np.column_stack([hashes[left], (pages[left] - first).astype(np.uint32)])


def blocks(path: Path) -> Iterator[Pairs]:
    """The pairs (P, 4) of a `.dups` file in blocks that end where a chain does."""
    left = np.empty((0, 4), np.uint32)
    with path.open("rb") as file:
        while data := file.read(16 * PAIRS):
            pairs = np.concatenate([left, np.frombuffer(data, "<u4").reshape(-1, 4)])
            ends = np.flatnonzero((pairs[1:, :2] != pairs[:-1, 2:]).any(axis=1)) + 1
            end = ends[-1] if len(ends) else 0
            yield pairs[:end]
            left = pairs[end:]
    yield left


def chains(pairs: Pairs, parts: Pages) -> tuple[Pages, Pages]:
    """(groups, pages), both (M,) and sorted, of the pages with equal hashes in `pairs` (P, 4): part and place
    of a page, then of the next.

    Stage 2 writes a group as a chain, A-B, B-C. One of more than `COMPARED` pages is cut.
    """
    pages = parts[pairs[:, [0, 2]]] + pairs[:, [1, 3]]
    heads = np.ones(len(pages), bool)
    heads[1:] = pages[1:, 0] != pages[:-1, 1]
    groups = np.cumsum(heads)
    groups = np.concatenate([groups[heads], groups])
    pages = np.concatenate([pages[heads, 0], pages[:, 1]])
    order = np.lexsort((pages, groups))
    first, sizes = firsts(groups[order])
    places = np.arange(len(order)) - np.repeat(first, sizes)
    return np.cumsum(places % COMPARED == 0), pages[order]


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


def small_groups(groups: Pages, places: Pages, rows: Pairs, least: float) -> Iterator[Pages]:
    """What `similar_pairs` yields, for many groups at once: in each round the first page of all of them.
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


def similar_pairs(group: Pages, rows: Pairs, least: float) -> Iterator[Pages]:
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


def _verify(found: Path, kept: PairSorter, bucket: int, shards: SignedShards, config: CrawlSection) -> None:
    """Add the similar pairs among a bucket's candidates in the file `found` to `kept`."""
    parts, least = parts_of(shards), config.min_similarity
    for pairs in blocks(found):
        every, members = chains(pairs, parts)
        for batch in batches(every):
            groups = every[batch]
            pages, places = np.unique(members[batch], return_inverse=True)
            rows = shards.signatures(pages, config.buckets * config.hashes_per_bucket)
            first, sizes = firsts(groups)
            small = np.repeat(sizes <= FEW, sizes)
            similar = [*small_groups(groups[small], places[small], rows, least)]
            for start, size in zip(first[sizes > FEW].tolist(), sizes[sizes > FEW].tolist(), strict=True):
                large = places[start : start + size]
                own = np.roll(rows[large], -bucket * config.hashes_per_bucket, axis=1)  # its own hashes first
                similar += similar_pairs(large, own, least)
            earlier, later = pages[np.concatenate(similar or [np.empty((0, 2), np.int64)])].T
            kept.add(pairs_of(later, earlier, NEAR))


def run(stage: Stage[CrawlSection]) -> Counts:
    """Find the similar pairs of this job's ranks; returns the numbers of candidates and of similar pairs."""
    logger.disable("datatrove")  # its blocks log every file
    config, result = stage.config, stage.input("exact")
    shards, removed = SignedShards.of(result), Bits(result / "removed.bits")
    workers = -(-config.bucket_jobs // config.buckets)
    steps = max(1, -(-shards.pages // (workers * SORTED)))
    ranks = range(number_of(stage, config.bucket_jobs), config.buckets * workers, config.bucket_jobs)
    kept, candidates = PairSorter(stage.work / "pairs"), 0
    with Progress(f"crawl {stage.instance}", len(ranks), unit="rank") as bar:
        for rank in ranks:
            bucket, worker = divmod(rank, workers)
            work = stage.work / "minhash"
            rmtree(work, ignore_errors=True)
            bounds = bounds_of(shards, bucket, workers * steps, config.hashes_per_bucket)
            own = bounds[worker * steps : (worker + 1) * steps + 1]
            signed = write_signatures(
                work / "signatures", bucket, own, shards, removed, config.hashes_per_bucket
            )
            stage.counter("datatrove.minhash_documents", 0 if bucket else signed)
            block = MinhashDedupBuckets(
                str(work / "signatures"),
                str(work / "candidates"),
                config=minhash_config(config),
                lines_to_buffer=READ_AHEAD,
            )
            block.run(rank=bucket, world_size=config.buckets)
            candidates += int(block.stats["total_matches"].total)
            _verify(work / "candidates" / f"{bucket:05d}_00.dups", kept, bucket, shards, config)
            bar.update(1)
    stage.counter("datatrove.minhash_pairs", candidates)
    similar = kept.write(stage.partial / "pairs")
    return {"ranks": len(ranks), "candidates": candidates, "similar": similar}


if __name__ == "__main__":
    run_stage("crawl", CrawlSection, run, sys.argv[1:])
