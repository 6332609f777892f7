"""Expression trees of answers, and operations on them that need no arithmetic.

Kinds of expression (`value`; `args`): number (Fraction), decimal (Fraction; written with a point),
symbol (name), constant (pi, e, i, infinity), add, mul, div, pow, neg, pm ("+-" or "-+"; left, right),
call (function name), apply (symbol name: a product or a function, decided by the comparison), sum (sum or
prod; index, low, high, body), matrix ((rows, columns)), tuple (its brackets, e.g. "[)"), set, builder
(variable, condition), list (connective: "," ";" "and" "or"), union, intersection, difference, relation
(operators), ratio, degrees, percent, quantity (unit), base ((digits, base)), space (R, Z, ...), text (words).
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, Literal, NamedTuple

Decision = tuple[Literal["right", "wrong", "undecided"], str]  # with the rule that decided


class Expression(NamedTuple):
    """One node with all below it; equality and hash are structural."""

    kind: str
    value: Any = None
    args: tuple["Expression", ...] = ()


def make(kind: str, *args: Expression) -> Expression:
    """Return an expression of a kind without a value, e.g. a sum."""
    return Expression(kind, None, args)


def number(value: int | Fraction) -> Expression:
    return Expression("number", Fraction(value))


def call(name: str, *args: Expression) -> Expression:
    """Return a function applied to its arguments."""
    return Expression("call", name, args)


def difference(left: Expression, right: Expression) -> Expression:
    return make("add", left, make("neg", right))


class Unreadable(ValueError):
    """Text that the parser rejects; the message says why."""


def walk(node: Expression) -> Iterator[Expression]:
    """Return the node and all below it."""
    yield node
    for argument in node.args:
        yield from walk(argument)


def symbols(node: Expression) -> frozenset[str]:
    """Names of the free symbols, without indices of sums and names of functions."""
    if node.kind == "symbol":
        return frozenset((node.value,))
    parts = [symbols(argument) for argument in node.args]
    if node.kind == "sum":
        index, low, high, body = parts
        parts = [low, high, body - index]
    found: frozenset[str] = frozenset().union(*parts)
    return found | {node.value} if node.kind == "apply" and node.value not in FUNCTION_NAMES else found


FUNCTION_NAMES = frozenset("fghFGH")


def rebuild(node: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """Return a copy in which `change` replaces nodes, outermost first; it returns None to keep one."""
    changed = change(node)
    if changed is not None:
        return changed
    if not node.args:
        return node
    return Expression(node.kind, node.value, tuple(rebuild(argument, change) for argument in node.args))


def rename(node: Expression, names: dict[str, str]) -> Expression:
    """Return a copy with symbols renamed."""
    return rebuild(
        node,
        lambda part: (
            Expression("symbol", names[part.value]) if part.kind == "symbol" and part.value in names else None
        ),
    )


def count(node: Expression, kind: str) -> int:
    """Return the number of nodes of a kind."""
    return sum(part.kind == kind for part in walk(node))


def signed(node: Expression, signs: Iterator[int] | int) -> Expression:
    """Return a copy with a sign (+1 or -1) for each ±: the next of `signs`, or the same for all."""

    def decide(part: Expression) -> Expression | None:
        if part.kind != "pm":
            return None
        left, right = (signed(argument, signs) for argument in part.args)
        sign = signs if isinstance(signs, int) else next(signs)
        if part.value == "-+":
            sign = -sign
        return make("add", left, right if sign > 0 else make("neg", right))

    return rebuild(node, decide)
