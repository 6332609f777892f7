"""Extracted pages to a pool without duplicates: the second half of stage `crawl` (paper section 2.1).

Three rules in turn: same normalised URL, same text, near-duplicate by MinHash. The paper says only
"URL-based deduplication and near-deduplication". Near-duplicates: signatures of our own
(`signatures.py`), then datatrove's stages 2 (buckets), 3 (clusters) and 4 (filter). Between 2 and 3 each
candidate pair must reach the minimum similarity, estimated from the whole signatures, so that the threshold
is sharp and does not depend on the number of buckets.

Of a group of duplicates the first page in input order survives (order of extraction shards, WARC files and
offsets). datatrove's own choice depends on the shape of its union tree; only its clusters are used.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import pyarrow as pa
from datatrove.data import Document
from datatrove.pipeline.dedup.minhash import MinhashDedupFilter
from numpy.typing import NDArray
from xxhash import xxh3_128_digest

from pipeline.common.progress import Progress
from pipeline.common.shards import DocumentWriter, read_documents, write_table
from pipeline.common.stage import InputError, Stage, run_stage
from pipeline.config.crawl import CrawlSection
from pipeline.crawl.clusters import near_duplicates
from pipeline.crawl.signatures import MinHasher, ShardSignatures
from pipeline.crawl.urls import normalise_url

DUPLICATES = pa.schema(
    [
        ("id", pa.string()),
        ("url", pa.string()),
        ("duplicate_of", pa.string()),
        ("duplicate_of_url", pa.string()),
        ("kind", pa.string()),
        ("similarity", pa.float32()),
    ]
)
KINDS = ("", "url", "exact", "near")
UNIQUE, SAME_URL, SAME_TEXT, NEAR = range(4)


@dataclass
class PageKeys:
    """Hashes of all N pages in input order; a hash has 128 bits, a pair of integers."""

    urls: NDArray[np.uint64]  # (N, 2)
    texts: NDArray[np.uint64]  # (N, 2)
    starts: NDArray[np.int64]  # (shards + 1,): first page of each shard


def read_shard(task: tuple[int, Path], work: Path, config: CrawlSection) -> tuple[bytes, set[str]]:
    """Hash URL and text of every page of a shard and write its signatures into `work`; returns the hashes, 32
    bytes a page, and the names of the pages' WARC files.
    """
    rank, path = task
    hasher = MinHasher(config.ngram, config.buckets * config.hashes_per_bucket, config.seed)
    keys, files = bytearray(), set[str]()
    with ShardSignatures.writer(work, rank, len(hasher.factors)) as write_signature:
        for document in read_documents(path):
            files.add(document.metadata["warc_file"])
            keys += xxh3_128_digest(normalise_url(document.metadata["url"]).encode())
            keys += xxh3_128_digest(document.text.encode())
            write_signature(hasher.signature(document.text))
    return bytes(keys), files


def hash_pages(shards: list[Path], work: Path, stage: Stage[CrawlSection]) -> PageKeys:
    """Read every page once, several shards at a time if the stage has several cores."""
    keys, starts = bytearray(), [0]
    seen: set[str] = set()
    read = partial(read_shard, work=work, config=stage.config)
    with (
        Progress(f"crawl {stage.instance}", None, unit="page") as bar,
        ProcessPoolExecutor(stage.launch.get("threads", 1), mp_context=get_context("fork")) as pool,
    ):
        for path, (found, files) in zip(shards, pool.map(read, enumerate(shards)), strict=True):
            if files & seen:
                raise InputError(
                    f"{path}: pages of {min(files & seen)} are in another shard, too; give each file once"
                )
            seen |= files
            keys += found
            bar.update(len(found) // 32)
            starts.append(len(keys) // 32)
    table = np.frombuffer(bytes(keys), np.uint64).reshape(-1, 4)
    return PageKeys(table[:, :2], table[:, 2:], np.array(starts, np.int64))


def first_occurrence(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """For each row of `keys` (N, 2), the index of the first row equal to it; shape (N,)."""
    order = np.lexsort((keys[:, 1], keys[:, 0]))  # stable: equal keys stay in input order
    sorted_keys = keys[order]
    fresh = np.ones(len(keys), bool)
    fresh[1:] = (sorted_keys[1:] != sorted_keys[:-1]).any(axis=1)
    first = np.empty(len(keys), np.int64)
    first[order] = order[np.maximum.accumulate(np.where(fresh, np.arange(len(keys)), 0))]
    return first


def find_duplicates(
    keys: PageKeys, work: Path, config: CrawlSection, stage: Stage[CrawlSection]
) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.float32]]:
    """(targets, kinds, similarities) of all pages: the surviving page, the rule, and how similar they are.

    The target of a unique page is itself. Each rule sees only the pages that earlier rules left. Similarity
    is NaN except for near-duplicates. All of shape (N,).
    """
    pages = np.arange(len(keys.urls))
    target, kind = first_occurrence(keys.urls), np.zeros(len(pages), np.uint8)
    kind[target != pages] = SAME_URL
    left = pages[kind == UNIQUE]
    first = left[first_occurrence(keys.texts[left])]
    target[left] = first
    kind[left[first != left]] = SAME_TEXT
    signatures = ShardSignatures(work, keys.starts)
    clusters = near_duplicates(work, signatures, kind == UNIQUE, config, stage.counter)
    for cluster in clusters:
        target[cluster[1:]] = cluster[0]
        kind[cluster[1:]] = NEAR
    while (target != target[target]).any():  # a later rule made the original itself a duplicate
        target = target[target]
    similarity = np.full(len(pages), np.nan, np.float32)
    for page in np.flatnonzero(kind == NEAR):
        similarity[page] = signatures.similarity(page, target[page])
    return target, kind, similarity


def unique_pages(
    shards: list[Path], keys: PageKeys, kind: NDArray[np.uint8], work: Path, stage: Stage[CrawlSection]
) -> Iterator[Document]:
    """Yield the unique pages in input order, through datatrove's stage 4."""
    folder = work / "remove"
    folder.mkdir()
    for rank in range(len(shards)):
        removed = np.flatnonzero(kind[keys.starts[rank] : keys.starts[rank + 1]] != UNIQUE)
        (folder / f"{rank:06d}.remove").write_bytes(removed.astype("<u4").tobytes())
    for rank, path in enumerate(shards):
        block = MinhashDedupFilter(str(folder), lines_to_buffer=1000)
        yield from block.run(read_documents(path), rank, len(shards))
        stage.counter("datatrove.forwarded", block.stats["forwarded"].total)


def write_pool(stage: Stage[CrawlSection], pages: Iterator[Document], count: int) -> None:
    """Write `count` pages in equal, consecutive parts to the configured number of shards."""
    parts = stage.config.pool_shards
    for part in range(parts):
        size = count * (part + 1) // parts - count * part // parts
        with DocumentWriter(stage.partial / "pool" / f"{part:04d}.jsonl.zst") as writer:
            for _ in range(size):
                writer.write(next(pages))
    if (extra := next(pages, None)) is not None:
        raise RuntimeError(f"datatrove's filter left more pages than were found unique: {extra.id}")


def duplicate_rows(
    shards: list[Path], target: NDArray[np.int64], kind: NDArray[np.uint8], similarity: NDArray[np.float32]
) -> Iterator[dict[str, Any]]:
    """Rows of `duplicates.parquet` in input order; memory holds the names of originals only."""
    originals = set(target[kind != UNIQUE].tolist())
    names: dict[int, tuple[str, str]] = {}
    page = 0
    for path in shards:
        for document in read_documents(path):
            name = document.id, document.metadata["url"]
            if page in originals:
                names[page] = name
            if kind[page] != UNIQUE:  # its original comes first, so its name is known
                original, original_url = names[int(target[page])]
                yield {
                    "id": name[0],
                    "url": name[1],
                    "duplicate_of": original,
                    "duplicate_of_url": original_url,
                    "kind": KINDS[kind[page]],
                    "similarity": None if np.isnan(similarity[page]) else float(similarity[page]),
                }
            page += 1


def run(stage: Stage[CrawlSection]) -> dict[str, int | float | str]:
    """Deduplicate the pages of all extraction shards; returns counts by rule."""
    shards = [Path(folder) / "pages.jsonl.zst" for folder in stage.inputs.get("extract", [])]
    if not shards:
        raise InputError("no pages given: use --input extract=FOLDER, for each folder that extraction wrote")
    work = stage.work / "minhash"
    rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    keys = hash_pages(shards, work, stage)
    target, kind, similarity = find_duplicates(keys, work, stage.config, stage)
    kept = int((kind == UNIQUE).sum())
    write_pool(stage, unique_pages(shards, keys, kind, work, stage), kept)
    write_table(
        stage.partial / "duplicates.parquet", duplicate_rows(shards, target, kind, similarity), DUPLICATES
    )
    rmtree(work)
    found = {f"duplicates_{KINDS[code]}": int((kind == code).sum()) for code in (SAME_URL, SAME_TEXT, NEAR)}
    return {"pages": len(kind), "kept": kept, **found}


if __name__ == "__main__":
    run_stage("crawl", CrawlSection, run, sys.argv[1:])
