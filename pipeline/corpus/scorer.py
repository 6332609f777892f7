"""Scores of pages by a fastText model: log-odds, which do not saturate (paper section 2.1, step 2)."""

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.corpus.classifier import MATH, OTHER

END = "</s>"  # fastText's word for the end of a line
NGRAM_FACTOR = np.uint64(116049371)  # of fastText's n-gram hash
MOST_WORDS = 1 << 18  # looked-up words that a process keeps: some 30 MB


class PageScorer:
    """Log-odds of a page being mathematical: log p(math) - log p(other).

    They are the difference of the two labels' activations, because fastText's probabilities, rounded near 0
    and 1, would tie the best pages. An activation is the mean of the matrix rows of a text's words and
    n-grams times the label's vector. Each row is multiplied once, when the model is loaded, so that scoring
    a page averages one number instead of `dimension` numbers for each word and n-gram.
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
        """Score a normalised text; 0 for one without a known word or n-gram."""
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
    """What a word adds to a score, looked up in fastText's dictionary once: word -> index in the columns.

    Columns: the word's hash, from which fastText computes those of n-grams; the sum and the number of its
    rows (its own if it is in the dictionary, and those of its character n-grams).
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
    """fastText's hash of a word: 32-bit FNV-1a over signed bytes, read as a signed number."""
    value = 2166136261
    for byte in word.encode():
        value = (value ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * 16777619 & 0xFFFFFFFF
    return value - (value >> 31 << 32)
