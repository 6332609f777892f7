"""End a rank that hangs, so that the job can be run again from its last checkpoint.

The program names its phases: start, data, forward, backward, save, load, sync, rollout, annotation,
evaluation, labels, export, publish. A thread watches them. When one makes no progress for
`launch.hang_minutes`, it prints the phase and the Python stacks of this rank and ends it with exit code 85.
The launcher makes the other ranks do the same. Runs that hang `TRIES` times without a step of progress in
between end with an ordinary error: the next one would hang too. The phase is also the name of the process, as
`ps` and `top` show it; signal SIGUSR2 makes a rank print its stacks at any time.
"""

import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from pipeline.core.ending import leave, place, say
from pipeline.core.errors import AGAIN
from pipeline.core.manifest import write_json

WAITING = "waiting"  # until other ranks have done a share of work that may be larger: never too long
TRIES = 3  # hangs without progress in between; after the last one a person is needed
NOTE_SECONDS = 10.0  # to write that it hung: the file system may be what hangs
NAME = Path("/proc/self/comm")  # the main thread's; the kernel keeps 15 bytes

_phase = ("start", 0)
_steps = (False, 0)
_watched = False


def enter(phase: str) -> None:
    """Note that the program begins `phase`, or its next part."""
    global _phase
    before, count = _phase
    _phase = (phase, count + 1)
    if _watched and phase != before:
        NAME.write_text(phase)


def beat() -> None:
    """Note that the program makes progress in its phase."""
    enter(_phase[0])


@contextmanager
def waiting() -> Iterator[None]:
    """Let the block wait for other ranks, however long they work; then the phase before goes on."""
    phase = _phase[0]
    enter(WAITING)
    yield
    enter(phase)


class Growth:
    """Counts as progress what another thread or process writes under `folders`, when `look` is called."""

    def __init__(self, *folders: Path) -> None:
        self.folders, self.size = folders, 0

    def look(self) -> None:
        size = 0
        with suppress(OSError):  # a file that was only for the time being
            size = sum(file.stat().st_size for folder in self.folders for file in folder.rglob("*"))
        if size != self.size:
            self.size = size
            beat()


def reached(training: bool, steps: int) -> None:
    """Note how far the work has come: steps of training, or before it, of the work that comes first."""
    global _steps
    _steps = (training, steps)


@dataclass(frozen=True)
class Hangs:
    """How often runs for `owner` hung without progress in between, and how far the best of them got."""

    owner: str
    count: int = 0
    training: bool = False
    steps: int = -1

    @classmethod
    def read(cls, path: Path, owner: str) -> Self:
        """Read what the file says; nothing if it is another model's or no longer whole."""
        try:
            found = cls(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            return cls(owner)
        return found if found.owner == owner else cls(owner)

    def and_now(self) -> Self:
        """Count one more hang, of this run."""
        training, steps = _steps
        if (training, steps) > (self.training, self.steps):
            return replace(self, count=1, training=training, steps=steps)
        return replace(self, count=self.count + 1)


def watch(minutes: float, note: Path, owner: str) -> None:
    """Watch this process from now on; `minutes` is how long a phase may stand still. The file `note` keeps
    how often runs of the model with fingerprint `owner` hung.
    """
    global _watched
    _watched = True
    NAME.write_text(_phase[0])
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    # Read now: ranks that hang together must count the same, whoever writes first.
    threading.Thread(target=_watch, args=(minutes, note, Hangs.read(note, owner)), daemon=True).start()


def _write_collectives(folder: Path) -> None:
    """Write the last collectives of this rank, where it has a process group, to a file beside its work."""
    torch = sys.modules.get("torch")
    if torch is None or not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return
    path = folder / f"collectives-{os.environ.get('RANK', '0')}.json"
    with suppress(OSError, AttributeError):  # a build without NCCL's; the end of the hang matters more
        library = torch._C._distributed_c10d
        kind = "nccl" if torch.cuda.is_available() else "fr"  # each records apart
        path.write_bytes(getattr(library, f"_dump_{kind}_trace_json")())
        say(f"{place()}its last collectives: {path}")


def _watch(minutes: float, note: Path, before: Hangs) -> None:
    tick = min(1.0, 15 * minutes)
    seen, still = _phase, 0  # ticks, not a clock: a job that Slurm suspends does not hang
    while True:
        time.sleep(tick)
        now = _phase
        still = still + 1 if now == seen and now[0] != WAITING else 0
        seen = now
        if still * tick >= 60 * minutes:
            say(f"{place()}phase {now[0]} hangs; Python stacks of this rank:")
            faulthandler.dump_traceback(sys.stderr, all_threads=True)
            _write_collectives(note.parent)
            what = f"phase {now[0]} made no progress for {minutes:g} minutes (launch.hang_minutes)"
            _end(what, note, before.and_now())


def _end(what: str, note: Path, hangs: Hangs) -> None:
    writing = threading.Thread(target=write_json, args=(note, asdict(hangs)), daemon=True)
    writing.start()
    writing.join(NOTE_SECONDS)
    if hangs.count < TRIES:
        leave(f"{what}; run me again, from the last checkpoint (exit code {AGAIN})", AGAIN, hard=True)
    where = f"step {hangs.steps + 1}" if hangs.training else "the work before step 1"
    again = f"hang {hangs.count} in a row that got no further than {where}"
    leave(f"{what}: {again}; not run again, the stacks above say where it hangs", 1, hard=True)
