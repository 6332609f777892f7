"""Process a file's pages in a child process with limits, and go on after a page that kills it.

Extraction runs in native code, which only the kernel can stop. It kills a child that exceeds the CPU time or
memory of one page (`PAGE_SECONDS`, `PAGE_MEMORY`); that page is rejected, and a new child continues after
it. CPU time instead of wall-clock time, so that a busy machine rejects nothing. The cost is one fork for each
file and the transfer of texts, not of HTML.
"""

import gc
import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

R = TypeVar("R")
MAX_PAGE_BYTES = 10_000_000  # of a decoded payload; a longer page is rejected, as are those that take more
PAGE_SECONDS, PAGE_MEMORY = 20.0, 2_000_000_000  # seconds of CPU time, or bytes
CAUSES = {signal.SIGPROF: "too_slow", signal.SIGXCPU: "too_slow", signal.SIGKILL: "out_of_memory"}
Task = Callable[[int], Iterator[Callable[[], R]]]


def run_guarded(task: Task[R], rejected: Callable[[int, str], R], seconds: float, memory: int) -> Iterator[R]:
    """Yield the results of a task's steps in order; for a step that was killed, `rejected(number, reason)`.

    `task(skip)` yields the steps from number `skip` on, as functions. Each may take `seconds` of CPU time;
    the child may take `memory` bytes beyond what this process has.
    """
    done = 0
    while True:
        reader, child = _start(task, done, seconds, memory)
        with reader:
            for kind, value in _messages(reader):
                if kind == "result":
                    done += 1
                    yield value
                elif kind == "failed":
                    os.waitpid(child, 0)
                    raise value
        status = os.waitpid(child, 0)[1]
        if status == 0:
            return
        cause = CAUSES.get(os.WTERMSIG(status), "out_of_memory") if os.WIFSIGNALED(status) else "crashed"
        yield rejected(done, cause)
        done += 1


def _start(task: Task[Any], skip: int, seconds: float, memory: int) -> tuple[BinaryIO, int]:
    """Fork; returns the stream of the child's messages and its process id."""
    sys.stdout.flush()
    sys.stderr.flush()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(read_end)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            _limit_memory(memory)
            gc.freeze()  # no collection visits the objects of the parent
            with os.fdopen(write_end, "wb") as stream:
                code = _work(task, skip, seconds, stream)
        except BrokenPipeError:  # the parent is gone
            pass
        finally:
            os._exit(code)
    os.close(write_end)
    return os.fdopen(read_end, "rb", buffering=1 << 20), child


def _limit_memory(memory: int) -> None:
    """Limit the address space to the present one and `memory` bytes more (Linux only)."""
    if not Path("/proc/self/statm").exists():
        return
    with open("/proc/self/statm") as file:
        present = int(file.read().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = present + memory
    resource.setrlimit(
        resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard)
    )
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _work(task: Task[Any], skip: int, seconds: float, stream: BinaryIO) -> int:
    """Run the steps. Each result is sent before the next step: the parent knows which step was killed."""
    try:
        for step in task(skip):
            signal.setitimer(signal.ITIMER_PROF, seconds)
            result = step()
            signal.setitimer(signal.ITIMER_PROF, 0)
            pickle.dump(("result", result), stream, pickle.HIGHEST_PROTOCOL)
            stream.flush()
    except Exception as error:
        pickle.dump(("failed", error), stream)
        stream.flush()
    return 0


def _messages(reader: BinaryIO) -> Iterator[tuple[str, Any]]:
    """Yield the messages of the child until it ends; an incomplete one is dropped."""
    while True:
        try:
            yield pickle.load(reader)
        except (EOFError, pickle.UnpicklingError):
            return
