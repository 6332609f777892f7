"""Kill a program at chosen moments, run it again and compare the bytes of its results."""

import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
Calls = Sequence[tuple[Any, str]]  # functions: what they belong to, and the name
RENAMES: Calls = ((os, "replace"), (os, "rename"))


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Contents of all files by relative name, except run.json, which holds times and hosts."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "run.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def written_since(folder: Path, pattern: str, moment: float) -> bool:
    """Whether a file like `pattern` was written in `folder` after `moment`."""
    try:
        return any(path.stat().st_mtime > moment for path in folder.glob(pattern))
    except FileNotFoundError:  # renamed in the meantime
        return False


def kill_when_written(command: Sequence[str], folder: Path, pattern: str) -> bool:
    """Start `command`; kill it and its children as soon as it writes a file like `pattern`, or let it end.
    Returns whether it was killed.
    """
    started = time.time()
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None:
        if written_since(folder, pattern, started):
            os.killpg(process.pid, signal.SIGKILL)
            break
    return process.wait() == -signal.SIGKILL


def survives_kills(command: Sequence[str], output: Path, work: Path, moments: Sequence[str]) -> None:
    """Assert that runs killed when a file like each of `moments` appears under `work` leave nothing half-made
    as `output`, and that the run after them gives the bytes of one that was never disturbed.
    """
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    whole = bytes_of(output)
    output.rename(output.with_name("undisturbed"))
    killed = 0
    for moment in moments:
        killed += kill_when_written(command, work, moment)
        found = bytes_of(output) if output.exists() else whole
        other = [name for name in whole | found if whole.get(name) != found.get(name)]
        assert not other, f"killed at {moment}: {other}"
    assert killed, "each run ended before it could be killed"
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert bytes_of(output) == whole


def die_at_call(number: int, calls: Calls) -> None:
    """From now on this process is killed in place of its call of that number."""
    before = count()

    def killed(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **more: Any) -> Any:
            if next(before) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **more)

        return called

    for owner, name in calls:
        setattr(owner, name, killed(getattr(owner, name)))


def kill_at_call(run: Callable[[], object], number: int, calls: Calls) -> bool:
    """Run in a fork that is killed in place of its call of that number; returns whether there was one."""
    fork = os.fork()
    if not fork:
        die_at_call(number, calls)
        try:
            run()
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


def survives_loss_and_kills(
    run: Callable[[], object], output: Path, calls: Calls = RENAMES, numbers: Sequence[int] = (1, 3, 5)
) -> None:
    """Assert that `output`, lost and made again by runs that are killed before `calls` of these numbers, ends
    with the bytes that it had. Of renames: before a table gets its name, when a part of the files has one,
    and before the folder gets its name.
    """
    whole = bytes_of(output)
    shutil.rmtree(output)
    for number in numbers:  # the first one is of notes in the work folder
        assert kill_at_call(run, number, calls) and not output.exists()
    assert not kill_at_call(run, 99, calls) and bytes_of(output) == whole


if __name__ == "__main__":  # NUMBER MODULE:CLASS.FUNCTION PROGRAM WORDS: run a program that dies at a call
    owner, _, name = sys.argv[2].rpartition(".")
    die_at_call(int(sys.argv[1]), [(resolve_name(owner), name)])
    del sys.argv[:3]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
