"""What the sandbox costs a program: `make bench-sandbox` prints a table, writes results/bench/sandbox.json.

Each program runs many times in one warm worker, and as often in a fresh interpreter without any protection;
medians count. The peer is that fresh interpreter: what `subprocess.run` of model-written code costs.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

from pipeline.sandbox.pool import Sandbox

RESULT = Path("results/bench/sandbox.json")
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


def measure(sandbox: Sandbox, name: str, code: str) -> dict[str, object]:
    """Milliseconds of one program, ours and in a fresh interpreter."""
    (outcome,) = sandbox.run([code], 30.0)
    assert outcome.status == "ok", outcome
    ours = statistics.median(seconds(lambda: list(sandbox.run([code], 30.0))) for _ in range(REPEATS))
    fresh = [sys.executable, "-c", code]
    peer = statistics.median(
        seconds(lambda: subprocess.run(fresh, capture_output=True, check=True)) for _ in range(5)
    )
    row = {"what": name, "unit": "ms", "ours": 1000 * ours, "peer": 1000 * peer}
    return row | {"peer_name": "fresh interpreter", "ratio": peer / ours}


def main() -> None:
    with Sandbox(1) as sandbox:
        rows = [measure(sandbox, name, code) for name, code in PROGRAMS.items()]
    for row in rows:
        print(f"{row['what']:32} {row['ours']:8.1f} ms   fresh interpreter {row['peer']:8.1f} ms")
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    machine = {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version()}
    RESULT.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
