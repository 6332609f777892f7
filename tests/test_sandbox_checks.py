"""Tests of a program run in another process: what passes is right, and no trick makes a wrong one pass."""

import pytest
from given.sandboxes import KINDS, open_sandbox
from sandbox_attacks import PROGRAMS

from pipeline.sandbox.pool import Check

TESTS = "assert double(2) == 4\nassert double(21) == 42\nassert double([1]) == [1, 1]"


@pytest.fixture(scope="module", params=KINDS)
def sandbox(request):
    with open_sandbox(request.param) as found:
        yield found


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


def test_tests_that_give_a_program_a_function_say_that_they_cannot(sandbox):
    (outcome,) = sandbox.run([Check("def f(g): return g(1)", "assert f(lambda x: x) == 1")], 10.0)
    assert outcome.status == "error" and "tests cannot give the program a function" in outcome.stderr
