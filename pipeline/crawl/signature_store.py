"""Read the hashes, sketches and names of the pages of all shards, a slice at a time.

Pages are numbered across shards, in input order. No file stays open, so the number of shards is not bounded
by the number of open files.
"""

import json
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.core.errors import InputError
from pipeline.core.identity import part_of, published, read_manifest
from pipeline.core.stage import Stage
from pipeline.core.store import Entry, named

URL, TEXT, TEMPLATE = "url", "text", "template"  # records of exact rules; those of MinHash have a number
HASH_WORDS = 4  # of 32 bits in the hash of a URL or a text
LIST = "shards.json"
HASH_END = 1 << 32
OF_SHARD = 128  # records of a shard in a range of hashes, at least on average: each is read by itself


def page_file(folder: Path) -> Path:
    """Find the pages in a result of extraction, or in one of `filter`: of a dump without duplicates."""
    filtered = folder / "pool.jsonl.zst"
    return filtered if filtered.exists() else folder / "pages.jsonl.zst"


def record_file(name: str | int) -> str:
    """Name the file of a shard's records: a bucket of MinHash, `URL`, `TEXT` or `TEMPLATE`.

    A record is its hash words and the page's place in the shard, 32 bits each; records are sorted. This is
    datatrove's form of signatures.
    """
    return f"bucket_{name:03d}.minhash.sig" if isinstance(name, int) else f"{name}.minhash.sig"


def signed_pages(folder: Path) -> int:
    """Count the pages in a result of `sign`."""
    return (folder / record_file(URL)).stat().st_size // (4 * (HASH_WORDS + 1))


class SignedShards:
    """The results of `sign` in input order. `starts` (shards + 1,): index of the first page of each shard."""

    def __init__(self, folders: Sequence[Path], digests: Sequence[str]) -> None:
        self.folders, self.digests = list(folders), list(digests)
        for folder, digest in zip(folders, digests, strict=True):
            check_shard(folder, digest)
        self.starts = np.cumsum([0, *map(signed_pages, folders)], dtype=np.int64)

    @classmethod
    def of(cls, result: Path) -> "SignedShards":
        """Open the shards that an earlier program listed in its result."""
        listed = listed_shards(result)
        return cls([folder for folder, _ in listed], [digest for _, digest in listed])

    def list(self, stage: Stage[Any]) -> None:
        """Write which shards these are into a program's result, by paths from there without keys."""
        home = named(stage.output)
        rows = [
            [os.path.relpath(named(folder), home), digest]
            for folder, digest in zip(self.folders, self.digests, strict=True)
        ]
        (stage.partial / LIST).write_text(json.dumps(rows, indent=0))

    def __len__(self) -> int:
        return len(self.folders)

    @property
    def pages(self) -> int:
        """Number of pages of all shards."""
        return int(self.starts[-1])

    def locate(self, pages: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(shards, places in them) of pages."""
        ranks = np.searchsorted(self.starts, pages, side="right") - 1
        return ranks, pages - self.starts[ranks]

    def records(
        self, rank: int, name: str | int, words: int, first: int = 0, last: int | None = None
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """(hashes (R, words), pages (R,)) of a shard's records `first` to `last` (without it)."""
        path, width = self.folders[rank] / record_file(name), words + 1
        number = -1 if last is None else (last - first) * width
        rows = np.fromfile(path, "<u4", number, offset=4 * width * first).reshape(-1, width)
        return rows[:, :words], rows[:, words].astype(np.int64) + self.starts[rank]

    def begins(self, name: str | int, words: int, limits: Sequence[int]) -> NDArray[np.uint32]:
        """(limits, shards): the first record of each shard whose first hash word is at least the limit.

        Found once for all ranges of hashes: with dumps both ranges and shards grow in number.
        """
        paths, wanted = (folder / record_file(name) for folder in self.folders), np.array(limits)
        return np.stack([_positions(path, words + 1, wanted) for path in paths], axis=1)

    def records_left(
        self, removed: "Bits", name: str | int, words: int, begins: NDArray[np.uint32]
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Read the `records` of all shards in a range, two rows of `begins`, of pages not removed."""
        spans = enumerate(begins.T.tolist())
        found = [self.records(rank, name, words, *span) for rank, span in spans if span[0] < span[1]]
        found = found or [(np.empty((0, words), np.uint32), np.empty(0, np.int64))]
        hashes, pages = (np.concatenate(some) for some in zip(*found, strict=True))
        left = ~removed.of(pages)
        return hashes[left], pages[left]

    def sketches(self, pages: NDArray[np.int64]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Sketches of pages in ascending order, one after the other, and where they begin (pages + 1,)."""
        bounds, parts = np.searchsorted(pages, self.starts), [np.empty(0, np.uint32)]
        for rank in np.flatnonzero(np.diff(bounds)).tolist():
            places = pages[bounds[rank] : bounds[rank + 1]] - self.starts[rank]
            parts += read_sketches(self.folders[rank], places)
        return np.concatenate(parts), np.cumsum([0, *map(len, parts[1:])])


class Bits:
    """One bit for each page, in a file."""

    def __init__(self, path: Path, pages: int | None = None) -> None:
        """Open the bits at `path`; with a number of pages make them, all 0."""
        if pages is not None:
            path.write_bytes(bytes(pages // 8 + 1))
        self.bits = np.memmap(path, np.uint8, "r" if pages is None else "r+")

    def set(self, pages: NDArray[np.int64]) -> None:
        """Make the bits of pages 1."""
        np.bitwise_or.at(self.bits, pages >> 3, np.uint8(1) << (pages & 7).astype(np.uint8))

    def of(self, pages: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return the bits of pages."""
        return ((self.bits[pages >> 3] >> (pages & 7).astype(np.uint8)) & 1).astype(bool)


def number_of(stage: Stage[Any], most: int) -> int:
    """Read the number at the end of an instance's name, one of `most`. Raises InputError for another name."""
    name, _, number = stage.instance.rpartition("-")
    if not number.isdecimal() or int(number) >= most:
        raise InputError(f"--instance {stage.instance}: expected {name or 'NAME'}-<number below {most}>")
    return int(number)


def check_shard(folder: Path, digest: str) -> None:
    """Raise InputError unless this is the result of `sign` that an earlier program read."""
    found = published(folder)
    if found is None or part_of(read_manifest(found[1]), ".") != digest:
        raise InputError(
            f"{folder}: signatures changed since deduplication; run crawl/exact and what follows again"
        )


def _positions(path: Path, width: int, limits: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Bisect a file of sorted rows of `width` words for all limits at once; a few of its pages are read."""
    low = np.zeros(len(limits), np.int64)
    if not (rows := path.stat().st_size // (4 * width)):
        return low.astype(np.uint32)
    words, high = map_random(path, np.dtype("<u4")), np.full(len(limits), rows)
    while (open_ := low < high).any():
        middle = (low + high) // 2
        below = words[width * np.minimum(middle, rows - 1)] < limits
        low, high = np.where(open_ & below, middle + 1, low), np.where(open_ & ~below, middle, high)
    return low.astype(np.uint32)


def read_sketches(folder: Path, places: NDArray[np.integer[Any]]) -> list[NDArray[np.uint32]]:
    """Read the sketches at some places of a shard and, mapped for random access, nothing else."""
    ends = map_random(folder / "sketch_ends", np.dtype("<u8"))
    hashes = map_random(folder / "sketches", np.dtype("<u4"))
    return [np.array(hashes[ends[place - 1] if place else 0 : ends[place]]) for place in places.tolist()]


def map_random(path: Path, kind: np.dtype[Any]) -> NDArray[Any]:
    """Map a file of rows that are read at random; without advice the system reads megabytes around a row."""
    with open(path, "rb") as file:
        if not (size := os.fstat(file.fileno()).st_size):
            return np.empty(0, kind)
        mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    mapped.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(mapped, kind)


def read_names(folder: Path, places: NDArray[np.uint32]) -> list[tuple[str, str]]:
    """(id, URL) of pages of a shard, read from the batches that hold them; all but the last are as long."""
    names: list[tuple[str, str]] = [("", "")] * len(places)
    with pa.memory_map(str(folder / "names.arrow")) as file:
        reader = pa.ipc.open_file(file)
        size = reader.get_batch(0).num_rows
        for number in np.unique(places // size).tolist():
            chosen = np.flatnonzero(places // size == number)
            batch = reader.get_batch(number).take(pa.array(places[chosen] - number * size))
            found = zip(batch["id"].to_pylist(), batch["url"].to_pylist(), strict=True)
            for place, name in zip(chosen.tolist(), found, strict=True):
                names[place] = name
    return names


def listed_shards(result: Path) -> list[tuple[Path, str]]:
    """(folder, digest) of the shards that a result lists."""
    rows, entry = json.loads((result / LIST).read_text()), Entry.of(result)
    places = [(Path(os.path.normpath(named(result) / place)), digest) for place, digest in rows]
    if entry is None:
        return places
    names = [str(place.parent.relative_to(entry.run)) for place, _ in places]
    return [(entry.before(name).data, digest) for name, (_, digest) in zip(names, places, strict=True)]
