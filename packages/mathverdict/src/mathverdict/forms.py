r"""Whether a right answer is worked out: no formula of the question, no sum where a numeral is expected.

A reward must not be earned by handing the question back, however it is wrapped: q + 0, 1 \cdot q, 2q - q.
"""

from collections import Counter
from fractions import Fraction
from functools import lru_cache
from typing import Any

from .names import MAX_NODES, question_formulas
from .tree import Expression, number, walk
from .values import exact, same, spend

_CONTAINERS = ("list", "set", "tuple", "matrix", "union", "ratio")
_NUMERALS = ("number", "decimal", "base")


def is_worked_out(reference: Expression, answer: Expression, question: str) -> bool:
    """Whether a right answer has a form that shows work, given the question that it answers."""
    if _size(answer) > MAX_NODES or _ordered(answer) == _ordered(reference):
        return True
    asked = question_formulas(question)
    if is_plain(reference):
        return is_plain(answer) and _last(answer) not in asked
    asked = tuple(formula for formula in asked if same(formula, reference))
    if not asked:
        return True
    form, forms = _collected(reference), map(_collected, asked)
    # like terms that the reference adds up are not added up in a longer answer
    return _collected(answer) == form and (form not in forms or _size(answer) <= _size(reference))


def is_plain(node: Expression) -> bool:
    """Whether an expression is a numeral, perhaps with sign or unit, or consists of them: 1/2, (1, -2)."""
    node = _last(node)
    if node.kind in _CONTAINERS:
        return all(map(is_plain, node.args))
    if node.kind in ("neg", "percent", "degrees", "quantity"):
        return node.args[0].kind != "neg" and is_plain(node.args[0])
    if len(node.args) != 2:
        return node.kind in _NUMERALS or node == Expression("constant", "infinity")
    first, second = node.args
    if node.kind == "div":
        return all(side.kind in _NUMERALS for side in (first, second)) and second != number(1)
    if node.kind == "add":  # a mixed number
        return first.kind == "number" and first.value > 0 and second.kind == "div" and is_plain(second)
    ten = second.args[0] if second.kind == "pow" else second
    power_of_ten = ten.kind == "number" and ten.value >= 10 and str(ten.value).rstrip("0") == "1"
    return node.kind == "mul" and power_of_ten and is_plain(first)


def _last(node: Expression) -> Expression:
    return node.args[-1] if node.kind == "relation" and set(node.value) <= {"=", "~"} else node


def _size(node: Expression) -> int:
    return sum(1 for _ in walk(node))


@lru_cache(maxsize=4096)
def _ordered(node: Expression) -> Any:
    """Return a form equal for expressions that differ only in the order of summands and of factors."""
    node = _last(node)
    parts = [_ordered(argument) for argument in node.args]
    if node.kind in ("add", "mul"):
        flat = [inner for part in parts for inner in (part[2] if part[0] == node.kind else (part,))]
        parts = sorted(flat, key=repr)
    return node.kind, node.value, tuple(parts)


# Collected forms: a sum is ((term, coefficient), ...), a term ((base, exponent), ...), both sorted.


@lru_cache(maxsize=4096)
def _collected(node: Expression) -> Any:
    """Return a form equal for expressions that differ in order, in like terms and in factors that cancel."""
    spend(1)
    value, node = exact(node), _last(node)
    if value is not None:
        return _sum([((), value)])
    kind, args = node.kind, node.args
    parts = [_collected(argument) for argument in args]
    if kind == "add":
        return _sum([term for part in parts for term in part])
    if kind == "neg":
        return _sum([(term, -factor) for term, factor in parts[0]])
    if kind == "mul" or (kind == "div" and len(args) == 2):
        return _product(parts[0], parts[1] if kind == "mul" else _power(parts[1], Fraction(-1)))
    exponent = exact(args[1]) if kind == "pow" or (kind == "call" and node.value == "root") else None
    if exponent:
        return _power(parts[0], exponent if kind == "pow" else 1 / exponent)
    if kind == "call" and node.value == "sqrt":
        return _power(parts[0], Fraction(1, 2))
    if kind == "call" and node.value == "abs":
        return parts[0]
    return ((((("atom", kind, node.value, tuple(parts)), Fraction(1)),), Fraction(1)),)


def _sum(terms: list[tuple[Any, Fraction]]) -> Any:
    found: Counter = Counter()
    for term, factor in terms:
        found[term] += factor
    return tuple(sorted(((term, factor) for term, factor in found.items() if factor), key=repr))


def _product(first: Any, second: Any) -> Any:
    """Return the product of two sums; one of several terms is a base of its own."""
    factor, powers = Fraction(1), Counter()
    for side in (first, second):
        if not side:
            return ()
        term, coefficient = side[0] if len(side) == 1 else (((("sum", side), Fraction(1)),), Fraction(1))
        factor *= coefficient
        for base, exponent in term:
            powers[base] += exponent
    term = tuple(sorted(((base, exponent) for base, exponent in powers.items() if exponent), key=repr))
    return ((term, factor),)


def _power(base: Any, exponent: Fraction) -> Any:
    if len(base) != 1:
        return base if exponent == 1 else ((((("sum", base), exponent),), Fraction(1)),)
    term, factor = base[0]
    powers = [(inner, power * exponent) for inner, power in term]
    if exponent.denominator == 1 and abs(exponent) < 40:
        return ((tuple(powers), factor**exponent.numerator),)
    numeral = [(("number", factor), exponent)] if factor != 1 else []
    return ((tuple(sorted(powers + numeral, key=repr)), Fraction(1)),)
