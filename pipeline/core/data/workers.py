"""Work shared by forked processes, which have this process's memory."""

import ctypes
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")
AHEAD = 2  # items per process that wait for their turn
function_of_worker: Callable[[Any], Any]


def die_with_parent() -> None:
    """Make Linux kill this worker with its parent; it would otherwise wait for work forever."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _start(function: Callable[[Any], Any]) -> None:
    global function_of_worker
    die_with_parent()
    function_of_worker = function


def _call(item: Any) -> Any:
    return function_of_worker(item)


def map_forked(function: Callable[[A], B], items: Iterable[A], processes: int) -> Iterator[B]:
    """Yield what `function` gives for each item, in their order, by so many processes; one is this process.

    Only items and results are sent. What the function refers to, however large, is shared by the fork. Few
    items are drawn ahead, so they may be more than fit into memory.
    """
    if processes == 1:
        yield from map(function, items)
        return
    waiting: deque[Future[B]] = deque()
    with ProcessPoolExecutor(processes, get_context("fork"), _start, (function,)) as pool:
        for item in items:
            waiting.append(pool.submit(_call, item))
            if len(waiting) > AHEAD * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
