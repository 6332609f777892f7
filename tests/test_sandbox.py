"""The sandbox: no attack has an effect outside, none leaves a process, and ordinary programs work."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import WEAK
from given.lines import read_lines, write_lines
from given.sandboxes import KINDS, open_sandbox, skip_calls_of_x86
from sandbox_attacks import ESCAPES, PROGRAMS, outside, state
from sealedpy import pool
from sealedpy.pool import Check, Sandbox

from pipeline.core.code import ROOT, Code
from pipeline.evaluate import sandbox as program

STATUSES = PROGRAMS["statuses"]
SECONDS, SHORT = 5.0, 0.4  # what a program may take, and one that is to run into the limit


def processes_below(root: int) -> set[int]:
    """Process numbers of all descendants."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(text.rpartition(")")[2].split()[1])
    found, grown = {root}, True
    while grown:
        new = {process for process, parent in parents.items() if parent in found} - found
        found |= new
        grown = bool(new)
    return found - {root}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with outside(tmp_path_factory.mktemp("outside")) as world:
        yield world


@pytest.fixture(scope="module", params=KINDS)
def sandbox(request, world):
    """One worker; `plain` is the fallback where namespaces are forbidden."""
    with open_sandbox(request.param) as found:
        found.plain = request.param == "plain"
        yield found


def _worker_process(sandbox) -> int:
    worker = sandbox.free.get()
    sandbox.free.put(worker)
    return worker.process.pid


def settled(sandbox) -> set[int]:
    """Descendants of this process that belong to the sandbox."""
    worker = _worker_process(sandbox)
    return {worker} | processes_below(worker)


def run_and_check(sandbox, code, world, seconds=SECONDS):
    before = settled(sandbox), state(world["folder"])
    (outcome,) = sandbox.run([code], seconds)
    assert settled(sandbox) == before[0], "a process was left behind, or the worker was lost"
    assert state(world["folder"]) == before[1]
    (after,) = sandbox.run(
        ["import os; print(6 * 7, os.listdir('.') if os.access('.', os.W_OK) else [])"], 5.0
    )
    assert (after.status, after.stdout) == ("ok", "42 []\n")
    return outcome


@pytest.mark.parametrize("name", ESCAPES)
def test_no_attack_gets_out(sandbox, world, name):
    skip_calls_of_x86(ESCAPES[name])
    outcome = run_and_check(sandbox, ESCAPES[name].format(**world), world)
    assert "ESCAPED" not in outcome.stdout
    assert not re.search("(Name|Syntax|ModuleNotFound)Error", outcome.stderr), outcome.stderr


@pytest.mark.parametrize(
    ("status", "name"), [(status, name) for status, programs in STATUSES.items() for name in programs]
)
def test_every_misbehaviour_ends_with_its_status(sandbox, world, status, name):
    code = STATUSES[status][name]
    outcome = run_and_check(sandbox, code, world, SHORT if status == "timeout" else SECONDS)
    needs_files = any(word in code for word in ("open(f", "open('f'", "mkfifo"))
    needs_children = "os.fork" in code
    if sandbox.plain and (needs_files or needs_children):
        assert outcome.status in (status, "error")
    else:
        assert outcome.status == status, outcome.stderr
    assert len(outcome.stdout) <= 1 << 16 and len(outcome.stderr) <= 1 << 17


@pytest.mark.parametrize("name", PROGRAMS["succeed_outside"])
def test_outside_the_sandbox_the_same_attacks_succeed(world, tmp_path, name):
    skip_calls_of_x86(ESCAPES[name])
    code = ESCAPES[name].format(**world)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert "ESCAPED" in done.stdout, done.stderr
    world["secret"].write_text("CANARY")


@pytest.mark.skipif(os.getuid() != 0, reason="only root sees the namespaces of a worker")
def test_the_worker_has_namespaces_of_its_own():
    with open_sandbox("isolated") as sandbox:
        (inner,) = settled(sandbox) - {_worker_process(sandbox)}
        for kind in ("user", "mnt", "pid", "net", "ipc", "uts"):
            link = f"ns/{kind}"
            assert os.readlink(f"/proc/{inner}/{link}") != os.readlink(f"/proc/self/{link}"), kind


def test_programs_see_neither_each_other_nor_what_others_left():
    with Sandbox(2, weak=WEAK) as sandbox:
        write = "import math; math.pi = 3; import random; print(random.random())"
        read = "import os, math; print([], math.pi > 3, __name__, sum(range(5)))"
        if not WEAK:  # else there are no files at all
            write, read = f"open('left', 'w').write('x'); {write}", read.replace("[]", "os.listdir('.')")
        first, *others = sandbox.run([write, read, read], 10.0)
    assert first.status == "ok", (first.stderr, sandbox.missing)
    assert {other.stdout for other in others} == {"[] True __main__ 10\n"}


def test_programs_that_compute_with_numpy_and_sympy_give_their_results(sandbox):
    outcomes = sandbox.run(
        [
            "from sympy import symbols, solve\nx = symbols('x')\nprint(solve(x**2 - 5*x + 6, x))",
            "import numpy as np\nprint(np.linalg.solve([[2, 0], [0, 4]], [1, 2]).tolist())",
            "print('π ≈ 3', end='')",
            "from threading import Timer\nTimer(0.1, lambda: print('late')).start()",
            "from sympy.stats import E, Die\nprint(E(Die('D', 6)))\n"
            "from sympy.solvers.diophantine import diophantine",
        ],
        10.0,
    )
    expected = ["[2, 3]\n", "[0.5, 0.5]\n", "π ≈ 3", "late\n", "7/2\n"]
    for outcome, stdout in zip(outcomes, expected, strict=True):
        assert outcome.stdout == stdout, outcome.stderr


def test_a_program_finds_neither_code_nor_result_of_the_one_before_in_its_memory(sandbox):
    marked, search = PROGRAMS["memory"].values()
    outcomes = sandbox.run([marked, search, f"{marked}\n{search}"], 20.0)
    before, other, itself = (outcome.stdout.split() for outcome in outcomes)
    assert before == ["MARK=096889010407"]
    assert "ESCAPED" in itself[1], "the search finds nothing, not even what is there"
    assert len(other) == 1 and int(other[0]) > 20, other  # MiB


@pytest.mark.parametrize("sandbox", ["isolated"], indirect=True)
def test_process_numbers_tell_nothing_of_the_program_before(sandbox):
    if any("process numbers" in layer for layer in sandbox.missing):
        pytest.skip(f"this system does not let them start again: {sandbox.missing}")
    child = "    if os.fork() == 0: os._exit(0)\n    os.wait()\n"
    few, many = (f"import os\nfor _ in range({count}):\n{child}" for count in (0, 50))
    told = "print(os.getpid(), os.getppid(), os.getpgrp(), os.fork() or os._exit(0))"
    *_, first, _, second = sandbox.run([many, few + told, many, few + told], 10.0)
    assert (first.status, first.stdout) == (second.status, second.stdout) == ("ok", second.stdout)


# tests of a program run in another process

TESTS = "assert double(2) == 4\nassert double(21) == 42\nassert double([1]) == [1, 1]"


@pytest.mark.parametrize("name", PROGRAMS["tricks"])
def test_no_trick_makes_a_wrong_program_pass(sandbox, name):
    (outcome,) = sandbox.run([Check(PROGRAMS["tricks"][name], TESTS)], 3.0)
    assert outcome.status in ("error", "limit", "timeout"), outcome
    (after,) = sandbox.run([Check("def double(x): return 2 * x", TESTS)], 10.0)
    assert after.status == "ok", after


@pytest.mark.parametrize("name", PROGRAMS["right"])
def test_a_right_program_passes(sandbox, name):
    code, tests = PROGRAMS["right"][name].values()
    (outcome,) = sandbox.run([Check(code, tests)], 10.0)
    assert outcome.status == "ok", outcome
    wrong = "assert False, 'the end was reached'"
    (outcome,) = sandbox.run([Check(code, f"{tests}\n{wrong}")], 10.0)
    assert outcome.status == "error" and "the end was reached" in outcome.stderr, outcome


def test_helpers_at_the_beginning_of_a_program_are_not_the_programs(sandbox):
    start = "def code(x):\n    return x + 1\n\ndef decode(x):\n    'Undo `code`.'\n"
    tests = (
        "def check(candidate):\n    for x in range(5):\n        assert candidate(code(x)) == x\ncheck(decode)"
    )
    right, wrong = "    return x - 1\n", "    return x\n\ncode = lambda x: x\n"
    outcomes = sandbox.run([Check(start + end, tests, start) for end in (right, wrong)], 10.0)
    assert [outcome.status for outcome in outcomes] == ["ok", "error"]


@pytest.mark.parametrize("start", ["", "def f():\n"])
def test_a_module_that_tests_do_not_import_is_not_taken_from_the_program(sandbox, start):
    code = "def f():\n    return 1\nclass np:\n    allclose = staticmethod(lambda *_: True)"
    (outcome,) = sandbox.run([Check(code, "assert np.allclose(f(), 2)", start)], 10.0)
    assert outcome.status == "error" and "'np' is not defined" in outcome.stderr


def test_tests_that_give_a_program_a_function_say_that_they_cannot(sandbox):
    (outcome,) = sandbox.run([Check("def f(g): return g(1)", "assert f(lambda x: x) == 1")], 10.0)
    assert outcome.status == "error" and "tests cannot give the program a function" in outcome.stderr


def test_output_of_exit_functions_is_kept(sandbox):
    (found,) = sandbox.run(["import atexit\natexit.register(print, 'bye')\nprint('hello')"], 10.0)
    assert (found.status, found.stdout) == ("ok", "hello\nbye\n")


def lose(worker):
    os.kill(worker.process.pid, 9)
    worker.process.wait()


def test_a_lost_worker_is_replaced_and_its_program_runs_again():
    with Sandbox(1, weak=WEAK) as sandbox:
        worker = sandbox.free.get()
        lose(worker)
        sandbox.free.put(worker)
        first, second = sandbox.run(["print(1)", "print(2)"], 10.0)
    assert (first.status, first.stdout, second.status, second.stdout) == ("ok", "1\n", "ok", "2\n")


def test_a_program_that_loses_two_workers_did_it_itself(monkeypatch):
    start = pool.Worker.run

    def run(worker, code, seconds):
        if "bad" in code:
            lose(worker)
        return start(worker, code, seconds)

    monkeypatch.setattr(pool.Worker, "run", run)
    with Sandbox(1, weak=WEAK) as sandbox:
        lost, next_one = sandbox.run(["print('bad')", "print(2)"], 10.0)
    assert (lost.status, next_one.status, next_one.stdout) == ("limit", "ok", "2\n")


def test_a_killed_parent_takes_its_programs_along():
    code = "from sealedpy.pool import Sandbox\n"
    code += f"list(Sandbox(1, weak={WEAK}).run(['while True: pass'], 300.0))"
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    deadline = time.monotonic() + 60
    expected = 2 if WEAK else 3  # the worker, process 1 of its namespace, the program
    while len(below := processes_below(parent.pid)) < expected and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(below) == expected
    parent.kill()
    parent.wait()
    while any(Path(f"/proc/{process}").exists() for process in below) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [process for process in below if Path(f"/proc/{process}").exists()]


def test_the_sandbox_counts_for_the_evaluation_by_its_version():
    assert "sealedpy" in Code().packages("pipeline.evaluate")


def test_the_program_answers_in_order_and_names_a_bad_row(tmp_path, capsys):
    rows = [{"id": "a", "code": "print(1)"}, {"id": "b", "code": "1/0"}, {"id": "c", "code": "while 1: pass"}]
    programs, results = write_lines(tmp_path / "programs.jsonl", rows), tmp_path / "results.jsonl"
    arguments = ["--input", str(programs), "--output", str(results), "--timeout", "0.5", *["--weak"] * WEAK]
    program.main(arguments)
    found = read_lines(results)
    ends = [("a", "ok", "1\n"), ("b", "error", ""), ("c", "timeout", "")]
    assert [(row["id"], row["status"], row["stdout"]) for row in found] == ends
    assert "ZeroDivisionError" in found[1]["stderr"]
    write_lines(programs, [{"id": "a"}])
    with pytest.raises(SystemExit):
        program.main(arguments)
    assert "programs.jsonl: line 1: `code` is missing" in capsys.readouterr().err
