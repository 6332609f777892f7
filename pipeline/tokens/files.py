"""Token files: the documents of a file one after another, with an index of their ends.

`<name>.bin` holds token ids (little-endian uint16, or uint32 for vocabularies above 65,536), `<name>.idx` the
end of each document (uint64, in tokens, rising). Both are memory-mapped; a document is found by binary
search. A source is a list of token files, its parts, read as if they were one.
"""

import mmap
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
from pydantic import BaseModel, Field

from pipeline.core.stage import InputError


def token_type(vocabulary: int) -> str:
    """Return the narrowest type that holds every id."""
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


class PartFacts(BaseModel):
    """What `tokens.json` says of a part of a source."""

    documents: int = Field(ge=1)
    tokens: int = Field(ge=1)


def part_path(folder: Path, source: str, number: int) -> Path:
    """Where part `number` of a source lies in a mixture's `folder`, without suffix."""
    return folder / "parts" / source / f"{number:06d}"


class TokenFile:
    """A token file, opened for reading."""

    def __init__(self, base: Path, dtype: str) -> None:
        path = base.with_suffix(".bin")
        if not path.exists() or not path.stat().st_size:
            raise InputError(f"{path}: no tokens in this source; the corpus is empty or was not written")
        try:
            self.tokens = _mapped(path, dtype)
            self.ends = _mapped(base.with_suffix(".idx"), "<u8")
        except (OSError, ValueError) as error:  # no index, an empty one, or a part of a number at the end
            raise InputError(f"{path}: it or its index is damaged ({error}); rerun tokens") from error
        if int(self.ends[-1]) != len(self.tokens):
            raise InputError(
                f"{path}: {len(self.tokens)} tokens, its index says {self.ends[-1]}; rerun tokens"
            )

    def piece(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens `start` to `stop`, and the document ends after `start`, up to `stop`; both int64."""
        # Needles of another type would make NumPy convert, and so read, the whole index.
        needles = np.array([start, stop], self.ends.dtype)
        first, last = self.ends.searchsorted(needles, side="right")
        return self.tokens[start:stop].astype(np.int64), self.ends[first:last].astype(np.int64)


class TokenParts:
    """A source: its parts as one sequence of `length` tokens. `opened` opens a part; it may keep it open."""

    def __init__(
        self,
        bases: Sequence[Path],
        facts: Sequence[PartFacts],
        dtype: str,
        opened: Callable[[Path], TokenFile],
    ) -> None:
        width = np.dtype(dtype).itemsize
        for base, part in zip(bases, facts, strict=True):
            for suffix, size in ((".bin", width * part.tokens), (".idx", 8 * part.documents)):
                _check_size(base.with_suffix(suffix), size)
        self.bases, self.opened = bases, opened
        self.starts = [0, *accumulate(part.tokens for part in facts)]
        self.length = self.starts[-1]

    def window(self, start: int, length: int) -> tuple[np.ndarray, np.ndarray]:
        """`length + 1` tokens (int64) from `start`, and the document ends in the first `length`, from it."""
        at, stop, tokens, ends = start, min(start + length + 1, self.length), [], []
        part = bisect_right(self.starts, start) - 1
        while at < stop:
            begin, until = self.starts[part], min(stop, self.starts[part + 1])
            found, inside = self.opened(self.bases[part]).piece(at - begin, until - begin)
            tokens.append(found)
            ends.append(inside + (begin - start))
            at, part = until, part + 1
        joined = np.concatenate(ends)
        return np.concatenate(tokens), joined[joined <= length]


def _check_size(path: Path, size: int) -> None:
    try:
        found = path.stat().st_size
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; rerun tokens") from error
    if found != size:
        raise InputError(f"{path}: {found} bytes, tokens.json says {size}; rerun tokens")


def _mapped(path: Path, dtype: str) -> np.ndarray:
    """Map a file of numbers for reading here and there: Linux else fetches a megabyte around a page."""
    with path.open("rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    memory.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(memory, dtype)
