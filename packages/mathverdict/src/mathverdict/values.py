"""Evaluate expressions: exact rationals where possible, else 60 digits at fixed points; bounded in time.

Two expressions are equal if their values agree to a relative tolerance at every point where both are defined.
Real points lie below 0, in (0, 1) and above 1, so that sqrt(x^2) is not x; points where only one side is real
are skipped. Values beyond 10^(10^6) and arguments that take too long raise `Unbounded`.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from functools import lru_cache
from threading import local
from typing import Any

from .points import DIGITS, WHOLE_NAMES, context, irregular, is_whole, points
from .tree import (
    FUNCTION_NAMES,
    Expression,
    difference,
    make,
    number,
    rebuild,
    symbols,
    walk,
)

MAX_BITS = 40_000
MAX_MAGNITUDE = 4_000_000  # bits before the binary point of an inexact value
MAX_TERMS = 2_000
MAX_STEPS = 60_000  # nodes evaluated for one comparison of two expressions
SAME, DIFFERENT = 1e-56, 1e-30


class _Work(local):
    """Steps of a thread: made in a comparison, left to the verdict. A lock could stay locked after a fork."""

    steps = 0
    left = math.inf


_work = _Work()


class Unbounded(ArithmeticError):
    """A value too large or a computation too long."""


class Undefined(ArithmeticError):
    """No value: division by zero, a tuple where a number is needed, an unknown function of two arguments."""


class Exhausted(Exception):
    """The step budget of a verdict is spent; no rule may go on."""


@contextmanager
def budget(steps: float) -> Iterator[None]:
    """Let at most `steps` comparisons and nodes be evaluated inside; beyond them `spend` raises Exhausted."""
    before, _work.left = _work.left, steps
    try:
        yield
    finally:
        _work.left = before


def spend(steps: int) -> None:
    """Take steps from the budget of the verdict. Raises Exhausted."""
    _work.left -= steps
    if _work.left < 0:
        raise Exhausted("too many steps")


@lru_cache(maxsize=16384)
def exact(node: Expression) -> Fraction | None:
    """Return the exact rational value of an expression within MAX_BITS, or None."""
    kind = node.kind
    if kind in ("number", "decimal"):
        return node.value
    if kind not in ("add", "mul", "div", "neg", "pow", "percent", "ratio", "quantity"):
        return None
    parts = [exact(argument) for argument in node.args]
    if any(part is None for part in parts):
        return None
    if kind == "pow":
        return _exact_power(*parts)
    if sum(part.numerator.bit_length() + part.denominator.bit_length() for part in parts) > MAX_BITS:
        return None
    first = parts[0]
    if kind in ("div", "ratio"):
        return first / parts[1] if len(parts) == 2 and parts[1] else None
    if kind == "add":
        return sum(parts)
    if kind == "mul":
        return first * parts[1]
    if kind == "neg":
        return -first
    return first / 100 if kind == "percent" else first


def _exact_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1 or (base == 0 and exponent <= 0):
        return None
    bits = base.numerator.bit_length() + base.denominator.bit_length()
    return base**exponent.numerator if bits * abs(exponent.numerator) <= MAX_BITS else None


def _bounded(value: Any) -> Any:
    if context.isnan(value):
        raise Undefined("not a number")
    if context.isinf(value):
        return value
    if value and context.mag(value) > MAX_MAGNITUDE:
        raise Unbounded("a value too large")
    return value


def _power(base: Any, exponent: Any) -> Any:
    if base == 0:
        if context.re(exponent) <= 0:
            raise Undefined("zero to a power that is not positive")
        return context.zero
    if abs(exponent) * max(1, abs(context.mag(base))) > MAX_MAGNITUDE:
        raise Unbounded("a power too large")
    return context.power(base, exponent)


def _small(value: Any) -> Any:
    """Return an argument for functions whose cost grows with its size."""
    if context.mag(value) > 40:
        raise Unbounded("an argument too large")
    return value


def _root(value: Any, index: Any) -> Any:
    """Return the real root of a negative number for an odd index, else the principal one."""
    if context.im(value) == 0 and context.re(value) < 0 and context.isint(index) and int(index) % 2:
        return -_power(-value, 1 / index)
    return _power(value, 1 / index)


def _binomial(n: Any, k: Any) -> Any:
    top, bottom, rest = (_small(part) + 1 for part in (n, k, n - k))
    return context.gamma(top) * context.rgamma(bottom) * context.rgamma(rest)


def _careful(name: str) -> Callable[[Any], Any]:
    return lambda value: getattr(context, name)(_small(value))


def _of_context(name: str) -> Callable[[Any], Any]:
    """Return a function of the context of the thread that calls it."""
    return lambda value: getattr(context, name)(value)


def _logarithm(value: Any) -> Any:
    if value == 0:
        raise Undefined("logarithm of zero")
    return context.ln(value)


_CIRCULAR = ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")
FUNCTIONS = {
    **{name: _careful(name) for name in (*_CIRCULAR, "coth")},
    **{f"arc{name}": _of_context(f"a{name}") for name in _CIRCULAR},
    **{name: _of_context(name) for name in ("sqrt", "floor", "ceil", "arg")},
    "exp": lambda value: _power(context.e, value),
    "ln": _logarithm,
    "cbrt": lambda value: _root(value, context.mpf(3)),
    "root": _root,
    "abs": abs,
    "factorial": lambda value: context.gamma(_small(value) + 1),
    "Re": _of_context("re"),
    "Im": _of_context("im"),
    "sgn": _of_context("sign"),
    "max": max,
    "min": min,
    "binom": _binomial,
}


def _unknown_function(name: str, values: list[Any]) -> Any:
    """Return a smooth function without symmetries, fixed for each name: f(x) and f(-x) are unrelated."""
    total = irregular(name)
    for place, value in enumerate(values):
        small = value / (2 + abs(value))
        total += irregular(f"{name}{place}a") * small + irregular(f"{name}{place}b") * small**2 + small**3
    return total


def _call(node: Expression, point: Mapping[str, Any]) -> Any:
    name = node.value
    if name not in FUNCTIONS:
        raise Undefined(f"no value for {name}")
    values = [evaluate(argument, point) for argument in node.args]
    try:
        return FUNCTIONS[name](*values)
    except (TypeError, ValueError) as error:
        raise Undefined(f"no value of {name}") from error


def _sum(node: Expression, point: Mapping[str, Any]) -> Any:
    index, low, high, body = node.args
    first, last = evaluate(low, point), evaluate(high, point)
    if not (context.isint(first) and context.isint(last)) or last - first > MAX_TERMS:
        raise Undefined("a sum without whole bounds, or too long")
    total = context.zero if node.value == "sum" else context.one
    for term in range(int(first), int(last) + 1):
        value = evaluate(body, {**point, index.value: context.mpf(term)})
        total = total + value if node.value == "sum" else total * value
    return total


def evaluate(node: Expression, point: Mapping[str, Any]) -> Any:
    """Return the value of an expression at a point, the values by symbol. Raises Unbounded or Undefined."""
    _work.steps += 1
    spend(1)
    if _work.steps > MAX_STEPS:
        raise Unbounded("too many steps")
    return _bounded(_evaluate(node, point))


def _evaluate(node: Expression, point: Mapping[str, Any]) -> Any:
    kind, args = node.kind, node.args
    if kind in ("number", "decimal"):
        return context.mpf(node.value.numerator) / node.value.denominator
    if kind == "symbol":
        return point[node.value]
    if kind == "constant":
        return {"pi": +context.pi, "e": +context.e, "i": context.mpc(0, 1), "infinity": context.inf}[
            node.value
        ]
    if kind == "call":
        return _call(node, point)
    if kind == "sum":
        return _sum(node, point)
    if kind == "apply" and (node.value in FUNCTION_NAMES or len(args) > 1 or node.value not in point):
        return _unknown_function(node.value, [evaluate(argument, point) for argument in args])
    values = [evaluate(argument, point) for argument in args]
    if kind == "apply":
        return point[node.value] * values[0]
    if kind == "add":
        return context.fsum(values) if all(context.isfinite(value) for value in values) else sum(values)
    if kind == "mul":
        return values[0] * values[1]
    if kind in ("div", "ratio") and len(values) == 2:
        if values[1] == 0:
            raise Undefined("division by zero")
        return values[0] / values[1]
    if kind == "pow":
        return _rational_power(node, values)
    if kind == "neg":
        return -values[0]
    if kind == "degrees":
        return values[0] * context.pi / 180
    raise Undefined(f"no value of a {kind}")


def _rational_power(node: Expression, values: list[Any]) -> Any:
    """Return a power: the real one for a negative base and a fractional exponent with odd denominator."""
    power = exact(node.args[1])
    if power is not None and power.denominator % 2 and power.denominator > 1 and context.im(values[0]) == 0:
        root = _root(values[0], context.mpf(power.denominator))
        return _power(root, context.mpf(power.numerator))
    return _power(*values)


def close(first: Any, second: Any) -> bool | None:
    """Whether two values are equal; None if only more digits can tell."""
    if context.isinf(first) or context.isinf(second):
        return first == second
    scale = max(abs(first), abs(second))
    if scale == 0:
        return True
    distance = abs(first - second)
    if distance <= SAME * scale:
        return True
    noise = distance <= DIFFERENT * scale or scale < DIFFERENT  # rounding errors of larger terms
    return None if noise else False


def _agree_at(first: Expression, second: Expression, point: Mapping[str, Any]) -> bool:
    """Whether a difference below the precision vanishes with twice the digits: a rounding error."""
    before = abs(evaluate(first, point) - evaluate(second, point))
    with context.workdps(2 * DIGITS):
        after = abs(evaluate(first, point) - evaluate(second, point))
    return after <= before * context.mpf(10) ** (-DIGITS // 2)


def _real(value: Any) -> bool:
    return context.isinf(value) or abs(context.im(value)) <= 1e-40 * (1 + abs(value))


def same(first: Expression, second: Expression) -> bool | None:
    """Whether two expressions are equal; None if no comparison was possible."""
    spend(5)
    if first == second:
        return True
    names = symbols(first) | symbols(second)
    if not names:
        left, right = exact(first), exact(second)
        if left is not None and right is not None:
            return left == right
        return _agree(first, second, [{}], complex_too=True)
    complex_too = any(part == Expression("constant", "i") for side in (first, second) for part in walk(side))
    whole = is_whole(first), is_whole(second)
    in_whole = all(whole) or (any(whole) and {name[0] for name in names} <= WHOLE_NAMES)
    verdict = _agree(first, second, points(names, whole=False), complex_too)
    if in_whole and verdict is not True:
        verdict = _agree(first, second, points(names, whole=True), complex_too)
    return verdict


def _agree(
    first: Expression, second: Expression, where: list[dict[str, Any]], complex_too: bool
) -> bool | None:
    agreed = unbounded = 0
    for point in where:
        _work.steps = 0
        try:
            left, right = evaluate(first, point), evaluate(second, point)
            if not (complex_too or (_real(left) and _real(right))):
                continue
            verdict = close(left, right)
            if verdict is None:
                verdict = _agree_at(first, second, point)
        except Undefined:
            continue
        except (Unbounded, ArithmeticError, ValueError):
            unbounded += 1
            continue
        if not verdict:
            return False
        agreed += 1
    return True if agreed >= min(2, len(where)) and unbounded <= len(where) // 4 else None


def value(node: Expression) -> Any | None:
    """Return the numeric value of an expression without symbols, or None."""
    if symbols(node):
        return None
    try:
        _work.steps = 0
        return evaluate(node, {})
    except (ArithmeticError, ValueError):
        return None


def linear(node: Expression, name: str) -> tuple[Expression, Expression] | None:
    """(start, slope) of an expression equal to start + slope * symbol `name`, else None."""

    def at(place: int) -> Expression:
        return rebuild(node, lambda part: number(place) if part == Expression("symbol", name) else None)

    start = at(0)
    slope = difference(at(1), start)
    line = make("add", start, make("mul", slope, Expression("symbol", name)))
    return (start, slope) if same(node, line) else None
