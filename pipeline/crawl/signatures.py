"""MinHash signatures, written as datatrove's stage 1 writes them, for its stages 2 to 4.

Departures from datatrove's stage 1: words are the grams of `grams.py`, which include single CJK characters
(datatrove needs a spaCy tokeniser for each language); digits are kept (datatrove makes all numbers equal, and
so all exercises of a kind); permutations are 32-bit multiply-adds of shingle hashes.
"""

import numpy as np
from numpy.typing import NDArray

from pipeline.crawl.compiled import njit
from pipeline.crawl.grams import grams, mixed, runs

SHINGLE = 5  # words (or CJK characters) in a gram of near-duplicates
SKETCH = 1024  # smallest hashes of a page's shingles, by which similarity is verified
SEPARATOR = "\n"  # between texts: in no gram
ABSENT = np.uint32(0xFFFFFFFF)  # in every column: a page too short to have a signature
Hashes = NDArray[np.uint32]


@njit(cache=True)
def _smallest(shingles: Hashes, bounds: NDArray[np.int64], factors: Hashes, offsets: Hashes) -> Hashes:
    """Find the smallest value of each permutation over each text's shingles, as (N, hashes).

    A text's shingles are those between its bounds (N, 2); `ABSENT` without any. Compiled, because NumPy would
    write all values of a page to memory and read them again, three times.
    """
    found = np.full((len(bounds), len(factors)), ABSENT)
    for text in range(len(bounds)):
        row = found[text]
        for shingle in shingles[bounds[text, 0] : bounds[text, 1]]:
            for number in range(len(factors)):
                value = np.uint32(np.uint32(shingle * factors[number]) + offsets[number])
                row[number] = min(row[number], value)
    return found


@njit(cache=True)
def similarity(one: Hashes, other: Hashes, least: float = 0.0) -> float:
    """Jaccard similarity of the pages of two sketches, or 0 if it is below `least`: the common share of their
    `SKETCH` smallest hashes together. Exact for pages of fewer shingles.
    """
    most = min(SKETCH, len(one) + len(other))
    at = to = shared = union = 0
    while union < SKETCH and (at < len(one) or to < len(other)):
        if to == len(other) or (at < len(one) and one[at] < other[to]):
            at += 1
        elif at == len(one) or other[to] < one[at]:
            to += 1
        else:
            at, to, shared = at + 1, to + 1, shared + 1
        union += 1
        if union - shared > (1 - least) * most:
            return 0.0
    return shared / union if union and shared >= least * union else 0.0


class MinHasher:
    """Computes signatures; `hashes` = buckets x hashes per bucket."""

    def __init__(self, ngram: int, hashes: int, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self.ngram = ngram
        self.factors = generator.integers(0, 2**32, size=hashes, dtype=np.uint32) | np.uint32(1)
        self.offsets = generator.integers(0, 2**32, size=hashes, dtype=np.uint32)

    def shingles(self, texts: list[str]) -> tuple[Hashes, NDArray[np.int64]]:
        """Hashes of runs of n grams, shape (S,), and between which of them (N, 2) each text has its own: none
        if it has fewer than n grams. Texts are read together, because NumPy's calls cost more than the work
        of a short text.
        """
        found = grams(SEPARATOR.join(texts))
        ends = np.cumsum([len(text) + len(SEPARATOR) for text in texts])
        last = np.searchsorted(found.starts, ends)  # grams before the end of each text
        first = np.concatenate([[0], last[:-1]])
        hashes = (mixed(runs(found.hashes, self.ngram)) >> np.uint64(32)).astype(np.uint32)
        return hashes, np.column_stack([first, np.maximum(first, last - self.ngram + 1)])

    def signatures(self, texts: list[str]) -> Hashes:
        """Smallest value of each permutation over a text's shingles (texts, hashes); `ABSENT` without any."""
        return _smallest(*self.shingles(texts), self.factors, self.offsets)

    def sketched(self, texts: list[str]) -> tuple[Hashes, list[Hashes]]:
        """`signatures`, and each text's sketch: the `SKETCH` smallest hashes of its shingles, sorted."""
        hashes, bounds = self.shingles(texts)
        sketches = [np.unique(hashes[first:last])[:SKETCH] for first, last in bounds.tolist()]
        return _smallest(hashes, bounds, self.factors, self.offsets), sketches

    def signature(self, text: str) -> Hashes:
        """`signatures` of one text, shape (hashes,)."""
        return self.signatures([text])[0]
