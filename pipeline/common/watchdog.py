"""End a rank that hangs, so that the job can be run again from its last checkpoint.

The program names its phases: start, data, forward, backward, save, load, sync, rollout, evaluation, labels,
export, publish. A thread watches them. When one makes no progress for `launch.hang_minutes`, it prints the
phase and the Python stacks of this rank and ends it with exit code 85. The launcher makes the other ranks do
the same. The phase is also the name of the process, as `ps` and `top` show it; signal SIGUSR2 makes a rank
print its stacks at any time.
"""

import faulthandler
import signal
import sys
import threading
import time
from pathlib import Path

from pipeline.common.ending import leave, place, say
from pipeline.common.errors import AGAIN

WAITING = "waiting"  # until other ranks have done a share of work that may be larger: never too long
NAME = Path("/proc/self/comm")  # the main thread's; the kernel keeps 15 bytes

_phase = ("start", 0)
_watched = False


def enter(phase: str) -> None:
    """The program begins `phase`, or its next part."""
    global _phase
    before, count = _phase
    _phase = (phase, count + 1)
    if _watched and phase != before:
        NAME.write_text(phase)


def beat() -> None:
    """The phase that the program is in makes progress."""
    enter(_phase[0])


def watch(minutes: float) -> None:
    """Watch this process from now on; `minutes` is how long a phase may stand still."""
    global _watched
    _watched = True
    NAME.write_text(_phase[0])
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    threading.Thread(target=_watch, args=(minutes,), daemon=True).start()


def _watch(minutes: float) -> None:
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
            leave(
                f"phase {now[0]} made no progress for {minutes:g} minutes (launch.hang_minutes); run me "
                f"again, from the last checkpoint (exit code {AGAIN})",
                AGAIN,
                hard=True,
            )
