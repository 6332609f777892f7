"""The fastText classifier: deterministic training, with settings that fit the number of pages, and scores
that are log-odds, which do not saturate (paper section 2.1, steps 1 and 2).

fastText initialises only a tenth of its matrix per thread. The rest keeps what the allocated memory held, so
that models differ from run to run, or end in NaN. With MALLOC_PERTURB_=255 glibc returns only zeroed memory
(a threshold above which blocks are mapped freshly is not enough, because large free blocks are reused).

Few pages need a large learning rate and many epochs: 1,700 pages at the paper's 0.1 and 3 epochs gave an
average precision of 0.90 on other pages of their sites, at 0.5 and 25 epochs 0.999. They also need rare
words, and character n-grams to recognise words that they do not hold. The first preset is measured; the two
between it and the paper's are steps from one to the other.

Departures: the paper does not state loss, buckets and text normalisation; they are ours.
"""

import hashlib
import json
import os
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config.corpus import CorpusSection
from pipeline.core.stage import InputError
from pipeline.corpus.training_set import LabelledPage

ZEROED_MEMORY = {"MALLOC_PERTURB_": "255", "MALLOC_MMAP_THRESHOLD_": "65536"}
MATH, OTHER = "__label__math", "__label__other"
NAMES = ("dimension", "learning_rate", "word_ngrams", "min_count", "epochs", "buckets", "subwords")
PRESETS = (  # for at most so many pages
    (3_000, (16, 0.5, 2, 1, 25, 200_000, (4, 6))),
    (30_000, (32, 0.5, 2, 2, 15, 500_000, (4, 6))),
    (300_000, (64, 0.3, 3, 3, 8, 1_000_000, (0, 0))),
)
PAPER = (256, 0.1, 3, 3, 3, 2_000_000, (0, 0))
END = "</s>"  # fastText's word for the end of a line
NGRAM_FACTOR = np.uint64(116049371)  # of fastText's n-gram hash
MOST_WORDS = 1 << 18  # looked-up words that a process keeps: some 30 MB


def restart_with_zeroed_memory(module: str) -> None:
    """Start this program again with `ZEROED_MEMORY` in its environment, which glibc reads only at the start;
    do nothing if it is there already.
    """
    if any(os.environ.get(name) != value for name, value in ZEROED_MEMORY.items()):
        arguments = [sys.executable, "-m", module, *sys.argv[1:]]
        os.execve(sys.executable, arguments, os.environ | ZEROED_MEMORY)


def scaled(config: CorpusSection, pages: int) -> CorpusSection:
    """Return the section with numbers in the place of each `auto`, by the number of training pages."""
    preset = next((values for most, values in PRESETS if pages <= most), PAPER)
    chosen = zip(NAMES, preset, strict=True)
    return config.model_copy(
        update={name: value for name, value in chosen if getattr(config, name) == "auto"}
    )


def settings(config: CorpusSection) -> dict[str, Any]:
    """Return the settings of fastText, by key."""
    return {name: getattr(config, name) for name in NAMES}


def train(pages: Sequence[LabelledPage], config: CorpusSection, file: Path) -> Any:
    """Train a fastText model on the pages, read in the order of a hash of their URLs; `file` is scratch.

    Raises InputError if fastText cannot learn from them.
    """
    import fasttext

    if len({page.math for page in pages}) < 2:
        raise InputError("corpus: the seed and the background need at least two pages each in the pool")
    ordered = sorted(pages, key=lambda page: hashlib.blake2b(f"{config.seed}/{page.url}".encode()).digest())
    with file.open("w") as lines:
        lines.writelines(f"{MATH if page.math else OTHER} {page.text}\n" for page in ordered)
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


def load(folder: Path) -> Any:
    """Load the model that `pipeline.corpus.train` wrote to `folder`. Raises InputError unless it is the very
    one: fastText crashes on a damaged file, or loads it.
    """
    import fasttext

    path = folder / "classifier.bin"
    try:
        notes = json.loads((folder / "train.json").read_text())
        with path.open("rb") as file:
            whole = hashlib.file_digest(file, "sha256").hexdigest() == notes["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder}: cannot be read ({error!r}); make it again") from error
    if not whole:
        raise InputError(f"{path}: damaged, its bytes are not those that train.json tells; make it again")
    return fasttext.load_model(str(path))


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
