# ruff: noqa: E501 (programs are data)
"""Tests of a program run in another process: what passes is right, and no trick makes a wrong one pass."""

from contextlib import nullcontext

import pytest
from conftest import WEAK
from sandbox_attacks import plain

from pipeline.sandbox.pool import Check, Sandbox

TESTS = "assert double(2) == 4\nassert double(21) == 42\nassert double([1]) == [1, 1]"
SEEN = """
import gc, sys
def texts():
    frame = sys._getframe()
    while frame:
        yield str(frame.f_code.co_consts) + str(frame.f_code.co_names) + str(frame.f_locals)
        frame = frame.f_back
    for found in gc.get_objects():
        yield from (text for text in gc.get_referents(found) if type(text) is str)
def double(x):
    # it looks for the line of its tests, whose text it puts together here
    for text in texts():
        if 'double' + '(21)' in text:
            return eval(text.split('double' + '(21) == ')[1].split()[0])
"""
EQUAL = "class Equal({base}):\n    __eq__ = __ne__ = __lt__ = __gt__ = lambda *_: True\n    __hash__ = object.__hash__\n"
TRICKS = {
    "reads the code that it runs in": SEEN,
    "an object that equals everything": EQUAL.format(base="") + "def double(x): return Equal()",
    "a number that equals everything": EQUAL.format(base="int") + "def double(x): return Equal()",
    "a text that equals everything": EQUAL.format(base="str") + "def double(x): return Equal()",
    "a list that equals everything": EQUAL.format(base="list") + "def double(x): return Equal()",
    "leaves early": "import os\nos._exit(0)",
    "leaves when asked": "import os\ndef double(x): os._exit(0)",
    "leaves by an exception": "def double(x): raise SystemExit(0)",
    "ends its generator": "def double(x): raise StopIteration",
    "an assertion that cannot fail": "import builtins\nbuiltins.AssertionError = None\nfor n in ('all', 'abs', 'len'): setattr(builtins, n, lambda *_: True)\ndouble = abs",
    "a function that is no function": "double = 4",
    "says that all is well on its output": "print('passed', flush=True)\nimport os\nos.write(1, b'ok')\nos._exit(0)",
    "answers before it is asked": "import os\nos.write(3, b'[true, [], null]\\n' * 9)\ndouble = str",
    "answers with what is no answer": "import os\nos.write(3, b'[[[\\n')\ndouble = str",
    "answers with deep lists": "import os\nos.write(3, b'[' * 100000 + b'\\n')\ndouble = str",
    "answers with code": 'import os\nos.write(3, b\'[["type", "exec"], [], null]\\n\')\ndouble = str',
    "closes the channel": "import os\nos.close(3)",
    "changes what is expected": "def double(x):\n    if type(x) is list: x.append(1)\n    return x",
    "stops the tests": "import os, signal\nfor n in range(1, 9):\n    try: os.kill(n, 9)\n    except OSError: pass\ndouble = str",
    "is not Python": "def double(x",
}
RIGHT = {
    "a plain function": ("def double(x): return 2 * x", TESTS),
    "values of all kinds": (
        "import collections, decimal, fractions, enum\nPoint = collections.namedtuple('Point', 'x y')\n"
        "class Color(enum.IntEnum): RED = 1\n"
        "def values(): return [Point(1, 2), Color.RED, {1: {2}}, collections.Counter('aab'), b'x', None, 1j, float('inf'),"
        " 10**5000, decimal.Decimal('0.1'), fractions.Fraction(1, 3), frozenset([1]), 'ü\\ud800', int]",
        "import fractions, decimal\nfrom math import inf\nassert values() == [(1, 2), 1, {1: {2}}, {'a': 2, 'b': 1}, b'x', None, 1j, inf,"
        " 10**5000, decimal.Decimal('0.1'), fractions.Fraction(1, 3), frozenset([1]), 'ü\\ud800', int]",
    ),
    "numbers of numpy": (
        "import numpy as np\ndef f(): return np.int64(3), np.bool_(True), np.float32(0.5)",
        "assert f() == (3, True, 0.5)",
    ),
    "objects of its own": (
        "class Node:\n    def __init__(self, value): self.value, self.left = value, None\n"
        "    def up(self, by=1): self.value += by\ndef depth(node): return 1 + depth(node.left) if node else 0",
        "root = Node(1)\nroot.left = Node(2)\nroot.left.up(by=4)\nassert depth(root) == 2 and root.left.value == 6\n"
        "assert root.left is root.left and root != root.left",
    ),
    "iterators": ("def f(n):\n    for i in range(n): yield i", "assert list(f(3)) == [0, 1, 2]\nassert sum(f(3)) == 3"),
    "arguments changed in place": (
        "def f(a, b): a.sort(); b['x'] = a",
        "a, b = [3, 1], {}\nf(a, b)\nassert a == [1, 3] and b == {'x': [1, 3]}",
    ),
    "exceptions": (
        "def f(x): return [][x] if x else int('a')",
        "for x, kind in ((1, IndexError), (0, ValueError)):\n    try:\n        f(x)\n    except kind: continue\n    assert False",
    ),
    "a name of Python's": ("def sum(a, b): return a * b", "assert sum(3, 4) == 12"),
    "libraries that the tests do not import": ("def f(x): return x / 3", "assert math.isclose(f(1), 0.3333333333)"),
    "output": ("print('x' * 100000)\ndef f(): print('x' * 100000); return 1", "print(f())\nassert f() == 1"),
}  # fmt: skip


@pytest.fixture(scope="module", params=["isolated", "plain"])
def sandbox(request):
    if request.param == "isolated" and WEAK:
        pytest.skip("this system allows no namespaces")
    with plain() if request.param == "plain" else nullcontext():
        found = Sandbox(1, weak=request.param == "plain")
    with found:
        yield found


@pytest.mark.parametrize("name", TRICKS)
def test_no_trick_makes_a_wrong_program_pass(sandbox, name):
    (outcome,) = sandbox.run([Check(TRICKS[name], TESTS)], 3.0)
    assert outcome.status in ("error", "limit", "timeout"), outcome
    (after,) = sandbox.run([Check(*RIGHT["a plain function"])], 10.0)
    assert after.status == "ok", after


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_passes(sandbox, name):
    code, tests = RIGHT[name]
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
