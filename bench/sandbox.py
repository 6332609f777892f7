"""`make bench-sandbox`: what the sandbox costs a program.

Each program runs many times in one warm worker, and as often in a fresh interpreter without any protection;
medians count, and processor time too, which a busy machine changes less. The peer is that fresh interpreter:
what `subprocess.run` of model-written code costs.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sealedpy.pool import Sandbox
from table import Row, publish, row_of

REPEATS = 50
PROGRAMS = {
    "print a number": "print(42)",
    "numpy: solve a linear system": "import numpy as np\nprint(np.linalg.solve([[2, 1], [1, 3]], [3, 5]))",
    "sympy: solve an equation": "from sympy import *\nx = symbols('x')\nprint(solve(x**2 - 5*x + 6, x))",
    "sympy: an integral": "from sympy import *\nx = symbols('x')\nprint(integrate(x**2 * cos(x), x))",
}


def processor_seconds(process: int) -> float:
    """User and system time of a process and all below it, those that have ended included."""
    times = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:15]
    below = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    own = sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
    return own + sum(processor_seconds(int(child)) for child in below)


def seconds(call: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Wall-clock seconds of one call, the median, and processor seconds of this process and all below it,
    the mean.
    """
    before, walls = processor_seconds(os.getpid()), []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        walls.append(time.perf_counter() - started)
    return statistics.median(walls), (processor_seconds(os.getpid()) - before) / repeats


def measure(sandbox: Sandbox, name: str, code: str) -> list[Row]:
    """Milliseconds of one program, ours and in a fresh interpreter: on the clock and of the processor."""
    (outcome,) = sandbox.run([code], 30.0)
    assert outcome.status == "ok", outcome
    fresh = [sys.executable, "-c", code]
    ours = seconds(lambda: list(sandbox.run([code], 30.0)), REPEATS)
    peer = seconds(lambda: subprocess.run(fresh, capture_output=True, check=True), 5)
    return [
        row_of(what, "ms", 1000 * own, 1000 * other, "fresh interpreter", "one program", rate=False)
        for what, own, other in zip((name, f"{name}: processor time"), ours, peer, strict=True)
    ]


def main() -> None:
    with Sandbox(1, weak=True) as sandbox:
        rows = [row for name, code in PROGRAMS.items() for row in measure(sandbox, name, code)]
    publish("sandbox", rows, "one used")


if __name__ == "__main__":
    main()
