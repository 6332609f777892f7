r"""Decides whether two answers are equal by the rules of the paper's evaluation program, quirks included.

Runs as a process of its own (`official`): SymPy may take any time, and the authors' program stops a
comparison after 15 seconds, which counts as wrong. Here they are seconds of the processor, so that a busy
machine gives the same verdicts. Their program also runs what a model wrote as Python. Here a text reaches
Python only if it calls nothing but mathematical functions; any other counts as one that Python cannot read.
"""

import ast
import json
import re
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from io import StringIO
from math import isclose, isfinite
from tokenize import ENDMARKER, ERRORTOKEN, NAME, NEWLINE, NL, NUMBER, OP, TokenError, generate_tokens
from typing import Any

MEMORY = 4 << 30  # bytes of address space
NEAR = 1e-3
INVALID = "[invalidanswer]"
_CALLED = {"abs", "max", "min", "pow", "round", "sqrt", "cbrt", "root", "Rational", "Integer", "S"}
_TOKENS = {NAME, NUMBER, OP, ERRORTOKEN, NEWLINE, NL, ENDMARKER}
_MATRIX = re.compile(r"\\begin\{[pb]matrix\}(.*)\\end\{[pb]matrix\}", re.DOTALL)


@cache
def _unsafe_names() -> frozenset[str]:
    """Return what Python and SymPy can call but for functions of numbers and formulas."""
    import builtins

    import sympy

    known = vars(builtins) | vars(sympy)
    return frozenset(
        name
        for name, value in known.items()
        if callable(value) and not isinstance(value, sympy.FunctionClass) and name not in _CALLED
    )


def is_formula(text: str) -> bool:
    """Whether Python may evaluate a text as SymPy does: it has no strings and no attributes, and names
    nothing that can be called but mathematical functions.
    """
    try:
        tokens = list(generate_tokens(StringIO(text.strip()).readline))
    except (TokenError, SyntaxError, ValueError):
        return False
    return not any(
        token.type not in _TOKENS
        or token.string in (".", ":=", ":", "@", "lambda", "for", "await", "yield", "import")
        or token.string.startswith("_")
        or token.string in _unsafe_names()
        for token in tokens
    )


def _parse(text: str) -> Any:
    """Return a SymPy object, or the text itself."""
    from sympy.parsing.latex import parse_latex
    from sympy.parsing.sympy_parser import parse_expr

    with suppress(Exception):
        return parse_latex(text)
    with suppress(Exception):
        if is_formula(text):
            return parse_expr(text)
    return text


def _numeric(found: Any) -> Any:
    from sympy import N

    if isinstance(found, str) and not is_formula(found):
        raise ValueError(found)
    return N(found)


def symbolic_equal(one: str, other: str) -> bool:
    """Whether two formulas differ by what SymPy simplifies to 0, or are numbers within 0.001."""
    from sympy import simplify

    a, b = _parse(one), _parse(other)
    with suppress(Exception):
        if simplify(a - b) == 0:
            return True
    with suppress(Exception):
        return isclose(_numeric(a), _numeric(b), abs_tol=NEAR)
    return False


def number(text: str) -> float | None:
    """Return the float that a text is without its commas; 23% is 0.23."""
    text = text.replace(",", "")
    with suppress(ValueError):
        return float(text)
    if text.endswith("%"):
        with suppress(ValueError):
            return float(text[:-1].removesuffix("\\")) / 100
    return None


def _bracketed(given: str, gold: str) -> bool:
    """Whether both are in brackets of any kind, with equal parts between commas."""
    if not all(re.match(r"[(\[].+[)\]]", side) for side in (given, gold)):
        return False
    return _all_equal(given[1:-1].split(","), gold[1:-1].split(","))


def _all_equal(given: Sequence[str], gold: Sequence[str]) -> bool:
    return len(given) == len(gold) and all(map(math_equal, given, gold))


def _matrices(given: str, gold: str) -> bool:
    """Whether both are matrices whose cells are equal."""
    found = [_MATRIX.fullmatch(side) for side in (given, gold)]
    if None in found:
        return False
    rows = [[row.strip() for row in match[1].split("\\\\") if row.strip()] for match in found if match]
    return len(rows[0]) == len(rows[1]) and all(
        _all_equal(one.split("&"), other.split("&")) for one, other in zip(*rows, strict=True)
    )


def _equations(given: str, gold: str) -> bool:
    """Whether both are the same equation, or one is "x = " before what equals the other."""
    sides = [text.split("=") for text in (given, gold)]
    if len(sides[0]) == len(sides[1]) == 2:
        one, other = (f"{left.strip()} - ({right.strip()})" for left, right in sides)
        return symbolic_equal(one, other) or symbolic_equal(f"-({one})", other)
    for mine, theirs in ((0, 1), (1, 0)):
        if len(sides[mine]) == 2 and len(sides[mine][0].strip()) <= 2 and len(sides[theirs]) == 1:
            pair = (sides[0][1], gold) if mine == 0 else (given, sides[1][1])
            return math_equal(*pair)
    return False


def math_equal(given: str, gold: str) -> bool:
    """Whether two answers are equal: text, numbers (100 times and 1/100 of the reference too), formulas."""
    if given == gold:
        return True
    numbers = number(given), number(gold)
    if None not in numbers:
        return any(isclose(scale(numbers[1]), numbers[0], abs_tol=NEAR) for scale in _SCALES)
    if not given:
        return False
    given, gold = given.strip(), gold.strip()
    rules = (_bracketed, _matrices, _equations, symbolic_equal)
    return any(rule(given, gold) for rule in rules)


_SCALES: tuple[Callable[[float], float], ...] = (lambda x: x / 100, lambda x: x, lambda x: x * 100)


def equal(given: str, gold: str) -> bool:
    """Whether one answer is the other; unions are compared as sets of their parts."""
    if "\\cup" in given and "\\cup" in gold:
        return same_set(given.split("\\cup"), gold.split("\\cup"))
    with suppress(ValueError):
        if abs(float(given.replace(",", "")) - float(gold.replace(",", ""))) < NEAR:
            return True
    return given == gold != "" or math_equal(given, gold)


def same_set(given: Sequence[str], gold: Sequence[str]) -> bool:
    """Whether each answer equals a reference, and each reference an answer."""
    pairs = [[equal(one, other) for other in gold] for one in given]
    return all(map(any, pairs)) and all(any(row[place] for row in pairs) for place in range(len(gold)))


def _float(text: str) -> float | None:
    """Return what a text is as a Python calculation, else as LaTeX."""
    from sympy.parsing.latex import parse_latex

    with suppress(Exception):
        tree = ast.parse(text.lstrip(" \t"), mode="eval")
        allowed = (*_CALCULATION, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
        if all(isinstance(node, allowed) for node in ast.walk(tree)):
            return float(eval(compile(tree, "", "eval"), {"__builtins__": {}}))  # literals and operators only
    with suppress(Exception):
        found = parse_latex(text)
        if found.is_number:
            return float(found)
    return None


_CALCULATION = (ast.Expression, ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp)


def ocw_numbers(given: str, gold: str) -> bool:
    """Whether two numbers of OCWCourses, units removed, are close; none is close to 0 or a negative one."""
    one, other = _float(given), _float(gold)
    if one is None or other is None:
        return False
    if any(_close(side, 0) for side in (one, other, one - other)):
        return abs(one - other) < 0.01 * (one + other) / 2
    return _close(one, other)


def _close(one: float, other: float) -> bool:
    """Compare as numpy.isclose does."""
    if isfinite(one) and isfinite(other):
        return abs(one - other) <= 1e-8 + 1e-5 * abs(other)
    return one == other


def ocw_equations(given: str, gold: str) -> bool:
    """Whether SymPy reads both as one and the same equation."""
    from sympy import Equality
    from sympy.parsing.latex import parse_latex

    with suppress(Exception):
        one, other = parse_latex(given), parse_latex(gold)
        return isinstance(one, Equality) and one == other
    return False


RULES: dict[str, Callable[[Any, Any], bool]] = {
    "equal": equal,
    "same_set": same_set,
    "ocw_numbers": ocw_numbers,
    "ocw_equations": ocw_equations,
}


def main() -> None:
    """Answer [seconds, rule, given, reference] a line with true or false, until the input ends; a comparison
    that takes more seconds of the processor ends the process.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    from sympy.parsing.latex import parse_latex

    parse_latex("1")  # what this loads belongs to no answer
    for line in sys.stdin:
        seconds, rule, given, gold = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        found = RULES[rule](given, gold)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
