"""Pages with the URL or the text of an earlier page: the first rules of deduplication (paper section 2.1).

Same normalised URL, then, among the pages left, same text. Hashes of 128 bits are compared, in ranges of
their values, so memory holds a part of them: all shards' records of a range are put together and sorted.
With several `crawl.bucket_jobs` the jobs of `same` do this, and what they found is put together here: pages
of a range at a time, to the same bytes.

Writes `pairs` (removed page, the page that stays, kind; sorted by page), `removed.bits` (one bit a page), and
`shards.json`, the signed shards that all later steps mean.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.config.crawl import CrawlSection
from pipeline.crawl.pairs import SAME_TEXT, SAME_URL, Pairs, PairSorter, merged, pairs_of
from pipeline.crawl.shards import given_shards
from pipeline.crawl.signed import HASH_END, HASH_WORDS, TEXT, URL, SignedShards
from pipeline.protocol.progress import Progress
from pipeline.protocol.stage import Counts, InputError, Stage, run_stage

RECORDS = 1 << 23  # of all shards in a range of hashes
RULES = {URL: SAME_URL, TEXT: SAME_TEXT}


def first_of_equal(
    hashes: NDArray[np.uint32], pages: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(pages, first pages) of all pages whose row of `hashes` (R, words) is that of an earlier page."""
    order = np.lexsort((pages, *hashes.T))
    hashes, pages = hashes[order], pages[order]
    fresh = np.ones(len(pages), bool)
    fresh[1:] = (hashes[1:] != hashes[:-1]).any(axis=1)
    first = pages[np.maximum.accumulate(np.where(fresh, np.arange(len(pages)), 0))]
    return pages[~fresh], first[~fresh]


class Bits:
    """One bit for each page, in a file."""

    def __init__(self, path: Path, pages: int | None = None) -> None:
        """Open the bits at `path`; with a number of pages make them, all 0."""
        if pages is not None:
            path.write_bytes(bytes(pages // 8 + 1))
        self.bits = np.memmap(path, np.uint8, "r" if pages is None else "r+")

    def set(self, pages: NDArray[np.int64]) -> None:
        """Make the bits of pages 1."""
        np.bitwise_or.at(self.bits, pages >> 3, np.uint8(1) << (pages & 7).astype(np.uint8))

    def of(self, pages: NDArray[np.int64]) -> NDArray[np.bool_]:
        """The bits of pages."""
        return ((self.bits[pages >> 3] >> (pages & 7).astype(np.uint8)) & 1).astype(bool)


def repeats(
    shards: SignedShards, name: str, span: tuple[int, int] = (0, HASH_END), removed: Bits | None = None
) -> Iterator[Pairs]:
    """Apply a rule to the pages that are not `removed` and whose first hash word is in `span`: yields its
    pairs, of one range of hashes after another.
    """
    ranges = -(-shards.pages * (span[1] - span[0]) // (HASH_END * RECORDS))
    bounds = np.linspace(*span, ranges + 1).astype(np.int64)
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        parts = [shards.records(rank, name, HASH_WORDS, low, high) for rank in range(len(shards))]
        hashes, pages = (np.concatenate(some) for some in zip(*parts, strict=True))
        if removed is not None:
            left = ~removed.of(pages)
            hashes, pages = hashes[left], pages[left]
        yield pairs_of(*first_of_equal(hashes, pages), RULES[name])


def _find(stage: Stage[CrawlSection], removed: Bits, shards: SignedShards) -> Counts:
    """Apply both rules; returns the number of pages that each removes."""
    found, counts = PairSorter(stage.work / "pairs"), dict.fromkeys((f"same_{name}" for name in RULES), 0)
    with Progress(f"crawl {stage.instance}", len(RULES), unit="rule") as bar:
        for name in RULES:
            for pairs in repeats(shards, name, removed=removed):
                found.add(pairs)
                removed.set(pairs["page"].astype(np.int64))
                counts[f"same_{name}"] += len(pairs)
            bar.update(1)
    found.write(stage.partial / "pairs")
    return {"pages": shards.pages, **counts}


def _put_together(stage: Stage[CrawlSection], removed: Bits, shards: SignedShards) -> Counts:
    """Write what the jobs of `same` found; returns the number of pages that each rule removes."""
    jobs, found = stage.config.exact_jobs, np.zeros(len(RULES), np.int64)
    for program in ("urls", "texts"):
        if (given := len(stage.inputs.get(program, []))) != jobs:
            raise InputError(f"--input {program}: {given} folders, expected those of all {jobs} jobs")
    files = [Path(folder) / "pairs" for program in ("urls", "texts") for folder in stage.inputs[program]]
    with (stage.partial / "pairs").open("wb") as file:
        for pairs in merged(files, shards.pages):
            pairs.tofile(file)
            removed.set(pairs["page"].astype(np.int64))
            found += [np.count_nonzero(pairs["kind"] == kind) for kind in RULES.values()]
    same = dict(zip((f"same_{name}" for name in RULES), found.tolist(), strict=True))
    return {"pages": shards.pages, **same}


def run(stage: Stage[CrawlSection]) -> Counts:
    """Find exact duplicates among all shards; returns their numbers by rule."""
    shared = "shards" in stage.inputs
    shards = SignedShards.of(stage.input("shards")) if shared else given_shards(stage)
    removed = Bits(stage.partial / "removed.bits", shards.pages)
    counts = _put_together(stage, removed, shards) if shared else _find(stage, removed, shards)
    shards.list(stage)
    return counts


if __name__ == "__main__":
    run_stage("crawl", CrawlSection, run, sys.argv[1:])
