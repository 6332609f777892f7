"""A pool of worker processes, one per core, that run programs in the `jail`."""

import json
import os
import queue
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, Literal

from pipeline.sandbox import worker
from pipeline.sandbox.jail import NOBODY

ROOT = Path(__file__).parents[2]
START_SECONDS = 120.0
GRACE_SECONDS = 10.0  # past a program's time limit, until its worker is replaced


@dataclass(frozen=True)
class Outcome:
    """The result of a program; `stdout` and `stderr` are cut after 64 KiB.

    `status`: ok; error (exception, exit status, signal); timeout; limit (memory, output, file size).
    """

    status: Literal["ok", "error", "timeout", "limit"]
    stdout: str
    stderr: str


def _map_users(process: int) -> None:
    """Map two users into the worker's user namespace: ours, who may read the libraries, and nobody.

    Without the privilege for two, map ours to nobody.
    """
    us, group = os.getuid(), os.getgid()
    folder = f"/proc/{process}"
    try:
        for name, own in (("uid_map", us), ("gid_map", group)):
            with open(f"{folder}/{name}", "w") as file:
                file.write(f"0 {own} 1\n{NOBODY} {NOBODY} 1\n")
    except OSError:
        with open(f"{folder}/setgroups", "w") as file:
            file.write("deny")
        for name, own in (("uid_map", us), ("gid_map", group)):
            with open(f"{folder}/{name}", "w") as file:
                file.write(f"{NOBODY} {own} 1\n")


class Worker:
    """One worker process; `run` is not thread-safe. `missing`: layers that the system lacks."""

    command = (sys.executable, "-s", "-P", "-m", worker.__name__)

    def __init__(self) -> None:
        self.missing: list[str] = []
        if not (self._start("isolated") or self._start("plain")):
            raise RuntimeError("the sandbox's worker did not start; see its message above")

    def _start(self, kind: str) -> bool:
        environment = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "LANG": "C.UTF-8"}
        self.process = subprocess.Popen(
            [*self.command, kind, str(ROOT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if kind == "isolated" else None,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
        self.buffer = b""
        try:
            line = self._line(START_SECONDS)
            if line == b"map":
                _map_users(self.process.pid)
                self._send(b"\n")
                line = self._line(START_SECONDS)
            if line is not None:
                self.missing = json.loads(line)["missing"]
                return True
        except OSError:
            pass  # namespaces are forbidden here
        self.close()
        return False

    def _send(self, data: bytes) -> None:
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def _line(self, seconds: float) -> bytes | None:
        """The worker's next line; None if it ended or timed out."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return None
            part = os.read(self.process.stdout.fileno(), 1 << 20)
            if not part:
                return None
            self.buffer += part
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line

    def run(self, code: str, seconds: float) -> Outcome | None:
        """The outcome of a program; None if the worker died."""
        try:
            self._send(json.dumps({"code": code, "seconds": seconds}).encode() + b"\n")
        except OSError:
            return None
        line = self._line(seconds + GRACE_SECONDS)
        return None if line is None else Outcome(**json.loads(line))

    def close(self) -> None:
        """End the worker and every process in it."""
        with suppress(OSError):
            self.process.stdin.close()  # the worker then exits, which ends its process namespace
        try:
            self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Sandbox:
    """`with Sandbox() as sandbox: sandbox.run(programs, seconds)`; one worker per core by default."""

    def __init__(self, workers: int | None = None) -> None:
        first = Worker()
        self.missing = first.missing
        for layer in self.missing:
            print(f"sandbox: {layer}", file=sys.stderr, flush=True)
        self.size = workers or len(os.sched_getaffinity(0))
        self.free: queue.SimpleQueue[Worker | None] = queue.SimpleQueue()
        self.free.put(first)
        for _ in range(self.size - 1):
            self.free.put(None)  # started when needed
        self.threads = ThreadPoolExecutor(self.size)

    def _run(self, code: str, seconds: float) -> Outcome:
        worker = self.free.get()
        try:
            worker = worker or Worker()
            outcome = worker.run(code, seconds)
            if outcome is None:
                worker.close()
                worker = None
                outcome = Outcome("limit", "", "the program took its worker with it\n")
            return outcome
        finally:
            self.free.put(worker)

    def run(self, programs: Sequence[str], seconds: float) -> Iterator[Outcome]:
        """Start all programs and yield their outcomes in order, each after at most `seconds`."""
        return self.threads.map(self._run, programs, repeat(seconds))

    def close(self) -> None:
        """End all workers."""
        self.threads.shutdown()
        for _ in range(self.size):
            if (worker := self.free.get()) is not None:
                worker.close()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
