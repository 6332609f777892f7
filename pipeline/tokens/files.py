"""Token files: all documents of a source in one flat file, with an index of their ends.

`<source>.bin` holds token ids (little-endian uint16, or uint32 for vocabularies above 65,536), `<source>.idx`
the end of each document (uint64, in tokens, rising). Both are memory-mapped; a document is found by binary
search.
"""

import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from pipeline.common.stage import InputError


def token_type(vocabulary: int) -> str:
    """The narrowest type that holds every id."""
    return "<u2" if vocabulary <= 2**16 else "<u4"


def write_tokens(base: Path, batches: Iterable[Sequence[Sequence[int]]], dtype: str) -> tuple[int, int]:
    """Write `<base>.bin` and `<base>.idx` from batches of documents; returns (documents, tokens)."""
    documents, tokens = 0, 0
    with base.with_suffix(".bin").open("wb") as data, base.with_suffix(".idx").open("wb") as index:
        for batch in batches:
            lengths = np.array([len(document) for document in batch], dtype="<u8")
            np.concatenate([np.asarray(document, dtype) for document in batch]).tofile(data)
            (tokens + lengths.cumsum(dtype="<u8")).tofile(index)
            documents, tokens = documents + len(batch), tokens + int(lengths.sum())
    return documents, tokens


def join_tokens(base: Path, parts: Sequence[Path]) -> None:
    """Concatenate the token files `parts` into `<base>.bin` and `<base>.idx`."""
    tokens = 0
    with base.with_suffix(".bin").open("wb") as data, base.with_suffix(".idx").open("wb") as index:
        for part in parts:
            with part.with_suffix(".bin").open("rb") as file:
                shutil.copyfileobj(file, data, 1 << 24)
            ends = np.fromfile(part.with_suffix(".idx"), "<u8")
            (ends + np.uint64(tokens)).tofile(index)
            tokens += int(ends[-1]) if len(ends) else 0


def read_facts(parts: Sequence[Path]) -> dict[str, int]:
    """Sums of the counts in `<part>.json` of all parts."""
    found = [json.loads(part.with_suffix(".json").read_text()) for part in parts]
    return {name: sum(facts[name] for facts in found) for name in ("documents", "tokens", "empty")}


class TokenFile:
    """A token file, opened for reading."""

    def __init__(self, base: Path, dtype: str) -> None:
        path = base.with_suffix(".bin")
        if not path.exists() or not path.stat().st_size:
            raise InputError(f"{path}: no tokens in this source; the corpus is empty or was not written")
        try:
            self.tokens = np.memmap(path, dtype, mode="r")
            self.ends = np.memmap(base.with_suffix(".idx"), "<u8", mode="r")
        except (OSError, ValueError) as error:  # no index, an empty one, or a part of a number at the end
            raise InputError(f"{path}: it or its index is damaged ({error}); rerun tokens") from error
        if int(self.ends[-1]) != len(self.tokens):
            raise InputError(
                f"{path}: {len(self.tokens)} tokens, its index says {self.ends[-1]}; rerun tokens"
            )

    def window(self, start: int, length: int) -> tuple[np.ndarray, np.ndarray]:
        """`length + 1` tokens (int64) from `start`, and the document ends inside, relative to `start`."""
        tokens = self.tokens[start : start + length + 1].astype(np.int64)
        first, last = np.searchsorted(self.ends, [start + 1, start + length + 1])
        return tokens, self.ends[first:last].astype(np.int64) - start
