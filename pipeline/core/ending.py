"""How a training program ends before its work is done: on a signal after its step, or at once on an error.

SIGTERM and SIGUSR1 (a job near its time limit, a preemption, `scancel`) ask it to save and to end with exit
code 85: "state saved, run me again". `pipeline.core.start` blocks them before the program starts, so none
gets lost while libraries are imported. A rank that fails exits hard, because libraries that close their
connections would wait for the other ranks, which wait for it in a collective. The launcher ends the others.
"""

import atexit
import contextlib
import json
import os
import platform
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn

from pipeline.core.errors import Interrupted

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
CAUSES = "PIPELINE_CAUSES"  # environment: the descriptor on which a rank tells its launcher why it ended

_received: list[int] = []


def catch_signals() -> None:
    """From now on a signal only asks the program to end; see `received`."""
    for number in SIGNALS:
        signal.signal(number, _note)
        signal.siginterrupt(number, False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _note(number: int, frame: FrameType | None) -> None:
    _received.append(number)


def received() -> int:
    """Return the signal that this process got last, 0 if none."""
    return _received[-1] if _received else 0


def interrupted(number: int, done: str) -> Interrupted:
    """Return the exception to raise after signal `number`, when what is `done` has been saved."""
    return Interrupted(f"{done}: {signal_name(number)}")


def signal_name(number: int) -> str:
    """Name a signal; those that have no name by their number."""
    return {known: known.name for known in signal.Signals}.get(number, f"signal {number}")


def node() -> str:
    """Return this machine's name, among Slurm's nodes if it is one of them."""
    return os.environ.get("SLURMD_NODENAME", platform.node())


def place() -> str:
    """Return this rank among others and its node, for messages; empty for a program on its own."""
    ranks = os.environ.get("WORLD_SIZE", "1")
    return "" if ranks == "1" else f"rank {os.environ['RANK']} of {ranks} on {node()}: "


def say(line: str) -> None:
    """Print a line to stderr, whose reader may have ended on the signal that this program got."""
    with contextlib.suppress(BrokenPipeError):
        print(line, file=sys.stderr, flush=True)


def leave(message: str, code: int, hard: bool = False) -> NoReturn:
    """End with the error line `message`, which the launcher prints where there is one."""
    line = f"{place()}{message}"
    if CAUSES in os.environ:
        os.write(int(os.environ[CAUSES]), json.dumps([int(os.environ["RANK"]), line]).encode() + b"\n")
    else:
        say(f"error: {line}")
    if hard or os.environ.get("WORLD_SIZE", "1") != "1":
        _exit(code)
    sys.exit(code)


def end(code: int = 0) -> NoReturn:
    """End as `sys.exit` does, but leave the memory to the system: taking vLLM apart takes two seconds."""
    threading._shutdown()
    atexit._run_exitfuncs()
    _exit(code)


def _exit(code: int) -> NoReturn:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
