"""Finding benchmark texts in pages by their n-grams (paper section 2.1).

The paper: a text with a 10-gram of a benchmark is removed; benchmark texts of 3 to 9 grams must match
whole. It says neither what a gram is nor how text is normalised. Here a gram is a lower-cased word, a
number or a single CJK character; punctuation does not count. Runs of numbers, formulas and stock phrases
("is equal to the sum of the squares of the") are no evidence of a leak and are ignored: a run of full
length needs `WORDS` words of `LETTERS` letters or more, or `CHARACTERS` CJK characters; a shorter text
needs `CONTENT_SHORT` words of two letters or more, or CJK characters. TeX commands do not count.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from pipeline.corpus.normalise import CJK

TOKEN = re.compile(rf"\\[a-z]+|[{CJK}]|\d+|[^\W\d_{CJK}]+")
WORDS, LETTERS, CHARACTERS = 3, 4, 4
CONTENT_SHORT = 2
BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that its powers are a ring's units modulo 2^64
Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Tokens:
    """A text's tokens: strings, their hashes (T,), and where each stands in the text (T, 2), characters."""

    words: list[str]
    hashes: Hashes
    spans: list[tuple[int, int]]


@dataclass(frozen=True)
class Match:
    """A run of words that a page shares with an item; `span` in characters of the page."""

    benchmark: str
    item: str
    gram: str
    span: tuple[int, int]
    rule: str


def tokenise(text: str, cache: dict[str, int]) -> Tokens:
    """Tokens of the NFKC-normalised, lower-cased text; `cache` keeps the hashes of words."""
    found = list(TOKEN.finditer(unicodedata.normalize("NFKC", text).lower()))
    words = [match.group() for match in found]
    for word in set(words) - cache.keys():
        cache[word] = xxh3_64_intdigest(word.encode())
    hashes = np.fromiter((cache[word] for word in words), np.uint64, len(words))
    return Tokens(words, hashes, [match.span() for match in found])


def rolling(hashes: Hashes, n: int) -> Hashes:
    """Hash of each run of `n` tokens: (T - n + 1,), empty for shorter texts."""
    length = len(hashes) - n + 1
    if length <= 0:
        return np.empty(0, np.uint64)
    total = np.zeros(length, np.uint64)
    with np.errstate(over="ignore"):
        for offset in range(n):
            total = total * BASE + hashes[offset : offset + length]
    return total


def is_evidence(words: list[str], full: bool) -> bool:
    """Whether a run can show a leak: `full` for one of the full length, else a whole short text."""
    characters = sum("\u3400" <= word[0] <= "\u9fff" for word in words)
    spelt = [len(word) for word in words if word[0].isalpha()]
    if not full:
        return characters + sum(length > 1 for length in spelt) >= CONTENT_SHORT
    return characters / CHARACTERS + sum(length >= LETTERS for length in spelt) / WORDS >= 1


class Index:
    """The runs of all benchmark texts, by length."""

    def __init__(self, ngram: int, shortest: int) -> None:
        self.ngram, self.shortest = ngram, shortest
        self.cache: dict[str, int] = {}
        self._runs: dict[int, dict[int, tuple[str, str, tuple[str, ...]]]] = defaultdict(dict)
        self._sorted: dict[int, Hashes] = {}

    def add(self, benchmark: str, item: str, text: str) -> None:
        """Take in a question, an answer or a solution; texts shorter than `shortest` are never matched."""
        tokens = tokenise(text, self.cache)
        length = min(len(tokens.words), self.ngram)
        if length < self.shortest:
            return
        for start, value in enumerate(rolling(tokens.hashes, length).tolist()):
            words = tokens.words[start : start + length]
            if is_evidence(words, length == self.ngram):
                self._runs[length].setdefault(value, (benchmark, item, tuple(words)))
        self._sorted.clear()

    def __len__(self) -> int:
        return sum(len(runs) for runs in self._runs.values())

    def matches(self, text: str) -> Iterator[Match]:
        """The first run of each item that `text` shares, in the order of the page."""
        if len(self._sorted) != len(self._runs):
            self._sorted = {
                length: np.sort(np.fromiter(runs, np.uint64, len(runs)))
                for length, runs in self._runs.items()
            }
        tokens = tokenise(text, self.cache)
        seen: set[tuple[str, str]] = set()
        for start, length in sorted(self._positions(tokens.hashes)):
            benchmark, item, words = self._runs[length][
                int(rolling(tokens.hashes[start : start + length], length)[0])
            ]
            run = tokens.words[start : start + length]
            if tuple(run) != words or (benchmark, item) in seen:
                continue
            seen.add((benchmark, item))
            span = (tokens.spans[start][0], tokens.spans[start + length - 1][1])
            rule = f"{length}-gram" if length == self.ngram else "exact"
            yield Match(benchmark, item, " ".join(run), span, rule)

    def _positions(self, hashes: Hashes) -> Iterable[tuple[int, int]]:
        """(start, length) of the runs whose hashes are in the index."""
        for length, known in self._sorted.items():
            values = rolling(hashes, length)
            places = np.searchsorted(known, values)
            places[places == len(known)] = 0
            for start in np.flatnonzero(known[places] == values).tolist():
                yield start, length
