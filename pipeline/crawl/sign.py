"""Hashes, MinHash signatures and sketches of one extraction shard: all that deduplication compares (paper
section 2.1).

Writes, for the pages in order: `sketches`, the smallest shingle hashes of each page, and `sketch_ends`; for
each MinHash bucket, for the normalised URLs, the texts and the templates (host, and text without its numbers,
where it has any) a file of sorted records (`signature_store.py`); `names.arrow`, ids and URLs for reading
single rows; `files.txt`, the WARC files of the pages. This is datatrove's stage 1 with signatures of our own
(`signatures.py`).
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from datatrove.data import Document
from numpy.typing import NDArray
from xxhash import xxh3_128_digest

from pipeline.config.crawl import CrawlSection
from pipeline.core.data.shards import ROWS, read_documents, table_schema
from pipeline.core.progress import Progress
from pipeline.core.stage import Counts, InputError, Stage, run_stage
from pipeline.crawl.signature_store import (
    HASH_WORDS,
    TEMPLATE,
    TEXT,
    URL,
    page_file,
    record_file,
)
from pipeline.crawl.signatures import ABSENT, SHINGLE, MinHasher
from pipeline.crawl.urls import normalise_url

NAMES = table_schema(id=str, url=str)
TOGETHER = 1 << 16  # characters whose words are hashed at once
NUMBERS = re.compile(r"(?<!\w)\d[\d.,\s]*(?!\w)")


def write_records(path: Path, hashes: NDArray[np.uint32], places: NDArray[np.uint32]) -> None:
    """Write hashes (R, words) and ascending places (R,) as sorted records, as datatrove's stage 1 does."""
    wide = hashes.astype(np.uint64)
    keys = [wide[:, column] for column in range(0, hashes.shape[1], 2)]
    for key, second in zip(keys, wide[:, 1::2].T, strict=False):  # of two words, which halves the time
        key <<= np.uint64(32)
        key |= second
    records = np.column_stack([hashes, places])
    records[np.lexsort(keys[::-1])].astype("<u4").tofile(path)


def groups(documents: Iterator[Document]) -> Iterator[list[Document]]:
    """Documents of about `TOGETHER` characters, at least one."""
    group: list[Document] = []
    size = 0
    for document in documents:
        group.append(document)
        size += len(document.text)
        if size >= TOGETHER:
            yield group
            group, size = [], 0
    if group:
        yield group


def run(stage: Stage[CrawlSection]) -> Counts:
    """Hash all pages of a shard; returns their number and how many have a signature."""
    config, partial = stage.config, stage.partial
    hasher = MinHasher(SHINGLE, config.buckets * config.hashes_per_bucket, config.seed)
    urls, texts, templates, files = bytearray(), bytearray(), bytearray(), set[str]()
    numbered: list[int] = []  # places of the pages with a number
    rows: list[dict[str, str]] = []
    with (
        Progress(f"crawl {stage.instance}", None, unit="page") as bar,
        pa.ipc.new_file(str(partial / "names.arrow"), NAMES) as names,
        (partial / "signatures").open("wb") as signatures,
        (partial / "sketches").open("wb") as sketches,
        (partial / "sketch_ends").open("wb") as ends,
    ):
        shard, end = page_file(stage.input("extract")), 0
        for group in groups(read_documents(shard)):
            for document in group:
                url, file = document.metadata.get("url"), document.metadata.get("warc_file")
                if not (isinstance(url, str) and isinstance(file, str)):
                    raise InputError(f"{shard}: page {document.id}: `url` and `warc_file` must be texts")
                files.add(file)
                address = normalise_url(url)
                urls += xxh3_128_digest(address.encode())
                texts += xxh3_128_digest(document.text.encode())
                template, numbers = NUMBERS.subn("0", document.text)
                if numbers:
                    numbered.append(len(texts) // 16 - 1)
                    templates += xxh3_128_digest(f"{address.partition('/')[0]}\n{template}".encode())
                rows.append({"id": document.id, "url": url})
                if len(rows) == ROWS:
                    names.write(pa.RecordBatch.from_pylist(rows, NAMES))
                    rows = []
            found, own = hasher.sketched([document.text for document in group])
            found.astype("<u4").tofile(signatures)
            np.concatenate(own).astype("<u4").tofile(sketches)
            borders = end + np.cumsum(list(map(len, own)))
            borders.astype("<u8").tofile(ends)
            end = int(borders[-1])
            bar.update(len(group))
        names.write(pa.RecordBatch.from_pylist(rows, NAMES))
    (partial / "files.txt").write_text("".join(f"{name}\n" for name in sorted(files)))
    every = range(len(urls) // 16)
    for name, hashes, places in ((URL, urls, every), (TEXT, texts, every), (TEMPLATE, templates, numbered)):
        table = np.frombuffer(bytes(hashes), ">u4").reshape(-1, HASH_WORDS)
        write_records(partial / record_file(name), table, np.array(places, np.uint32))
    signed = _write_buckets(partial, len(urls) // 16, config)
    return {"pages": len(urls) // 16, "signed": signed}


def _write_buckets(partial: Path, pages: int, config: CrawlSection) -> int:
    """Write the records of each bucket; returns how many pages have a signature."""
    width = config.hashes_per_bucket
    table = np.empty((0, config.buckets * width), np.uint32)
    if pages:
        table = np.memmap(partial / "signatures", "<u4", "r").reshape(-1, config.buckets * width)
    places = np.flatnonzero((table != ABSENT).any(axis=1)).astype(np.uint32)
    for bucket in range(config.buckets):
        hashes = table[:, bucket * width : (bucket + 1) * width][places]
        write_records(partial / record_file(bucket), hashes, places)
    (partial / "signatures").unlink()
    return len(places)


if __name__ == "__main__":
    run_stage("crawl", CrawlSection, run)
