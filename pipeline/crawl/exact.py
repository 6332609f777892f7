"""Find pages with the URL or the text of an earlier page: the first rules of deduplication (paper section
2.1).

Same normalised URL, then, among the pages left, same text. Of the pages of a host whose texts differ in
numbers alone, as a calculator's do, the first `OF_TEMPLATE` stay; the paper has no such rule. Hashes of 128
bits are compared, in ranges of their values, each by one thread: all shards' records of a range are put
together and sorted, so memory holds as many ranges as there are threads.

Writes `pairs` (removed page, the page that stays, kind; sorted by page), `removed.bits` (one bit a page), and
`shards.json`, the signed shards that all later steps mean.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.config.crawl import CrawlSection
from pipeline.core.progress import Progress
from pipeline.core.stage import Counts, InputError, Stage, run_stage
from pipeline.crawl.pairs import SAME_TEMPLATE, SAME_TEXT, SAME_URL, Pairs, PairSorter, begins_group, pairs_of
from pipeline.crawl.signature_store import (
    HASH_END,
    HASH_WORDS,
    OF_SHARD,
    TEMPLATE,
    TEXT,
    URL,
    Bits,
    SignedShards,
)

RECORDS = 1 << 22  # of all shards in a range of hashes
OF_TEMPLATE = 100
# kind, how many stay
RULES = {URL: (SAME_URL, 1), TEXT: (SAME_TEXT, 1), TEMPLATE: (SAME_TEMPLATE, OF_TEMPLATE)}


def first_of_equal(
    hashes: NDArray[np.uint32], pages: NDArray[np.int64], staying: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(pages, first pages) of all pages whose row of `hashes` (R, words) `staying` earlier pages have."""
    order = np.lexsort((pages, *hashes.T))
    hashes, pages = hashes[order], pages[order]
    first = np.maximum.accumulate(np.where(begins_group(hashes), np.arange(len(pages)), 0))
    gone = np.arange(len(pages)) - first >= staying
    return pages[gone], pages[first[gone]]


def repeats(shards: SignedShards, removed: Bits, name: str, begins: NDArray[np.uint32]) -> Pairs:
    """Apply a rule to the pages that are not `removed`, in a range of hashes: two rows of what the shards
    say of `begins`.
    """
    kind, staying = RULES[name]
    left = shards.records_left(removed, name, HASH_WORDS, begins)
    return pairs_of(*first_of_equal(*left, staying), kind)


def given_shards(stage: Stage[CrawlSection]) -> SignedShards:
    """List the shards that `--input sign` names. Raises InputError if two hold pages of one WARC file."""
    folders = [Path(folder) for folder in stage.inputs.get("sign", [])]
    if not folders:
        raise InputError("no signatures given: use --input sign=FOLDER, for each folder that sign wrote")
    shards, seen = SignedShards(folders, stage.identity["inputs"]["sign"]), set[str]()
    for folder in folders:
        files = set((folder / "files.txt").read_text().splitlines())
        if twice := files & seen:
            raise InputError(
                f"{folder}: pages of {min(twice)} are in another shard, too; give each file once"
            )
        seen |= files
    return shards


def run(stage: Stage[CrawlSection]) -> Counts:
    """Find exact duplicates among all shards; returns their numbers by rule."""
    shards = given_shards(stage)
    removed = Bits(stage.partial / "removed.bits", shards.pages)
    found, counts = PairSorter(stage.work / "pairs"), dict.fromkeys((f"same_{name}" for name in RULES), 0)
    parts = -(-shards.pages // max(RECORDS, OF_SHARD * len(shards)))
    bounds = np.linspace(0, HASH_END, parts + 1).astype(np.int64).tolist()
    with (
        Progress(f"crawl {stage.instance}", len(RULES) * parts, unit="range") as bar,
        ThreadPoolExecutor(stage.launch.get("threads", 1)) as workers,
    ):
        for name in RULES:
            begins = shards.begins(name, HASH_WORDS, bounds)
            ranges = (begins[number : number + 2] for number in range(parts))
            for pairs in workers.map(partial(repeats, shards, removed, name), ranges):
                found.add(pairs)
                removed.set(pairs["page"].astype(np.int64))  # of other hashes: no range of this rule has them
                counts[f"same_{name}"] += len(pairs)
                bar.update(1)
    found.write(stage.partial / "pairs")
    shards.list(stage)
    return {"pages": shards.pages, **counts}


if __name__ == "__main__":
    run_stage("crawl", CrawlSection, run)
