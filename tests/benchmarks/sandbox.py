"""`make bench-sandbox`: what the sandbox costs a program.

Each program runs many times in one warm worker, and as often in a fresh interpreter without any protection;
medians count. The peer is that fresh interpreter: what `subprocess.run` of model-written code costs.
"""

import statistics
import subprocess
import sys
import time

from table import Row, publish

from pipeline.evaluate.sandbox.pool import Sandbox

REPEATS = 30
PROGRAMS = {
    "print a number": "print(42)",
    "numpy: solve a linear system": "import numpy as np\nprint(np.linalg.solve([[2, 1], [1, 3]], [3, 5]))",
    "sympy: solve an equation": "from sympy import *\nx = symbols('x')\nprint(solve(x**2 - 5*x + 6, x))",
    "sympy: an integral": "from sympy import *\nx = symbols('x')\nprint(integrate(x**2 * cos(x), x))",
}


def seconds(call) -> float:
    """Wall-clock seconds of one call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def measure(sandbox: Sandbox, name: str, code: str) -> Row:
    """Milliseconds of one program, ours and in a fresh interpreter."""
    (outcome,) = sandbox.run([code], 30.0)
    assert outcome.status == "ok", outcome
    ours = statistics.median(seconds(lambda: sandbox.run([code], 30.0)) for _ in range(REPEATS))
    fresh = [sys.executable, "-c", code]
    peer = statistics.median(
        seconds(lambda: subprocess.run(fresh, capture_output=True, check=True)) for _ in range(5)
    )
    row = {"what": name, "unit": "ms", "ours": 1000 * ours, "peer": 1000 * peer}
    return row | {"peer_name": "fresh interpreter", "ratio": peer / ours, "data": "one program"}


def main() -> None:
    with Sandbox(1) as sandbox:
        rows = [measure(sandbox, name, code) for name, code in PROGRAMS.items()]
    publish("sandbox", rows, "one used")


if __name__ == "__main__":
    main()
