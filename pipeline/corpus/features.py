"""Pages as vectors for the second stage: words and pairs of words, and static embeddings.

The first part is a page's words and pairs of neighbouring words, each weighted by 1 + log of its count and by
how rare it is among the training pages (tf-idf), of length 1. The second is the mean of its words'
embeddings, standardised over the training pages; `EMBEDDING_WEIGHT` is its squared length. Embeddings know
words that the few training pages do not have.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.protocol.stage import InputError

LEAST_PAGES = 3  # of the training pages have a word or a pair that counts
MOST_WORDS = 3000  # of a page that are read
EMBEDDING_WEIGHT = 0.3  # squared length of a page's embedding; that of its words is 1
MOST_CACHED = 1 << 18  # words whose embeddings a process keeps
MATRICES = ("embeddings", "embedding.weight")  # of model2vec and sentence-transformers; of other tables
Vectors = NDArray[np.float64]


class Embeddings:
    """Static embeddings of words: the mean over the word's tokens, looked up once for each word.

    `folder`: a model2vec or sentence-transformers model, with `tokenizer.json` and a table of tokens in
    `model.safetensors` (`embeddings` with or without `mapping` and `weights`, or `embedding.weight`).
    Raises InputError.
    """

    def __init__(self, folder: Path) -> None:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        try:
            (table,) = sorted(folder.rglob("*.safetensors"))[:1] or [folder / "model.safetensors"]
            (words,) = sorted(folder.rglob("*tokenizer*.json"))[:1] or [folder / "tokenizer.json"]
            arrays = load_file(table)
            self._tokenizer = Tokenizer.from_file(str(words))
        except (OSError, SafetensorError) as error:
            raise InputError(f"{folder}: no model of static embeddings ({error})") from error
        except Exception as error:  # the tokenizers package raises plain exceptions
            raise InputError(f"{folder}: its tokenizer cannot be read ({error})") from error
        matrix = next((arrays[name] for name in MATRICES if name in arrays), None)
        if matrix is None:
            raise InputError(f"{table}: has none of {', '.join(MATRICES)}, but {', '.join(sorted(arrays))}")
        self._matrix = matrix.astype(np.float32)
        self._rows = arrays.get("mapping", np.arange(len(matrix)))
        self._weights = arrays.get("weights", np.ones(len(self._rows))).astype(np.float32)
        self.size = self._matrix.shape[1]
        self._places: dict[str, int] = {}
        self._words = np.zeros((1024, self.size), np.float32)

    def mean(self, words: Sequence[str]) -> Vectors:
        """Return the mean embedding (D,) of words; zeros for none."""
        if len(self._places) > MOST_CACHED:
            self._places.clear()
        new = [word for word in dict.fromkeys(words) if word not in self._places]
        if new:
            self._learn(new)
        places = np.fromiter(map(self._places.__getitem__, words), np.int64, len(words))
        return self._words[places].mean(axis=0, dtype=np.float64) if len(places) else np.zeros(self.size)

    def _learn(self, words: list[str]) -> None:
        while len(self._places) + len(words) > len(self._words):
            self._words = np.concatenate([self._words, np.zeros_like(self._words)])
        plain = [word.lstrip("\\") for word in words]
        encoded = self._tokenizer.encode_batch(plain, add_special_tokens=False)
        for word, found in zip(words, encoded, strict=True):
            ids = np.array(found.ids, np.int64)
            place = self._places[word] = len(self._places)
            rows = self._matrix[self._rows[ids]] * self._weights[ids][:, None]
            self._words[place] = rows.mean(axis=0) if len(ids) else 0


class Features:
    """What training pages have in common: their words and pairs with weights, and the scale of embeddings."""

    def __init__(
        self,
        words: list[str],
        keys: NDArray[np.int64],
        weights: Vectors,
        scale: tuple[Vectors, Vectors],
        embeddings: Embeddings | None,
    ) -> None:
        self.words, self.keys, self.weights, self.scale = words, keys, weights, scale
        self._places = {word: place for place, word in enumerate(words)}
        self._embeddings = embeddings

    @classmethod
    def learn(cls, texts: Sequence[str], embeddings: Embeddings | None) -> "Features":
        """Find the features that at least `LEAST_PAGES` of the normalised training texts have."""
        pages = [text.split()[:MOST_WORDS] for text in texts]
        counts: dict[str, int] = {}
        for page in pages:
            for word in set(page):
                counts[word] = counts.get(word, 0) + 1
        words = sorted(word for word, count in counts.items() if count >= LEAST_PAGES)
        found = cls(words, np.empty(0, np.int64), np.empty(0), (np.zeros(0), np.ones(0)), embeddings)
        each = [np.unique(found._keys_of(page)) for page in pages]
        keys, shared = np.unique(np.concatenate(each), return_counts=True)
        found.keys = keys[shared >= LEAST_PAGES]
        found.weights = np.log((1 + len(pages)) / shared[shared >= LEAST_PAGES])
        if embeddings:
            means = np.array([embeddings.mean(page) for page in pages])
            found.scale = means.mean(axis=0), means.std(axis=0) + 1e-6
        return found

    def _keys_of(self, page: Sequence[str]) -> NDArray[np.int64]:
        """Return a number for each known word of a page and each pair of neighbouring known words."""
        places = np.fromiter((self._places.get(word, -1) for word in page), np.int64, len(page))
        pairs = (places[:-1] + 1) * (len(self.words) + 1) + places[1:] + 1
        return np.concatenate([places[places >= 0], pairs[(places[:-1] >= 0) & (places[1:] >= 0)]])

    def of(self, text: str) -> tuple[NDArray[np.int64], Vectors]:
        """Return a normalised text's vector: the columns (C,) that are not 0 and their values (C,)."""
        page = text.split()[:MOST_WORDS]
        keys, counts = np.unique(self._keys_of(page), return_counts=True)
        places = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        known = self.keys[places] == keys if len(self.keys) else np.zeros(len(keys), bool)
        columns = places[known]
        values = (1 + np.log(counts[known])) * self.weights[columns]
        values = values / (np.sqrt((values**2).sum()) or 1.0)
        if not self._embeddings:
            return columns, values
        mean, spread = self.scale
        dense = (self._embeddings.mean(page) - mean) / spread
        dense *= np.sqrt(EMBEDDING_WEIGHT / ((dense**2).sum() or 1.0))
        columns = np.concatenate([columns, len(self.keys) + np.arange(len(dense))])
        return columns, np.concatenate([values, dense])

    def __len__(self) -> int:
        return len(self.keys) + len(self.scale[0])
