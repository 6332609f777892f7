"""MinHash signatures in NumPy, written as datatrove's stage 1 writes them, for its stages 2 to 4.

Departures from datatrove's stage 1: words are the grams of `grams.py`, which include single CJK characters
(datatrove needs a spaCy tokeniser for each language); digits are kept (datatrove makes all numbers equal, and
so all exercises of a kind); permutations are 32-bit multiply-adds of shingle hashes, computed together.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.utils.hashing import HashConfig
from numpy.typing import NDArray

from pipeline.config.crawl import CrawlSection
from pipeline.crawl.grams import grams, mixed, runs

ROWS = 256  # shingles hashed at once, so that the table of hashes stays in the cache
ABSENT = np.uint32(0xFFFFFFFF)  # in every column: a page too short to have a signature


def minhash_config(config: CrawlSection) -> MinhashConfig:
    """The settings as datatrove's stages take them."""
    return MinhashConfig(
        n_grams=config.ngram,
        num_buckets=config.buckets,
        hashes_per_bucket=config.hashes_per_bucket,
        seed=config.seed,
        hash_config=HashConfig(precision=32),
    )


class MinHasher:
    """Computes signatures; `hashes` = buckets x hashes per bucket."""

    def __init__(self, ngram: int, hashes: int, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self.ngram = ngram
        self.factors = generator.integers(0, 2**32, size=hashes, dtype=np.uint32) | np.uint32(1)
        self.offsets = generator.integers(0, 2**32, size=hashes, dtype=np.uint32)
        self._table = np.empty((ROWS, hashes), np.uint32)

    def shingles(self, text: str) -> NDArray[np.uint32]:
        """Hashes of all runs of n grams, shape (grams - n + 1,); empty for a text of fewer than n grams."""
        return (mixed(runs(grams(text).hashes, self.ngram)) >> np.uint64(32)).astype(np.uint32)

    def signature(self, text: str) -> NDArray[np.uint32] | None:
        """Smallest value of each permutation over all shingles, shape (hashes,); None without shingles."""
        shingles = self.shingles(text)
        if not len(shingles):
            return None
        smallest = np.full(len(self.factors), np.iinfo(np.uint32).max, np.uint32)
        for start in range(0, len(shingles), ROWS):
            some = shingles[start : start + ROWS, None]
            table = np.multiply(some, self.factors, out=self._table[: len(some)])
            table += self.offsets
            np.minimum(smallest, table.min(axis=0), out=smallest)
        return smallest


class ShardSignatures:
    """Signatures of all pages, one memory-mapped file for each shard; pages are numbered across shards."""

    def __init__(self, folder: Path, starts: NDArray[np.int64]) -> None:
        """`starts` (shards + 1,): index of the first page of each shard."""
        self.starts, self.shards = starts, len(starts) - 1
        sizes = np.diff(starts)
        self._maps = [
            np.memmap(_file(folder, rank), "<u4", "r").reshape(sizes[rank], -1) if sizes[rank] else None
            for rank in range(self.shards)
        ]

    @staticmethod
    @contextmanager
    def writer(folder: Path, rank: int, hashes: int) -> Iterator[Callable[[NDArray[np.uint32] | None], None]]:
        """A function that appends the signature of a shard's next page; None becomes a row of `ABSENT`."""
        absent = np.full(hashes, ABSENT)
        with _file(folder, rank).open("wb") as file:
            yield lambda signature: (absent if signature is None else signature).astype("<u4").tofile(file)

    def locate(self, page: int) -> tuple[int, int]:
        """(shard, position in it) of a page."""
        rank = int(np.searchsorted(self.starts, page, side="right")) - 1
        return rank, page - int(self.starts[rank])

    def shard(self, rank: int) -> NDArray[np.uint32]:
        """Signatures of a shard, shape (pages, hashes)."""
        rows = self._maps[rank]
        return np.empty((0, 0), np.uint32) if rows is None else rows

    def rows(self, pages: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Signatures of pages, shape (pages, hashes)."""
        return np.stack([self.shard(rank)[position] for rank, position in map(self.locate, pages.tolist())])

    def similarity(self, one: int, other: int) -> float:
        """Estimated Jaccard similarity of the shingles of two pages."""
        rows = self.rows(np.array([one, other]))
        return float((rows[0] == rows[1]).mean())


def _file(folder: Path, rank: int) -> Path:
    return folder / f"{rank:05d}.signatures"


def write_signatures(
    folder: Path, rank: int, config: CrawlSection, signatures: ShardSignatures, chosen: NDArray[np.bool_]
) -> int:
    """Write a shard's signatures as datatrove's stage 1 does: a sorted file for each bucket.

    `chosen` (N,): which pages take part, if they have a signature. Returns how many do.
    """
    rows = signatures.shard(rank)
    taking_part = chosen[signatures.starts[rank] : signatures.starts[rank + 1]] & (rows != ABSENT).any(axis=1)
    positions = np.flatnonzero(taking_part).astype(np.uint32)
    width = config.hashes_per_bucket
    for bucket in range(config.buckets):
        hashes = rows[positions, bucket * width : (bucket + 1) * width]
        records = np.column_stack([hashes, positions])
        path = folder / f"bucket_{bucket:03d}" / f"{rank:05d}.minhash.sig"
        path.parent.mkdir(parents=True, exist_ok=True)
        records[np.lexsort(records.T[::-1])].astype("<u4").tofile(path)
    return len(positions)
