"""Whatever way a program ends, it has an outcome, and the next program runs."""

import os
import random

import pytest
from given.cases import cases
from given.sandboxes import KINDS, open_sandbox
from sandbox_as_user import SMALL_WORKER
from sealedpy.pool import outcome_of

TABLES = cases("wrecks")
EXIT_OBJECTS = ("None", "True", "'text'", "[1]", "10**40", "-1", "3.5", "b''", "object", "'\\ud800'")
EXCEPTIONS = (
    "ValueError",
    "KeyboardInterrupt",
    "SystemExit",
    "MemoryError",
    "GeneratorExit",
    "BaseException",
)
HOSTILE = """
class Hostile({base}):
    def {method}(self, *_): {act}
raise Hostile(7)
"""
METHODS = ("__str__", "__repr__", "__bool__", "__and__", "__int__", "__del__", "__init__")
ACTS = ("raise ValueError", "raise SystemExit(3)", "return 5", "return None", "return self", "1 / 0")
WRECKS = TABLES["wrecks"]


def _program(draw: random.Random) -> str:
    """A program that ends in a way drawn at random."""
    threads = "import threading\nthreading.Thread(target=lambda: ({})).start()"
    child = "if os.fork() == 0: {}\nos.wait()"
    ends = [
        f"os._exit({draw.randint(-300, 600)})",
        f"os.kill(os.getpid(), {draw.choice([n for n in range(65) if n not in (19, 20, 21, 22)])})",
        f"sys.exit({draw.choice(EXIT_OBJECTS)})",
        f"raise {draw.choice(EXCEPTIONS)}({draw.choice(EXIT_OBJECTS)})",
        HOSTILE.format(
            base=draw.choice((*EXCEPTIONS, "int")), method=draw.choice(METHODS), act=draw.choice(ACTS)
        ).replace("raise Hostile(7)", draw.choice(("raise Hostile(7)", "sys.exit(Hostile(7))"))),
        draw.choice(WRECKS),
        "".join(chr(draw.choice((0, 10, 40, 58, 0x1F600, 0xD800))) for _ in range(5)),
    ]
    end = draw.choice(ends)
    if "\n" not in end and not end.startswith("raise") and end.startswith(("os.", "sys.exit")):
        end = draw.choice((end, end, threads.format(end), child.format(end)))
    wreck = draw.choice(WRECKS) if draw.random() < 0.1 else ""
    return f"import os, sys\n{wreck}\n{end}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_programs_that_end_in_every_way_have_outcomes_and_leave_the_pool_alive(kind):
    seed = os.environ.get("FUZZ_SEED", "0")
    draw = random.Random(f"{kind}{seed}")
    programs = [_program(draw) for _ in range(1000)]
    with open_sandbox(kind, 2, SMALL_WORKER) as sandbox:
        outcomes = list(sandbox.run(programs, 1.0))
        (after,) = sandbox.run(["print(6 * 7)"], 5.0)
    assert (after.status, after.stdout) == ("ok", "42\n")
    counts = {
        status: sum(found.status == status for found in outcomes) for status in ("ok", "error", "limit")
    }
    assert len(outcomes) == 1000 and min(counts.values()) > 5, counts


def test_each_exit_status_and_each_signal_gives_an_outcome():
    found = {status: outcome_of(status, None, "out", "err") for status in range(-255, 256)}
    assert [status for status, outcome in found.items() if outcome.status == "ok"] == [0]
    assert {outcome.stdout for outcome in found.values()} == {"out"}
    named = [status for status in found if f"ended by signal {-status}" in found[status].stderr]
    assert named == [status for status in range(-255, 0) if found[status].status == "error"]
    assert found[-11].stderr == "errended by signal 11 (SIGSEGV)\n"
    assert [status for status, outcome in found.items() if outcome.status == "limit"] == [-25, -24, -9, 77]
