"""A worker process: it imports the mathematical packages once, then runs each program in a fork of itself.

`python -m pipeline.sandbox.worker isolated|plain|probe`, started by `pool` with a socket as its standard
input; `probe` is an isolated worker that imports nothing and runs nothing. For each program the socket brings
three descriptors: its code, its standard output and error. A worker never reads the code or the output, so
that its memory, which all programs inherit, holds nothing of those before. An isolated worker is process 1 of
its own process namespace: no signal of a program reaches it, and one kill(-1) ends every process that a
program started, detached or not.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import sys
import threading
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from pipeline.sandbox import jail, kernel

WARM = ("math", "fractions", "decimal", "itertools", "functools", "collections", "datetime", "statistics")
WARM += ("random", "re", "numpy", "sympy")
# Where programs cannot open files, what they import must be there before: MORE, and all of PACKAGES.
MORE = """
abc argparse array ast base64 bisect calendar cmath concurrent.futures copy csv difflib graphlib hashlib
heapq html inspect io json numbers operator platform pprint queue secrets signal string struct textwrap
time timeit types typing unicodedata warnings zlib mpmath sympy.parsing.sympy_parser
sympy.utilities.lambdify
"""
PACKAGES = """
assumptions calculus combinatorics concrete crypto discrete functions geometry integrals logic matrices
ntheory polys sets series simplify solvers stats
"""  # of sympy
FIRST_USE = """
import numpy, sympy
numpy.linalg.solve([[2, 1], [1, 3]], [3, 5]), numpy.linalg.inv(numpy.eye(2)) @ numpy.arange(2)
x, y = sympy.symbols("x y")
sympy.solve([x + y - 3, x - y - 1], [x, y]), sympy.solve(x**2 - 3 * x + 1, x)
sympy.solve(sympy.Eq(2 * x, 3), x)
sympy.integrate(x * sympy.exp(x), (x, 0, 1)), sympy.limit(sympy.sin(x) / x, x, 0)
sympy.diff(sympy.sqrt(x) * sympy.log(x), x), sympy.factor(x**3 - 1), sympy.expand((x + y) ** 3)
sympy.simplify(sympy.sin(x) ** 2 + sympy.cos(x) ** 2), sympy.nsimplify("0.25"), sympy.N(sympy.pi, 20)
sympy.Matrix([[1, 2], [3, 4]]).inv(), sympy.factorint(360), sympy.summation(x, (x, 1, 10))
str(sympy.Rational(1, 3)), sympy.latex(sympy.sqrt(2) / 2), sympy.sympify("x + 1"), sympy.isprime(97)
"""  # first use loads and caches much of these packages
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
    """What programs may import where they cannot open files, beside WARM."""
    yield from MORE.split()
    for name in PACKAGES.split():
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


def _execute(code: str) -> int:
    """Run the program as `__main__`; returns its exit status."""
    scope: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    try:
        exec(compile(code, "<program>", "exec"), scope)
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
        frames = error.__traceback__ and error.__traceback__.tb_next
        traceback.print_exception(type(error), error, frames)
        return 1


def _program_process(
    handles: list[int], seconds: float, isolated: bool, paths: list[str], processes: int
) -> None:
    """In the forked child: confine this process, run the program and exit; never returns."""
    status = 1
    try:
        with open(handles[0], "rb") as file:
            code = file.read().decode("utf-8", "surrogatepass")
        end, _ = os.pipe()  # an input without content
        for number, handle in enumerate([end, *handles[1:]]):
            os.dup2(handle, number)
        os.closerange(3, 1 << 20)
        jail.lock(seconds, isolated, paths, processes)
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
            for number, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        sys.argv = ["program.py"]
        status = _execute(code)
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


def serve(control: socket.socket, isolated: bool, paths: list[str], load: int) -> None:
    """Run programs, one after the other, until the pool closes the socket."""
    while True:
        request, handles, _, _ = socket.recv_fds(control, REQUEST.size, 3)
        if not request:
            return
        if not handles:  # the wish to end a program that had ended
            continue
        processes = jail.PROCESSES + jail.others(isolated, load)
        process = os.fork()
        if process == 0:
            _program_process(handles, *REQUEST.unpack(request), isolated, paths, processes)
        for handle in handles:
            os.close(handle)
        _watch(process, control, isolated)
        status = os.waitstatus_to_exitcode(end_all(isolated)[process])
        with suppress(BrokenPipeError):
            control.send(STATUS.pack(status))


def main() -> None:
    kind = sys.argv.pop()
    isolated, project = kind != "plain", str(Path(__file__).parents[2])
    sys.orig_argv[:] = ["python"]  # programs shall not see where the project is
    control = socket.socket(fileno=os.dup(0))
    load = os.open("/proc/loadavg", os.O_RDONLY)
    paths = jail.library_paths(project)
    sys.path[:] = [path for path in sys.path if path and os.path.abspath(path) != project]
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
    control.send(json.dumps({"missing": jail.missing(isolated)}).encode())
    serve(control, isolated, paths, load)


if __name__ == "__main__":
    main()
