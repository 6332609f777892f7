"""Items of work that ranks share out: each is made, whoever dies or is slow, and the bytes are the same."""

import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from torch.distributed import HashStore, PrefixStore, TCPStore

from pipeline.core import ending, watchdog
from pipeline.core.errors import Interrupted
from pipeline.core.launch.queue import Batch, Queue, make_together

ITEMS = 12
PATIENCE = 1.5


def batches(folder: Path, before: Callable[[int], None]) -> list[Batch]:
    """Items whose rows depend on their number alone; `before` is called when one is made."""

    def batch(number: int) -> Batch:
        def make() -> list[dict]:
            before(number)
            (folder / "made").open("a").write(f"{number} {os.getpid()}\n")
            return [{"number": number, "square": number**2}] * (1 + number % 3)

        return Batch(folder / "rows", f"{number:03d}", lambda: {"seed": number}, make)

    return [batch(number) for number in range(ITEMS)]


def fork(
    rank: int, ranks: int, port: int, folder: Path, before: Callable[[int], None], patience: float = 600.0
) -> int:
    """Start a rank; its exit code is 0, or 85 after a signal. `patience`: seconds after which it takes
    another one for lost: long where none is to be, however busy the machine is.
    """
    if child := os.fork():
        return child
    code = 1
    try:
        store = TCPStore("127.0.0.1", port, None, rank == 0, wait_for_workers=False)
        counters = Counter({"own": 1})
        queue = Queue(PrefixStore("test", store), rank, ranks, counters)
        queue.patience = patience
        with suppress(Interrupted):
            make_together(queue, "test", batches(folder, before))
        (folder / f"counters-{rank}").write_text(str(counters["own"]))
        code = 85 if queue.signal else 0
    finally:
        os._exit(code)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def rows(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "rows").iterdir()}


def made(folder: Path) -> list[tuple[int, int]]:
    """(item, process) in the order in which they were made."""
    return [tuple(map(int, line.split())) for line in (folder / "made").read_text().splitlines()]


def codes(children: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes]:
    """What a program that runs alone saves."""
    folder = tmp_path / "alone"
    folder.mkdir()
    make_together(Queue(), "test", batches(folder, lambda _: None))
    return rows(folder)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_make_each_item_once_and_a_rerun_makes_those_that_are_missing(tmp_path, whole, ranks):
    for lost in (range(ITEMS), [3, 7]):
        (tmp_path / "made").unlink(missing_ok=True)
        port = free_port()
        children = [fork(n, ranks, port, tmp_path, lambda _: time.sleep(0.02)) for n in range(ranks)]
        assert codes(children) == [0] * ranks
        assert sorted(item for item, _ in made(tmp_path)) == sorted(lost)
        assert rows(tmp_path) == whole
        assert (tmp_path / "counters-0").read_text() == str(ranks)
        for name in sorted(whole):
            if int(name[:3]) in (3, 7):
                (tmp_path / "rows" / name).unlink()


def test_the_item_of_a_killed_rank_is_made_by_another_and_the_bytes_are_the_same(tmp_path, whole):
    has, port = tmp_path / "has", free_port()
    killed = fork(1, 3, port, tmp_path, lambda _: has.write_text("") or time.sleep(600))
    others = [fork(rank, 3, port, tmp_path, lambda _: wait_until(has.exists), PATIENCE) for rank in (0, 2)]
    wait_until(has.exists)
    os.kill(killed, signal.SIGKILL)
    assert codes([killed, *others]) == [-signal.SIGKILL, 0, 0]
    assert sorted(item for item, _ in made(tmp_path)) == list(range(ITEMS)) and rows(tmp_path) == whole


def test_a_rank_that_only_seemed_lost_does_no_harm(tmp_path, whole):
    """Stopped for longer than the others' patience, it makes its item a second time."""
    has, port = tmp_path / "has", free_port()
    stopped = fork(1, 2, port, tmp_path, lambda _: has.exists() or has.write_text("") or time.sleep(0.3))
    other = fork(0, 2, port, tmp_path, lambda _: wait_until(has.exists), PATIENCE)
    wait_until(has.exists)
    os.kill(stopped, signal.SIGSTOP)
    wait_until(lambda: (tmp_path / "made").exists() and len(made(tmp_path)) == ITEMS)
    os.kill(stopped, signal.SIGCONT)
    assert codes([stopped, other]) == [0, 0]
    assert Counter(item for item, _ in made(tmp_path)).most_common(1)[0][1] == 2 and rows(tmp_path) == whole


def test_a_signal_to_one_rank_ends_all_after_the_items_that_they_have(tmp_path, whole, monkeypatch):
    monkeypatch.setattr(ending, "_received", signals := [])

    def signalled(number: int) -> None:
        has.write_text("")
        signals.append(signal.SIGUSR1)
        time.sleep(0.3)

    has, port = tmp_path / "has", free_port()
    children = [
        fork(0, 2, port, tmp_path, lambda _: wait_until(has.exists) or time.sleep(0.1)),
        fork(1, 2, port, tmp_path, signalled),
    ]
    assert codes(children) == [85, 85]
    saved = rows(tmp_path)
    assert 1 < len(saved) == len(made(tmp_path)) < ITEMS and saved.items() < whole.items()


def test_a_hang_after_the_wait_for_other_ranks_is_watched(tmp_path, monkeypatch):
    monkeypatch.setattr(watchdog, "_phase", ("labels", 0))
    store, phases = HashStore(), []
    store.set("owner/0", "1")  # of a rank that is lost
    queue = Queue(store)
    queue.patience = 0.0
    make_together(queue, "test", batches(tmp_path, lambda _: phases.append(watchdog._phase[0])))
    phases.append(watchdog._phase[0])
    queue.on_rank_0(lambda: phases.append(watchdog._phase[0]))
    assert [*phases, watchdog._phase[0]] == ["labels"] * (ITEMS + 3)
