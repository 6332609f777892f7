"""A worker process: it imports the mathematical packages once, then runs each program in a fork of itself.

`python -m pipeline.sandbox.worker isolated|plain PROJECT`, started by `pool`. Requests and replies
are JSON lines on its standard input and output, which programs do not inherit. An isolated worker is process
1 of its own process namespace: no signal of a program reaches it, and one kill(-1) ends every process that a
program started, detached or not.
"""

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import Any

from pipeline.sandbox import jail, kernel

WARM = ("math", "fractions", "decimal", "itertools", "functools", "collections", "datetime", "statistics")
WARM += ("random", "re", "numpy", "sympy")
FIRST_USE = """
import sympy
x, y = sympy.symbols("x y")
sympy.solve([x + y - 3, x - y - 1], [x, y]), sympy.solve(x**2 - 3 * x + 1, x)
sympy.solve(sympy.Eq(2 * x, 3), x)
sympy.integrate(x * sympy.exp(x), (x, 0, 1)), sympy.limit(sympy.sin(x) / x, x, 0)
sympy.diff(sympy.sqrt(x) * sympy.log(x), x), sympy.factor(x**3 - 1), sympy.expand((x + y) ** 3)
sympy.simplify(sympy.sin(x) ** 2 + sympy.cos(x) ** 2), sympy.nsimplify("0.25"), sympy.N(sympy.pi, 20)
sympy.Matrix([[1, 2], [3, 4]]).inv(), sympy.factorint(360), sympy.summation(x, (x, 1, 10))
str(sympy.Rational(1, 3)), sympy.latex(sympy.sqrt(2) / 2), sympy.sympify("x + 1"), sympy.isprime(97)
"""  # first use loads and caches much of these packages
OUTPUT_BYTES = 1 << 16  # of each stream
MEMORY_EXIT = 77
LIMIT_SIGNALS = (
    signal.SIGXCPU,
    signal.SIGXFSZ,
    signal.SIGKILL,
)  # the last: by the kernel, out of memory


def prepare(isolated: bool, paths: list[str], requests: int, replies: int) -> None:
    """Enter the jail. If isolated, return in process 1 of the new namespaces, whose parent waits."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if memory runs out, programs go first
    if isolated:
        kernel.unshare(jail.NAMESPACES)
        os.write(replies, b"map\n")
        os.read(requests, 1)  # the pool has mapped our users
        jail.build_view(paths)
        socket.sethostname("sandbox")
        child = os.fork()
        if child:
            os.close(requests)
            os.close(replies)
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


def warm_up() -> None:
    """Import installed packages that programs use, and keep their pages shared with all forks."""
    for name in WARM:
        with suppress(ImportError):
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


def _program_process(code: str, seconds: float, isolated: bool, paths: list[str], streams: list[int]) -> None:
    """In the forked child: confine this process, run the program and exit; never returns."""
    status = 1
    try:
        null = os.open("/dev/null", os.O_RDONLY)
        for number, stream in enumerate([null, *streams]):
            os.dup2(stream, number)
        os.closerange(3, 1 << 20)
        jail.lock(seconds, isolated, paths)
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


def _watch(process: int, streams: dict[int, bytearray], requests: int, seconds: float) -> str | None:
    """Read the program's output until it exits; returns `timeout` or `limit` if it must be killed."""
    handle, deadline = os.pidfd_open(process), time.monotonic() + seconds
    poll = select.poll()
    for descriptor in (handle, *streams):
        poll.register(descriptor, select.POLLIN)
    poll.register(requests, 0)  # hang-up only: nobody waits for the result any more
    try:
        while True:
            left = deadline - time.monotonic()
            ready = dict(poll.poll(left * 1000)) if left > 0 else {}
            if not ready:
                return "timeout"
            if requests in ready:
                end_all(os.getpid() == 1)
                os._exit(0)
            for stream in streams.keys() & ready.keys():
                data = os.read(stream, OUTPUT_BYTES)
                if not data:
                    poll.unregister(stream)
                streams[stream] += data
                if len(streams[stream]) > OUTPUT_BYTES:
                    return "limit"
            if handle in ready:
                return None
    finally:
        os.close(handle)


def run(code: str, seconds: float, isolated: bool, paths: list[str], requests: int) -> dict[str, str]:
    """Run one program and end all its processes: {"status", "stdout", "stderr"}."""
    pipes = [os.pipe(), os.pipe()]
    process = os.fork()
    if process == 0:
        _program_process(code, seconds, isolated, paths, [write for _, write in pipes])
    for _, write in pipes:
        os.close(write)
    streams = {read: bytearray() for read, _ in pipes}
    stopped = _watch(process, streams, requests, seconds)
    status = os.waitstatus_to_exitcode(end_all(isolated)[process])
    for read, data in streams.items():
        while len(data) <= OUTPUT_BYTES and (more := os.read(read, OUTPUT_BYTES)):
            data += more
        os.close(read)
        if len(data) > OUTPUT_BYTES:
            stopped = stopped or "limit"
    if stopped is None and (status == MEMORY_EXIT or (status < 0 and -status in LIMIT_SIGNALS)):
        stopped = "limit"
    stdout, stderr = (bytes(data[:OUTPUT_BYTES]).decode("utf-8", "replace") for data in streams.values())
    if stopped is None and status < 0:
        stderr += f"ended by signal {signal.Signals(-status).name}\n"
    return {"status": stopped or ("error" if status else "ok"), "stdout": stdout, "stderr": stderr}


def main() -> None:
    isolated, project = sys.argv[1] == "isolated", sys.argv[2]
    sys.argv[1:], sys.orig_argv[:] = [], ["python"]  # programs shall not see where the project is
    requests, replies = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    paths = jail.library_paths(project)
    sys.path[:] = [path for path in sys.path if path and os.path.abspath(path) != project]
    if not isolated:
        warm_up()  # before the change to a user who may be unable to read the libraries
    prepare(isolated, paths, requests, replies)
    if isolated:
        warm_up()
    os.environ.clear()
    os.environ |= {"HOME": jail.SCRATCH, "TMPDIR": jail.SCRATCH, "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
    os.write(replies, json.dumps({"missing": jail.missing(isolated)}).encode() + b"\n")
    with open(requests, "rb") as lines, open(replies, "wb") as answers:
        for line in lines:  # no variable here holds a result: the next program could read it in this frame
            request = json.loads(line)
            answers.write(
                json.dumps(run(request["code"], request["seconds"], isolated, paths, requests)).encode()
                + b"\n"
            )
            answers.flush()


if __name__ == "__main__":
    main()
