"""Work in small items that the ranks of a program share out, so that none waits for a slower one.

A rank takes the next item when it has finished one. Who has which item stands in torch's key-value store,
which rank 0 serves; what an item gives is a file. When a rank dies, its heart stops and another rank takes
its item over. A rank that only seemed dead may then make the same item too: what an item gives must depend on
the item alone, and appear whole.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar

from pipeline.core.data.rows import batch_path, saved_batch
from pipeline.core.ending import interrupted, received
from pipeline.core.folders import wait_for
from pipeline.core.launch.launcher import LISTENING
from pipeline.core.progress import Progress
from pipeline.core.watchdog import reached, waiting

if TYPE_CHECKING:
    from torch.distributed import Store

T = TypeVar("T")
BEAT_SECONDS, LOOK_SECONDS = 1.0, 0.2
LOST_SECONDS = 30.0  # without a heartbeat
START = timedelta(minutes=5)  # for the ranks to find rank 0
_firsts = count()


class Queue:
    """One rank's end of a queue for one list of items. `store`: that of all ranks, None for a program that
    runs alone.

    `counters`: of this rank's work; in the end rank 0's hold those of all.
    """

    def __init__(
        self,
        store: "Store | None" = None,
        rank: int = 0,
        ranks: int = 1,
        counters: Counter[str] | None = None,
    ) -> None:
        self.store, self.rank, self.ranks = store, rank, ranks
        self.counters = Counter() if counters is None else counters
        self.hearts: dict[int, tuple[int, float]] = {}  # beats of a rank, and since when so many
        self.wanted, self.made, self.signal, self.turns, self.patience = 0, 0, 0, 0, LOST_SECONDS
        self.left, self.heart = Event(), Thread(target=self._beat, daemon=True)
        if store is not None:
            self.heart.start()

    def share(
        self, wanted: Callable[[], Sequence[int]], prepare: Callable[[], object] | None = None
    ) -> Iterator[int]:
        """Yield the numbers of items that this rank is to make, of those that rank 0 says are `wanted`, until
        all are made. If there are any, all ranks call `prepare` first, even those that will get none. Ends
        earlier, on all ranks, when one got a signal that asks the program to end; `signal` is then its
        number. An item counts as made when the next is asked for.
        """
        if self.store is None:
            items = wanted()
            self.wanted = len(items)
            if items and prepare:
                prepare()
            for item in items:
                if self._signalled():
                    return
                yield item
                self.made += 1
            return
        if self.rank == 0:
            self.store.set("wanted", json.dumps(list(wanted())))
        self._wait(lambda: self._has("wanted"))
        items = json.loads(self.store.get("wanted"))
        self.wanted = len(items)
        if items and prepare:
            prepare()
        for item in chain((item for item in items if self._claim(item, "")), self._left_by_others(items)):
            if self._signalled():
                break
            yield item
            self.store.set(f"made/{item}", "")
            self.made = self.store.add("made", 1)
        with waiting():
            self._leave()

    def on_rank_0(self, make: Callable[[], T]) -> T | None:
        """Return what rank 0 makes; the others wait for that, however long it takes, and get None."""
        made = make() if self.rank == 0 else None
        self.turns += 1
        if self.store is not None:
            if self.rank == 0:
                self.store.set(f"turn/{self.turns}", "")
            with waiting():
                self._wait(lambda: self._has(f"turn/{self.turns}"))
        return made

    def _claim(self, item: int, owner: str) -> bool:
        """Take an item that `owner` has, nobody if empty; of several ranks that try, one succeeds."""
        return self.store.compare_set(f"owner/{item}", owner, str(self.rank)) == str(self.rank).encode()

    def _left_by_others(self, items: list[int]) -> Iterator[int]:
        """Items of lost ranks, until all are made."""
        while items := [item for item in items if not self._has(f"made/{item}")]:
            for item in items:
                owner = self.store.get(f"owner/{item}").decode()
                if self._is_lost(int(owner)) and self._claim(item, owner):
                    yield item
            if self._signalled():
                return
            with waiting():
                time.sleep(LOOK_SECONDS)

    def _leave(self) -> None:
        """Wait until all ranks have come here or are lost; rank 0 then says whether there was a signal."""
        self.store.set(f"left/{self.rank}", json.dumps(self.counters))
        if self.rank == 0:
            for other in range(1, self.ranks):
                self._wait(lambda key=f"left/{other}", other=other: self._has(key) or self._is_lost(other))
                if self._has(f"left/{other}"):
                    self.counters.update(json.loads(self.store.get(f"left/{other}")))
            self.store.set("over", str(self.signal))
            time.sleep(2 * LOOK_SECONDS)  # until the others have seen it: the store ends with this process
        else:
            with suppress(RuntimeError):  # rank 0 has ended already
                self._wait(lambda: self._has("over"))
                self.signal = int(self.store.get("over"))
        self.left.set()
        self.heart.join()  # at the end of the process it would be in the way

    def _signalled(self) -> int:
        """Return the signal that one of the ranks got, 0 if none."""
        self.signal = received()
        if self.store is not None:
            if self.signal:
                self.store.set("signal", str(self.signal))
            elif self._has("signal"):
                self.signal = int(self.store.get("signal"))
        return self.signal

    def _is_lost(self, rank: int) -> bool:
        beats, now = self.store.add(f"beats/{rank}", 0), time.monotonic()
        before, since = self.hearts.get(rank, (None, now))
        if beats != before:
            self.hearts[rank] = (beats, now)
            return False
        return now - since > self.patience

    def _beat(self) -> None:
        with suppress(RuntimeError):  # the store is gone, and this process will be
            while not self.left.is_set():
                self.store.add(f"beats/{self.rank}", 1)
                self.left.wait(BEAT_SECONDS)

    def _has(self, key: str) -> bool:
        return self.store.check([key])

    def _wait(self, condition: Callable[[], bool]) -> None:
        while not condition():
            time.sleep(LOOK_SECONDS)


def queue_of_ranks(counters: Counter[str]) -> Queue:
    """Return the queue of the ranks that the launcher has started and that have no process group."""
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if ranks == 1:
        return Queue(counters=counters)
    from torch.distributed import TCPStore

    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    listening = int(os.environ[LISTENING]) if rank == 0 and LISTENING in os.environ else None
    store = TCPStore(*place, None, rank == 0, START, wait_for_workers=False, master_listen_fd=listening)
    return Queue(store, rank, ranks, counters)


def first_on_rank_0(make: Callable[[], object]) -> None:
    """Let rank 0 of the process group call `make` while the others wait for it, however long it takes."""
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import _get_default_store

    key = f"first/{next(_firsts)}"
    if dist.get_rank() == 0:
        make()
        if dist.get_world_size() > 1:
            _get_default_store().set(key, "")
        return
    with waiting():
        while not _get_default_store().check([key]):
            time.sleep(LOOK_SECONDS)


@dataclass(frozen=True)
class Batch:
    """A work item: JSON rows that `make` makes, saved in `folder`; what `settings` returns decides them."""

    folder: Path
    name: str
    settings: Callable[[], Any]
    make: Callable[[], list[Any]]

    @cached_property
    def path(self) -> Path:
        return batch_path(self.folder, self.name, self.settings())

    def rows(self) -> list[Any]:
        """Return the rows, read if they are saved, else made and saved."""
        return saved_batch(self.path, self.make)


def make_together(
    queue: Queue, label: str, batches: Sequence[Batch | None], prepare: Callable[[], object] | None = None
) -> None:
    """Make the batches that are not saved yet; all ranks call it with the same ones, rank 0 with None for
    those that it does not need. Afterwards rank 0 can read all. `prepare`: see `Queue.share`. Raises
    Interrupted, on all ranks, if a signal came first.
    """
    missing: list[int] = []
    with Progress(label, len(batches), unit="item") if queue.rank == 0 else nullcontext() as bar:

        def wanted() -> list[int]:
            folders = {batch.folder for batch in batches if batch}
            saved = {path for folder in folders for path in folder.glob("*")}  # asks once, not for each file
            missing.extend(n for n, batch in enumerate(batches) if batch and batch.path not in saved)
            bar.initial = bar.done = len(batches) - len(missing)
            return missing

        def show() -> None:
            if bar:
                bar.update(queue.made - (bar.done - bar.initial))

        for number in queue.share(wanted, prepare):
            reached(False, len(batches) - queue.wanted + queue.made)
            show()
            batches[number].rows()
        show()
    if queue.signal:
        raise interrupted(queue.signal, f"{label} so far")
    for number in missing:
        wait_for(batches[number].path)
