"""Run all attacks as whoever starts this: `python tests/sandbox_as_user.py isolated|plain FOLDER`.

Prints JSON: the number of the user, the layers that are missing, the outcome of each attack by name, and what
the attacks changed in FOLDER, which is empty at the start.
"""

import json
import os
import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from sandbox_attacks import ESCAPES, outside, plain, state
from sealedpy.pool import Sandbox, Worker

# No attack needs numpy and sympy, and without them a worker starts and forks in a fraction of the time.
SMALL_WORKER = """
from sealedpy import worker
worker.WARM, worker.FIRST_USE, worker.more_modules = ("statistics", "threading"), "", list
worker.main()
"""
THREADS = "from threading import Thread\nThread(target=print, args=('from a thread',)).start()"


def main() -> None:
    kind, folder = sys.argv[1], Path(sys.argv[2])
    Worker.command = (*Worker.interpreter, "-c", SMALL_WORKER)
    with plain() if kind == "plain" else nullcontext():
        sandbox = Sandbox(1, weak=True)
    with outside(folder) as world, sandbox:
        before = state(folder)
        programs = [code.format(**world) for code in ESCAPES.values()]
        # A minute of the clock, because the machine may be busy: a time-out would say nothing of an attack.
        *outcomes, threads = map(asdict, sandbox.run([*programs, THREADS], 60.0))
        after = state(folder)
        found = {
            "user": os.getuid(),
            "missing": sandbox.missing,
            "outcomes": dict(zip(ESCAPES, outcomes, strict=True)),
            "threads": threads["stdout"],
            "changed": [name for name in {**before, **after} if before.get(name) != after.get(name)],
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
