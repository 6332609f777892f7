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

SEPARATOR = "\n"  # between texts: in no gram
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

    def shingles(self, texts: list[str]) -> list[NDArray[np.uint32]]:
        """Hashes of all runs of n grams of each text, shape (grams - n + 1,); none of a text of fewer than n
        grams. Texts are read together, because NumPy's calls cost more than the work of a short text.
        """
        found = grams(SEPARATOR.join(texts))
        ends = np.cumsum([len(text) + len(SEPARATOR) for text in texts])
        last = np.searchsorted(found.starts, ends)  # grams before the end of each text
        hashes = (mixed(runs(found.hashes, self.ngram)) >> np.uint64(32)).astype(np.uint32)
        bounds = zip([0, *last[:-1].tolist()], last.tolist(), strict=True)
        return [hashes[first : max(first, end - self.ngram + 1)] for first, end in bounds]

    def signatures(self, texts: list[str]) -> list[NDArray[np.uint32] | None]:
        """Smallest value of each permutation over all shingles, shape (hashes,), of each text; None without
        shingles.
        """
        return [self._smallest(found) if len(found) else None for found in self.shingles(texts)]

    def signature(self, text: str) -> NDArray[np.uint32] | None:
        """`signatures` of one text."""
        return self.signatures([text])[0]

    def _smallest(self, shingles: NDArray[np.uint32]) -> NDArray[np.uint32]:
        smallest = np.full(len(self.factors), np.iinfo(np.uint32).max, np.uint32)
        for start in range(0, len(shingles), ROWS):
            some = shingles[start : start + ROWS, None]
            table = np.multiply(some, self.factors, out=self._table[: len(some)])
            table += self.offsets
            np.minimum(smallest, table.min(axis=0), out=smallest)
        return smallest
