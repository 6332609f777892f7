"""Reading a mixture of 500B tokens as eight ranks of one node do: `make bench-tokens`.

Five sources of 100B tokens in 50M documents each, the corpus in a thousand parts: 2 TB as sparse files, of
which the disk holds the indexes (2 GB) and the windows that are read. Cold: the page cache has been told to
forget them. First each rank reads its rows as fast as it can, then while it trains, for which it sleeps as
long as an H100 needs for a 7B model.
"""

import os
import statistics
import time
from bisect import bisect_right
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
from table import ROOT, Row, publish, row_of

from pipeline.protocol.manifest import write_json
from pipeline.tokens.files import part_path
from pipeline.tokens.mixture import Mixture
from pipeline.training.engine import constant
from pipeline.training.flops import PEAKS, ModelFlops
from pipeline.training.next_token import Steps, TrainingPlan

SOURCES = {"corpus": 56, "algebraic": 4, "arxiv": 10, "code": 20, "web": 10}  # section 2.3 of the paper
PARTS = {"corpus": 1000}  # the others have one part
DOCUMENTS, LENGTH, CONTEXT = 50_000_000, 2000, 4096
RANKS, STEPS, ROWS = 8, 6, 8  # rows of a rank and step
WEIGHTS, MFU = 6.9e9, 0.4
SEQUENCE = 6 * WEIGHTS * CONTEXT / (MFU * PEAKS["H100"])  # seconds of training
DATA = "5 x 100B tokens, 50M documents each, sequences of 4,096"
PEER = "np.searchsorted(index, [start, stop]), needles of another type"
Found = tuple[list[float], int]  # seconds, bytes fetched from the disk


def write_mixture(folder: Path) -> None:
    """Indexes whole; of the tokens only the windows that the benchmark reads."""
    facts = {}
    for name, share in SOURCES.items():
        parts = PARTS.get(name, 1)
        documents = DOCUMENTS // parts
        ends = np.arange(LENGTH, (documents + 1) * LENGTH, LENGTH, dtype="<u8")
        part_path(folder, name, 0).parent.mkdir(parents=True)
        for base in (part_path(folder, name, number) for number in range(parts)):
            ends.tofile(base.with_suffix(".idx"))
            with base.with_suffix(".bin").open("wb") as file:
                file.truncate(4 * documents * LENGTH)
        listed = [{"documents": documents, "tokens": documents * LENGTH}] * parts
        facts[name] = {"share": share, "parts": listed}
    write_json(folder / "tokens.json", {"dtype": "<u4", "sources": facts})
    mixture, generator = Mixture(folder, CONTEXT, seed=0), np.random.default_rng(0)
    for n in range(STEPS * RANKS * ROWS):
        place = mixture.place(n)
        source, start = mixture.files[place.source], place.window * CONTEXT
        part = bisect_right(source.starts, start) - 1  # a window that goes on in the next part ends in zeros
        until = min(CONTEXT + 1, source.starts[part + 1] - start)
        with source.bases[part].with_suffix(".bin").open("r+b") as file:
            file.seek(4 * (start - source.starts[part]))
            file.write(generator.integers(0, 102_400, until, "<u4").tobytes())
    os.sync()


def forget(folder: Path) -> None:
    """Tell the page cache to forget the files."""
    for path in folder.glob("parts/*/*"):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def fetched() -> int:
    """Bytes that this process has fetched from the disk."""
    facts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(facts["read_bytes"])


def read(folder: Path, rank: int) -> Found:
    """Read the rank's rows; returns the seconds of each."""
    mixture, before, seconds = Mixture(folder, CONTEXT, seed=0), fetched(), []
    for n in range(rank, STEPS * RANKS * ROWS, RANKS):
        started = time.perf_counter()
        mixture.row(n)
        seconds.append(time.perf_counter() - started)
    return seconds, fetched() - before


def train(folder: Path, rank: int) -> Found:
    """Sleep for the rank's steps; returns the seconds it waited for the rows of each but the first."""
    mixture, before, seconds = Mixture(folder, CONTEXT, seed=0), fetched(), []
    plan = TrainingPlan(mixture.row, STEPS, RANKS * ROWS, constant(1.0), mixture.names)
    steps = Steps(SimpleNamespace(global_rank=rank, world_size=RANKS), plan, ROWS, ModelFlops(1, 1, 1), 1)
    for number in range(STEPS):
        started = time.perf_counter()
        steps.take(number)
        seconds.append(time.perf_counter() - started)
        time.sleep(ROWS * SEQUENCE)
    return seconds[1:], fetched() - before


def in_all_ranks(work: Callable[[Path, int], Found], folder: Path) -> Found:
    """What the ranks found side by side, together."""
    with ProcessPoolExecutor(RANKS, get_context("fork")) as pool:
        found = list(pool.map(work, [folder] * RANKS, range(RANKS)))
    return [value for seconds, _ in found for value in seconds], sum(count for _, count in found)


def promoted(folder: Path) -> float:
    """Seconds of a search for needles for which NumPy converts the index."""
    ends = np.memmap(part_path(folder, "web", 0).with_suffix(".idx"), "<u8", mode="r")
    started = time.perf_counter()
    np.searchsorted(ends, [DOCUMENTS, DOCUMENTS + CONTEXT])
    return time.perf_counter() - started


def window_times(folder: Path) -> list[float]:
    """Seconds of a window of `web`, whose 50M documents are in one part; it has been read before."""
    mixture, seconds = Mixture(folder, CONTEXT, seed=0), []
    web = mixture.names.index("web")
    places = [place for place in map(mixture.place, range(STEPS * RANKS * ROWS)) if place.source == web]
    for place in 2 * places:
        started = time.perf_counter()
        mixture.files[web].window(place.window * CONTEXT, CONTEXT)
        seconds.append(time.perf_counter() - started)
    return seconds[len(places) :]


def row(what: str, unit: str, ours: float, peer: float | None = None) -> Row:
    return row_of(what, unit, ours, peer, PEER if peer else None, DATA, rate=False)


def main() -> None:
    rows = []
    (ROOT / "results").mkdir(exist_ok=True)
    with TemporaryDirectory(dir=ROOT / "results") as name:
        folder = Path(name)
        write_mixture(folder)
        forget(folder)
        for state in ("cold", "warm"):
            seconds, count = in_all_ranks(read, folder)
            slow = statistics.quantiles(seconds, n=100)[-1]
            rows.append(row(f"a sequence, {state}, mean", "ms", 1e3 * statistics.fmean(seconds)))
            rows.append(row("the same: slower is 1 of 100", "ms", 1e3 * slow))
            rows.append(row("the same: fetched from the disk", "KB", count / len(seconds) / 1e3))
        promoted(folder)  # which also brings the whole index into main memory
        times = [1e3 * statistics.median(window_times(folder)), 1e3 * promoted(folder)]
        rows.append(row("window(), warm, a rank alone", "ms", *times))
        forget(folder)
        shares = [100 * value / (ROWS * SEQUENCE) for value in in_all_ranks(train, folder)[0]]
        what = f"waiting for rows, of a step of {ROWS * SEQUENCE:.2f} s"
        rows.append(row(f"{what}, cold, mean", "%", statistics.fmean(shares)))
        rows.append(row("the same: longest", "%", max(shares)))
    publish("tokens", rows, f"{RANKS} ranks")


if __name__ == "__main__":
    main()
