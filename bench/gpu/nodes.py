"""Step `ranks`: what all ranks do together. It needs torch alone, and the launcher that training has.

Under `srun` with one task per node the ranks of all nodes take part, else one rank for each GPU here. On a
CPU two launchers with two ranks each pretend to be two nodes. As a program, this module is one of the ranks.
"""

import pipeline.training.environment  # noqa: F401  # isort: skip  # before torch

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

from pipeline.core.start import command
from pipeline.training.rendezvous import join_store

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")
ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "work"  # where checkpoints go
NUMBERS = 2**28 if GPU else 2**18  # in fp32, that are summed over ranks
FILE = 2**32 if GPU else 2**23  # bytes that each rank writes
BLOCK = 2**24 if GPU else 2**20
SIDE = 8192 if GPU else 128  # of the matrices that are multiplied
TIMES = 10
PRETENDED = 2  # nodes of a machine without a GPU, and ranks on each


def ranks() -> dict[str, float]:
    """Start the ranks of this node; their figures are about all nodes."""
    WORK.mkdir(exist_ok=True)
    paths = [str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        program = ["nodes", folder]
        if GPU:
            commands = [command(program, torch.cuda.device_count(), environment)]
        else:
            with socket.create_server(("127.0.0.1", 0)) as server:
                port = server.getsockname()[1]
            place = [
                f"--nodes={PRETENDED}",
                f"--ranks={PRETENDED}",
                f"--port={port}",
                f"--ended={folder}/ended",
            ]
            start = [sys.executable, "-m", "pipeline.core.launch.launcher", *place]
            commands = [[*start, f"--node={node}", *program] for node in range(PRETENDED)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started = [subprocess.Popen(words, env=environment, text=True, **pipes) for words in commands]
        with ThreadPoolExecutor(len(started)) as readers:
            printed = list(readers.map(subprocess.Popen.communicate, started))
    for process, (_, errors) in zip(started, printed, strict=True):
        assert not process.returncode, errors.strip().rpartition("\n")[2] or f"exit {process.returncode}"
    return json.loads(printed[0][0].splitlines()[-1])


def bandwidth(members: list[list[int]]) -> float:
    """Sum numbers over the ranks of each of these groups at the same time, all of which must call it.

    Returns the GB/s that a rank sends and receives in the slowest group: 2 (n - 1) / n of its bytes.
    """
    group, _ = dist.new_subgroups_by_enumeration(members)
    own = next(some for some in members if dist.get_rank() in some)
    numbers, seconds = torch.empty(NUMBERS, device=DEVICE), []
    for _ in range(TIMES + 1):
        numbers.fill_(dist.get_rank())
        _wait_for_all()
        started = time.monotonic()
        dist.all_reduce(numbers, group=group)
        _finish()
        seconds.append(time.monotonic() - started)
        assert numbers[-1].item() == sum(own), "a sum over ranks is wrong"
    moved = 2 * (len(own) - 1) / len(own) * numbers.nbytes
    return min(_gather(moved / median(seconds[1:]) / 1e9))  # the first sum makes connections


def slowest_rank() -> float:
    """How many times as long as the median rank the slowest takes for the same matrix products."""
    matrix, seconds = torch.ones(SIDE, SIDE, device=DEVICE, dtype=torch.bfloat16), []
    for _ in range(TIMES + 1):
        _wait_for_all()
        started = time.monotonic()
        for _ in range(TIMES):
            torch.mm(matrix, matrix)
        _finish()
        seconds.append(time.monotonic() - started)
    found = _gather(median(seconds[1:]))
    return max(found) / median(found)


def disk(folder: Path) -> tuple[float, float]:
    """GB/s at which all ranks together write a file each, flushed, and read their files back from disk."""
    path, block = folder / f"rank-{dist.get_rank()}", os.urandom(BLOCK)

    def write() -> None:
        with path.open("wb", buffering=0) as file:
            for _ in range(FILE // BLOCK):
                file.write(block)
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # else it is read from memory

    def read() -> None:
        with path.open("rb", buffering=0) as file:
            while file.read(BLOCK):
                pass

    rates = []
    for work in (write, read):
        _wait_for_all()
        started = time.monotonic()
        work()
        rates.append(dist.get_world_size() * FILE / max(_gather(time.monotonic() - started)) / 1e9)
    path.unlink()
    return rates[0], rates[1]


def _gather(value: float) -> list[float]:
    """The value of every rank."""
    found: list[float] = [0.0] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def _finish() -> None:
    if GPU:
        torch.cuda.synchronize()


def _wait_for_all() -> None:
    dist.barrier()
    _finish()


def main() -> None:
    """Measure as one of the ranks; the first of each node prints the figures."""
    store = join_store(timedelta(minutes=5))
    rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if GPU:
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if GPU else "gloo", store=store, rank=rank, world_size=size)
    nodes, figures = size // here, {"ranks": float(size)}
    if here > 1:
        own = [list(range(first, first + here)) for first in range(0, size, here)]
        figures["GB/s within a node"] = bandwidth(own)
    if nodes > 1:
        across = [list(range(number, size, here)) for number in range(here)]
        figures["GB/s between nodes"] = bandwidth(across)
    figures["slowest rank"] = slowest_rank()
    figures["GB/s written"], figures["GB/s read"] = disk(Path(sys.argv[1]))
    dist.destroy_process_group()
    if local == 0:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
