"""A worker process: it imports the mathematical packages once, then runs each program in a fork of itself.

`python -m sealedpy.worker SETTINGS isolated|plain|probe`, started by `pool` with a socket as its
standard input; SETTINGS, as JSON, are the folders named site-packages, the bytes that a process may have, and
the list of the cgroup's processes; `probe` is an isolated worker that imports nothing and runs nothing. For
each program the socket brings descriptors: its standard output and error, its code, and its tests if it has
any (see `checks`). A worker never reads the code or the output, so that its memory, which all programs
inherit, holds nothing of those before. An isolated worker is process 1 of its own process namespace: no
signal of a program reaches it, and one kill(-1) ends every process that a program started, detached or not.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import site
import socket
import struct
import sys
import threading
import tomllib
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from . import checks, jail, kernel

TABLE = tomllib.loads(Path(__file__).with_name("warm.toml").read_text())
WARM, MORE, PACKAGES = (TABLE[name].split() for name in ("warm", "more", "packages"))
FIRST_USE = TABLE["first_use"]
MEMORY_EXIT = 77
REQUEST, STATUS = struct.Struct("d"), struct.Struct("i")  # seconds; exit status, or minus the signal


def prepare(isolated: bool, paths: list[str], control: socket.socket) -> None:
    """Enter the jail. If isolated, return in process 1 of the new namespaces, whose parent waits."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if memory runs out, programs go first
    if isolated:
        kernel.unshare(jail.NAMESPACES)
        control.send(b"map")
        if not control.recv(1):  # the pool has mapped our users
            os._exit(1)  # it could not
        jail.build_view(paths)
        socket.sethostname("sandbox")
        child = os.fork()
        if child:
            control.close()
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
        jail.become_nobody()
    elif os.getuid() == 0:
        with suppress(PermissionError):  # root without this right; `jail.missing` says so
            os.setgroups([])
            os.setresgid(jail.NOBODY, jail.NOBODY, jail.NOBODY)
            os.setresuid(jail.NOBODY, jail.NOBODY, jail.NOBODY)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # after the change of user, which clears it
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL if isolated else signal.SIG_IGN)


def more_modules() -> Iterator[str]:
    """Return what programs may import where they cannot open files, beside WARM."""
    yield from MORE
    for name in PACKAGES:
        with suppress(ImportError):
            package = importlib.import_module(f"sympy.{name}")
            for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
                if not {"tests", "benchmarks"} & set(found.name.split(".")):
                    yield found.name


def warm_up(names: Iterable[str]) -> None:
    """Import installed packages that programs use, and keep their pages shared with all forks."""
    for name in names:
        with suppress(ImportError), warnings.catch_warnings(action="ignore"):
            importlib.import_module(name)
    with suppress(ImportError):
        exec(FIRST_USE, {})
    atexit._clear()  # programs run only the exit functions that are their own
    gc.collect()
    gc.freeze()


def _execute(run: Callable[[str], None], code: str) -> int:
    """Let `run` run the code in this process; returns its exit status."""
    try:
        run(code)
        for thread in threading.enumerate():  # as the interpreter does at exit
            if thread is not threading.main_thread() and not thread.daemon:
                thread.join()
        return 0
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return int(error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    except MemoryError:
        print("MemoryError", file=sys.stderr)
        return MEMORY_EXIT
    except BaseException as error:
        frames = error.__traceback__
        for _ in range(2):  # ours
            frames = frames and frames.tb_next
        traceback.print_exception(type(error), error, frames)
        return 1


@dataclass(frozen=True)
class Place:
    """Where programs run. `confine` makes a process one of a program's, for so many seconds, with so many
    processes; open files: /proc/loadavg, perhaps ns_last_pid, and the list of processes of a cgroup.
    """

    isolated: bool
    confine: Callable[[float, int], None]
    load: int
    last: int | None
    cgroup: int | None


def _start(run: Callable[[str], None], source: int, handles: list[int], place: Place, *limits: Any) -> int:
    """Fork a process that confines itself, lets `run` run the code in the file `source`, and exits; returns
    its number. `handles`: its output, its errors, and what else it keeps.
    """
    if process := os.fork():
        return process
    status = 1
    try:
        if place.cgroup is not None:
            os.write(place.cgroup, b"0")  # this process joins it
        with open(source, "rb") as file:
            code = file.read().decode("utf-8", "surrogatepass")
        end, _ = os.pipe()  # an input without content
        for number, handle in enumerate([end, *handles]):
            os.dup2(handle, number)
        os.closerange(1 + len(handles), 1 << 20)
        place.confine(*limits)
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
            for number, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        sys.argv = ["program.py"]
        status = _execute(run, code)
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(BaseException):
                stream.flush()
    except BaseException as error:
        os.write(2, f"the sandbox could not be closed: {error}\n".encode())
    finally:
        os._exit(status)


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(word) for word in file.read().split()]


def end_all(isolated: bool) -> dict[int, int]:
    """Kill and reap every process that the program left; returns exit statuses by process."""
    statuses = {}
    while True:
        for process in [-1] if isolated else _children():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        try:
            process, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return statuses
        statuses[process] = status


def _watch(process: int, control: socket.socket, isolated: bool) -> None:
    """Return when the program has exited or the pool wants it to end; exit if the pool is gone."""
    handle = os.pidfd_open(process)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(control, select.POLLIN)
    ready = dict(poll.poll())
    os.close(handle)
    if control.fileno() in ready and not control.recv(1):
        end_all(isolated)
        os._exit(0)


def reset_numbers(last: int | None) -> bool:
    """Let the next process of this namespace get the lowest free number, so that a program cannot tell how
    many those before it started; returns whether that is possible.
    """
    with suppress(OSError):
        return last is not None and os.pwrite(last, b"1", 0) > 0
    return False


def _begin(handles: list[int], place: Place, seconds: float) -> int:
    """Start what a request asks for; returns the process whose end counts. A program that has tests runs
    beside them, with none of their handles.
    """
    output, errors, source, *tests = handles
    processes = jail.PROCESSES + jail.others(place.isolated, place.load) + len(tests)
    if not tests:
        return _start(checks.run, source, [output, errors], place, seconds, processes)
    ours, theirs = ends = socket.socketpair()
    nowhere = os.memfd_create("output")
    _start(checks.offer, source, [nowhere, errors, theirs.fileno()], place, seconds, processes)
    kept = [output, errors, ours.fileno()]
    process = _start(checks.run_tests, tests[0], kept, place, seconds, processes)
    os.close(nowhere)
    for end in ends:
        end.close()
    return process


def serve(control: socket.socket, place: Place) -> None:
    """Run programs, one after the other, until the pool closes the socket."""
    while True:
        request, handles, _, _ = socket.recv_fds(control, REQUEST.size, 4)
        if not request:
            return
        if not handles:  # the wish to end a program that had ended
            continue
        reset_numbers(place.last)
        process = _begin(handles, place, *REQUEST.unpack(request))
        for handle in handles:
            os.close(handle)
        _watch(process, control, place.isolated)
        status = os.waitstatus_to_exitcode(end_all(place.isolated)[process])
        with suppress(BrokenPipeError):
            control.send(STATUS.pack(status))


def main() -> None:
    kind, settings = sys.argv.pop(), json.loads(sys.argv.pop())
    isolated, project = kind != "plain", str(Path(__file__).parents[1])
    sys.orig_argv[:] = ["python"]  # programs shall not see where the project is
    control = socket.socket(fileno=os.dup(0))
    load, last = os.open("/proc/loadavg", os.O_RDONLY), None
    with suppress(OSError):
        last = os.open("/proc/sys/kernel/ns_last_pid", os.O_WRONLY) if kind == "isolated" else None
    cgroup = os.open(settings["cgroup"], os.O_WRONLY) if settings["cgroup"] else None
    packages = settings["packages"]
    paths = jail.library_paths(packages)
    sys.path[:] = [path for path in sys.path if path and os.path.abspath(path) != project] + packages
    site.setquit()  # started without `site`, which reads `.pth` files, but programs call exit()
    if kind == "plain":
        warm_up(chain(WARM, more_modules()))  # before the change to a user who may not read the libraries
    try:
        prepare(isolated, paths, control)
    except OSError as error:
        control.send(json.dumps({"refused": str(error)}).encode())
        sys.exit(1)
    if kind == "isolated":
        warm_up(WARM)
    os.environ.clear()
    os.environ |= {"HOME": jail.SCRATCH, "TMPDIR": jail.SCRATCH, "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
    missing = jail.missing(isolated)
    if kind == "isolated" and not reset_numbers(last):
        missing.append("process numbers go on: they tell how many processes earlier programs started")
    control.send(json.dumps({"missing": missing}).encode())
    confine = partial(jail.lock, isolated=isolated, paths=paths, memory=settings["memory"])
    serve(control, Place(isolated, confine, load, last, cgroup))


if __name__ == "__main__":
    main()
