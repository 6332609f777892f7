"""The fastText classifier: deterministic training, and scores that do not saturate (paper section 2.1, step
1).

fastText fills only a tenth of its matrix per thread and leaves the rest as the allocator hands it over:
used memory makes models differ from run to run, or ends in NaN. With MALLOC_PERTURB_=255 glibc hands over
zeros only, whatever was there (a threshold above which blocks are mapped freshly is not enough: a large
free block is used again all the same). Departures: the paper does not state loss, buckets and text
normalisation; they are ours.
"""

import hashlib
import os
import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.common.stage import InputError
from pipeline.config.corpus import CorpusSection

ZEROED_MEMORY = {"MALLOC_PERTURB_": "255", "MALLOC_MMAP_THRESHOLD_": "65536"}
_SHARED: "Scorer"
MATH, OTHER = "__label__math", "__label__other"
END = "</s>"  # fastText's word for the end of a line
NGRAM_FACTOR = np.uint64(116049371)  # fastText's, too
MOST_WORDS = 1 << 18  # looked-up words that a process keeps: some 30 MB


@dataclass(frozen=True)
class Example:
    """A page to learn from; `text` is normalised."""

    url: str
    host: str
    text: str
    math: bool
    language: str | None = None


def restart_with_zeroed_memory(module: str) -> None:
    """Start this program again unless the allocator already hands over zeros; glibc reads its settings only
    at the start.
    """
    if any(os.environ.get(name) != value for name, value in ZEROED_MEMORY.items()):
        arguments = [sys.executable, "-m", module, *sys.argv[1:]]
        os.execve(sys.executable, arguments, os.environ | ZEROED_MEMORY)


def train(examples: Iterable[Example], config: CorpusSection, file: Path) -> Any:
    """A fastText model of the examples, in the order of a hash of their URLs; `file` is scratch.

    Raises InputError where fastText cannot learn from them.
    """
    import fasttext

    examples = list(examples)
    if len({example.math for example in examples}) < 2:
        raise InputError("corpus: the seed and the background need at least two pages each in the pool")
    ordered = sorted(
        examples, key=lambda example: hashlib.blake2b(f"{config.seed}/{example.url}".encode()).digest()
    )
    with file.open("w") as lines:
        lines.writelines(f"{MATH if example.math else OTHER} {example.text}\n" for example in ordered)
    try:
        return fasttext.train_supervised(
            str(file),
            dim=config.dimension,
            lr=config.learning_rate,
            wordNgrams=config.word_ngrams,
            minCount=config.min_count,
            epoch=config.epochs,
            bucket=config.buckets,
            minn=config.subwords[0],
            maxn=config.subwords[1],
            thread=1,
            seed=config.seed,
            verbose=0,
        )
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"fastText: {error} ({len(ordered)} pages, corpus.min_count {config.min_count})"
        ) from error
    finally:
        file.unlink(missing_ok=True)


class Scorer:
    """Log-odds of a page being mathematical: log p(math) - log p(other).

    They are the difference of the two labels' activations: fastText's probabilities, rounded near 0 and 1,
    would tie the best pages. An activation is the mean of the matrix rows of a text's words and n-grams times
    the label's vector, so each row is multiplied once, when the model is loaded: what is left of a page is
    the mean of one number for each word and n-gram, instead of a row of `dimension`.
    """

    def __init__(self, model: Any) -> None:
        labels = dict(zip(model.get_labels(), model.get_output_matrix(), strict=True))
        direction = (labels[MATH] - labels[OTHER]).astype(np.float64)
        matrix = np.asarray(model.f.getInputMatrix())  # fastText's own memory, not a copy
        self._rows = np.einsum("ij,j->i", matrix, direction)  # the same bits for any number of threads
        settings = model.f.getArgs()
        self._ngrams, self._buckets = settings.wordNgrams, settings.bucket
        self._words = Words(model, self._rows)

    def __call__(self, text: str) -> float:
        """The score of a normalised text; 0 for one without a known word or n-gram."""
        tokens = [*text.split(), END]
        hashes, sums, counts = self._words.find(tokens)
        total, rows, gram = float(sums.sum()), int(counts.sum()), hashes
        first_bucket = len(self._rows) - self._buckets
        for length in range(2, min(self._ngrams, len(tokens)) + 1):
            gram = gram[:-1] * NGRAM_FACTOR + hashes[length - 1 :]
            total += float(self._rows[first_bucket:][gram % np.uint64(self._buckets)].sum())
            rows += len(gram)
        return total / rows if rows else 0.0


class Words(dict[str, int]):
    """What a word adds to a score, looked up in fastText's dictionary once: word -> place in the columns.

    Columns: the word's hash as fastText makes n-grams of it, the sum and number of its rows (itself if it is
    known, and its character n-grams).
    """

    def __init__(self, model: Any, rows: NDArray[np.float64]) -> None:
        super().__init__()
        self._model, self._rows = model, rows
        self._columns = array("q"), array("d"), array("q")

    def find(self, words: list[str]) -> tuple[NDArray[np.uint64], NDArray[np.float64], NDArray[np.int64]]:
        """(hash, sum of rows, number of rows) of each word, (N,) each."""
        if len(self) > MOST_WORDS:
            self.clear()
            self._columns = array("q"), array("d"), array("q")
        places = np.fromiter(map(self.__getitem__, words), np.int64, len(words))
        hashes, sums, counts = self._columns
        return (
            np.frombuffer(hashes, np.uint64)[places],
            np.frombuffer(sums, np.float64)[places],
            np.frombuffer(counts, np.int64)[places],
        )

    def __missing__(self, word: str) -> int:
        ids = self._model.f.getSubwords(word, "strict")[1]
        hashes, sums, counts = self._columns
        hashes.append(word_hash(word))
        sums.append(sum(map(self._rows.item, ids)))
        counts.append(len(ids))
        self[word] = len(counts) - 1
        return len(counts) - 1


def word_hash(word: str) -> int:
    """fastText's hash of a word: 32-bit FNV-1a over signed bytes, itself taken as a signed number."""
    value = 2166136261
    for byte in word.encode():
        value = (value ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * 16777619 & 0xFFFFFFFF
    return value - (value >> 31 << 32)


def share(scorer: Scorer) -> None:
    """Keep a scorer for processes forked from this one: they use its memory, whatever the model's size."""
    global _SHARED
    _SHARED = scorer


def shared() -> Scorer:
    """The scorer that this process or the one it was forked from keeps."""
    return _SHARED
