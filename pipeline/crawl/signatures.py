"""MinHash signatures in NumPy, written as datatrove's stage 1 writes them, for its stages 2 to 4.

Departures from datatrove's stage 1: words are the grams of `grams.py`, which include single CJK characters
(datatrove needs a spaCy tokeniser for each language); digits are kept (datatrove makes all numbers equal, and
so all exercises of a kind); permutations are 32-bit multiply-adds of shingle hashes, computed together.
"""

import numpy as np
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.utils.hashing import HashConfig
from numpy.typing import NDArray

from pipeline.config.crawl import CrawlSection
from pipeline.crawl.grams import grams, mixed, runs

ROWS = 256  # shingles hashed at once, so that the table of hashes stays in the cache


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
