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
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.common.stage import InputError
from pipeline.config.corpus import CorpusSection

ZEROED_MEMORY = {"MALLOC_PERTURB_": "255", "MALLOC_MMAP_THRESHOLD_": "65536"}
_SHARED: "Scorer"
MATH, OTHER = "__label__math", "__label__other"


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
    """Log-odds of a page being mathematical.

    They are the difference of the two labels' activations: fastText's probabilities, rounded near 0 and 1,
    would tie the best pages.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        rows = dict(zip(model.get_labels(), model.get_output_matrix(), strict=True))
        self._direction = (rows[MATH] - rows[OTHER]).astype(np.float64)

    def __call__(self, text: str) -> float:
        """log p(math) - log p(other) of a normalised text; 0 for one without a known word."""
        return float(self._model.get_sentence_vector(text).astype(np.float64) @ self._direction)


def share(scorer: Scorer) -> None:
    """Keep a scorer for processes forked from this one: they use its memory, whatever the model's size."""
    global _SHARED
    _SHARED = scorer


def shared() -> Scorer:
    """The scorer that this process or the one it was forked from keeps."""
    return _SHARED
