"""The ranking of all scored pages (paper section 2.1, step 2), sorted on disk in bounded memory.

Best score first; equal scores in the order of a hash of the page's id, then of the id. Quantiles of a sample
of the sort keys divide the ranking into parts that fit into memory, where each is sorted. The order does not
depend on the sample.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from shutil import rmtree

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.common.shards import read_batches, row_count

PART = 1 << 21  # pages sorted at once: some 500 MB
BATCH = 1 << 16  # pages read at once
SAMPLE = 100_000  # keys from which the limits are taken
ORDER = [("score", "descending"), ("tie", "ascending"), ("id", "ascending")]
COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


class Ranking:
    """Pages in rank order, read from disk again by each loop over it, in batches of at most BATCH."""

    def __init__(self, parts: list[Path], pages: int) -> None:
        self._parts = parts
        self.pages = pages

    def __len__(self) -> int:
        return self.pages

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for path in self._parts:
            with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
                yield from (batch for batch in stream if len(batch))


def rank(
    paths: list[Path], folder: Path, prepare: Callable[[pa.Table], pa.Table], part: int = PART
) -> Ranking:
    """Rank the pages of the score tables `paths`; `folder` is emptied and holds the ranking.

    `prepare` may add columns to each part before it is stored. About `part` pages are in memory at once.
    """
    rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    found = limits(paths, part)
    dealt = [folder / f"{number:06d}.dealt" for number in range(len(found) + 1)]
    deal(paths, found, dealt)
    parts, pages = [], 0
    for path in dealt:
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
            table = prepare(table_in_order(stream.read_all()))
        path.unlink()
        parts.append(path.with_suffix(".ranked"))
        pages += len(table)
        with pa.ipc.new_stream(str(parts[-1]), table.schema, options=COMPRESSED) as writer:
            writer.write_table(table, max_chunksize=BATCH)
    return Ranking(parts, pages)


def table_in_order(pages: pa.Table) -> pa.Table:
    """A table of scored pages in rank order."""
    return pages.take(pc.sort_indices(pages, ORDER))


def sort_keys(pages: pa.RecordBatch) -> NDArray[np.bytes_]:
    """(N,) keys of 16 bytes that order pages by descending score, then by their hashes."""
    bits = (pages["score"].to_numpy() + 0.0).view(np.uint64)  # the sum makes one zero of the two
    top = np.uint64(1 << 63)
    ascending = np.where(bits & top, ~bits, bits | top)  # of a float's bits, negative ones count backwards
    return np.stack([~ascending, pages["tie"].to_numpy()], axis=1).astype(">u8").view("S16").ravel()


def limits(paths: Iterable[Path], part: int) -> NDArray[np.bytes_]:
    """Sort keys that divide the ranking into parts of about `part` pages; empty for a single part."""
    paths = list(paths)
    total = sum(map(row_count, paths))
    step, seen, sample = max(1, total // SAMPLE), 0, [np.empty(0, "S16")]
    for path in paths:
        for batch in read_batches(path, BATCH, ["score", "tie"]):
            sample.append(sort_keys(batch)[-seen % step :: step].copy())  # a view would hold all
            seen += len(batch)
    keys, parts = np.sort(np.concatenate(sample)), -(-total // part)
    return keys[[len(keys) * number // parts for number in range(1, parts)]]


def deal(paths: list[Path], found: NDArray[np.bytes_], parts: list[Path]) -> None:
    """Write the pages of each stretch between limits to one file of `parts`."""
    with ExitStack() as stack:
        writers: list[pa.ipc.RecordBatchStreamWriter] = []
        for path in paths:
            for batch in read_batches(path, BATCH):
                if not writers:
                    new = (pa.ipc.new_stream(str(name), batch.schema, options=COMPRESSED) for name in parts)
                    writers = [stack.enter_context(writer) for writer in new]
                places = np.searchsorted(found, sort_keys(batch), side="right")
                batch = batch.take(pa.array(np.argsort(places, kind="stable")))
                ends = np.cumsum(np.bincount(places, minlength=len(parts)))
                for writer, start, end in zip(writers, [0, *ends[:-1]], ends, strict=True):
                    if end > start:
                        writer.write_batch(batch.slice(start, end - start))
