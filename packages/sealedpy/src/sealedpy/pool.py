"""A pool of worker processes, one per core, that run programs in the `jail`."""

import json
import os
import queue
import select
import signal
import site
import socket
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

from . import memory, worker
from .jail import NOBODY, PROCESSES

ROOT = Path(__file__).parents[1]  # where this package is found
START_SECONDS = 120.0
GRACE_SECONDS = 10.0  # past a program's time limit, until its worker is replaced
OUTPUT_BYTES = 1 << 16  # of each stream
LIMIT_SIGNALS = (signal.SIGXCPU, signal.SIGXFSZ, signal.SIGKILL)  # the last: by the kernel, out of memory
HOW_TO_GET_NAMESPACES = (
    "Allow them (`sysctl -w kernel.unprivileged_userns_clone=1`, or"
    " `kernel.apparmor_restrict_unprivileged_userns=0` on Ubuntu; in Docker"
    " `--security-opt seccomp=unconfined --security-opt apparmor=unconfined`), or accept weaker protection:"
    " `sandbox.weak: true` in the configuration, `--weak` on a command line (docs/evaluation.md)"
)


class NoNamespaces(OSError):
    """This system refuses the namespaces that isolate programs; the message says how to get them."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"programs of a model run in namespaces, which this system refuses ({why})."
            f" {HOW_TO_GET_NAMESPACES}"
        )


@dataclass(frozen=True)
class Outcome:
    """The result of a program; `stdout` and `stderr` are cut after 64 KiB.

    `status`: ok; error (exception, exit status, signal); timeout; limit (memory, output, file size).
    """

    status: Literal["ok", "error", "timeout", "limit"]
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Check:
    """A program and the tests that it must pass, in Python; it begins with `start`, which tests may know."""

    program: str
    tests: str
    start: str = ""


def outcome_of(status: int, stopped: Literal["timeout", "limit"] | None, stdout: str, stderr: str) -> Outcome:
    """Say how a program ended: `status` is its exit status, or minus the signal that ended it; `stopped` is
    why the pool ended it, if it did.
    """
    if stopped is None and (status == worker.MEMORY_EXIT or -status in LIMIT_SIGNALS):
        stopped = "limit"
    if stopped is None and status < 0:
        name = {number: f" ({number.name})" for number in signal.Signals}.get(-status, "")  # some have none
        stderr += f"ended by signal {-status}{name}\n"
    return Outcome(stopped or ("error" if status else "ok"), stdout, stderr)


def _map_users(process: int) -> None:
    """Map two users into the worker's user namespace: ours, who may read the libraries, and nobody.

    Without the privilege for two, map ours to nobody; likewise groups.
    """
    folder = Path(f"/proc/{process}")
    for name, own in (("uid_map", os.getuid()), ("gid_map", os.getgid())):
        try:
            (folder / name).write_text(f"0 {own} 1\n{NOBODY} {NOBODY} 1\n")
        except OSError:
            if name == "gid_map":
                (folder / "setgroups").write_text("deny")
            (folder / name).write_text(f"{NOBODY} {own} 1\n")


class Worker:
    """One worker process of so many; `run` is not thread-safe. `missing`: layers that the system lacks.

    Raises NoNamespaces where the system has none, unless it may be `weak`.
    """

    interpreter = (sys.executable, "-S", "-P")  # no `.pth` file of a site-packages is read
    command = (*interpreter, "-m", worker.__name__)

    def __init__(self, weak: bool = False, kind: str = "isolated", workers: int = 1) -> None:
        self.missing: list[str] = []
        self.workers = workers
        refusal = self._start(kind)
        if refusal and not weak:
            raise NoNamespaces(refusal)
        if refusal and (refusal := self._start("plain")):
            raise RuntimeError(f"the sandbox's worker did not start: {refusal}")

    def _start(self, kind: str) -> str | None:
        """Start the process; returns why the system refuses its namespaces."""
        environment = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "LANG": "C.UTF-8"}
        self.cgroup = memory.borrow() if kind == "isolated" else None
        together = self.workers * (PROCESSES if kind == "isolated" else 1)
        size = memory.PROGRAM_BYTES if self.cgroup else memory.share(together)
        settings = {"packages": site.getsitepackages(), "memory": size}
        settings["cgroup"] = self.cgroup and str(self.cgroup / "cgroup.procs")
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(START_SECONDS)
        self.process = subprocess.Popen(
            [*self.command, json.dumps(settings), kind],
            stdin=theirs,
            stdout=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
        theirs.close()
        if (message := self._message()) == b"map":
            try:
                _map_users(self.process.pid)
            except OSError as error:
                self.close()
                return str(error)
            self.control.send(b"y")
            message = self._message()
        answer = json.loads(message)
        if "refused" in answer:
            self.close()
            return answer["refused"]
        self.missing = answer["missing"]
        if size < memory.PROGRAM_BYTES:
            self.missing.append(f"no cgroup: so that all fit, a process of a program has {size >> 20} MiB")
        self.control.settimeout(GRACE_SECONDS)
        return None

    def _message(self) -> bytes:
        """Return the next message of a worker that starts."""
        with suppress(TimeoutError, ConnectionError):
            if message := self.control.recv(1 << 16):
                return message
        self.close()
        raise RuntimeError("the sandbox's worker did not start; see its message above")

    def run(self, code: str | Check, seconds: float) -> Outcome | None:
        """Return the outcome of a program, or of its tests; None if the worker died or does not answer."""
        texts = [code] if isinstance(code, str) else [code.program, json.dumps([code.tests, code.start])]
        outputs = [os.pipe(), os.pipe()]
        handles = [write for _, write in outputs]
        try:
            for text in texts:
                handles.append(os.memfd_create("program"))
                os.write(handles[-1], text.encode("utf-8", "surrogatepass"))
                os.lseek(handles[-1], 0, os.SEEK_SET)
            socket.send_fds(self.control, [worker.REQUEST.pack(seconds)], handles)
            while handles:
                os.close(handles.pop())
            return self._outcome({read: bytearray() for read, _ in outputs}, seconds)
        except (ConnectionError, TimeoutError):
            return None
        finally:
            for handle in [*handles, *(read for read, _ in outputs)]:
                os.close(handle)

    def _outcome(self, streams: dict[int, bytearray], seconds: float) -> Outcome | None:
        stopped = self._watch(streams, time.monotonic() + seconds)
        if stopped:
            self.control.send(b"k", socket.MSG_NOSIGNAL)
        if not (message := self.control.recv(worker.STATUS.size)):
            return None
        (status,) = worker.STATUS.unpack(message)
        for stream, data in streams.items():
            os.set_blocking(stream, False)
            with suppress(BlockingIOError):  # no process is left that could write more
                while len(data) <= OUTPUT_BYTES and (more := os.read(stream, OUTPUT_BYTES)):
                    data += more
            if len(data) > OUTPUT_BYTES:
                stopped = stopped or "limit"
        texts = (bytes(data[:OUTPUT_BYTES]).decode("utf-8", "replace") for data in streams.values())
        return outcome_of(status, stopped, *texts)

    def _watch(self, streams: dict[int, bytearray], deadline: float) -> Literal["timeout", "limit"] | None:
        """Read the program's output until it ends; returns why it must be killed."""
        poll = select.poll()
        for source in (self.control.fileno(), *streams):
            poll.register(source, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0:
            ready = dict(poll.poll(1000 * left))
            if self.control.fileno() in ready:
                return None
            for stream in streams.keys() & ready.keys():
                data = os.read(stream, OUTPUT_BYTES)
                if not data:
                    poll.unregister(stream)
                streams[stream] += data
                if len(streams[stream]) > OUTPUT_BYTES:
                    return "limit"
        return "timeout"

    def close(self) -> None:
        """End the worker and every process in it."""
        self.control.close()  # the worker then exits, which ends its process namespace
        try:
            self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        memory.give_back(self.cgroup)


def check(weak: bool) -> None:
    """Raise NoNamespaces where the system has none and protection may not be `weak`."""
    if not weak:
        Worker(kind="probe").close()


class Sandbox:
    """`with Sandbox() as sandbox: sandbox.run(programs, seconds)`; one worker per core by default.

    Raises NoNamespaces where the system has none, unless protection may be `weak`.
    """

    def __init__(self, workers: int | None = None, weak: bool = False) -> None:
        self.weak = weak
        cores = len(os.sched_getaffinity(0))
        self.size = workers or cores
        self.most = max(self.size, cores)  # other ranks may have a sandbox too
        first = Worker(weak, workers=self.most)
        self.missing = first.missing
        for layer in self.missing:
            print(f"sandbox: {layer}", file=sys.stderr, flush=True)
        self.free: queue.SimpleQueue[Worker | None] = queue.SimpleQueue()
        self.free.put(first)
        for _ in range(self.size - 1):
            self.free.put(None)  # started when needed
        self.threads = ThreadPoolExecutor(self.size)

    def _run(self, code: str | Check, seconds: float) -> Outcome:
        worker = self.free.get()
        try:
            for _ in range(2):  # a worker that was lost says nothing of the program, a second one does
                worker = worker or Worker(self.weak, workers=self.most)
                outcome = worker.run(code, seconds)
                if outcome is not None:
                    return outcome
                worker.close()
                worker = None
            return Outcome("limit", "", "the program took its worker with it, twice\n")
        finally:
            self.free.put(worker)

    def run(self, programs: Sequence[str | Check], seconds: float) -> Iterator[Outcome]:
        """Start all; yield outcomes of programs or of their tests in order, each after at most `seconds`."""
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
