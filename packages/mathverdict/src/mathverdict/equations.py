"""Equations and inequalities: equal up to a factor, reversed, or solved for y; left sides that only name."""

from typing import Any

from .tree import Expression, difference, make, number, symbols, walk
from .values import Undefined, close, context, evaluate, linear, points, same

TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}


def is_name(node: Expression) -> bool:
    """Whether a left side only names the answer: x, x_1, S_n, f(x), (a, b), |AB|, NO/BO, "Minimum"."""
    kind = node.kind
    if kind in ("symbol", "text"):
        return True
    if kind == "apply":
        return all(
            argument.kind in ("symbol", "number", "constant", "neg", "apply") for argument in node.args
        ) and not any(Expression("symbol", node.value) in walk(argument) for argument in node.args)
    if kind in ("tuple", "call"):
        return all(map(is_name, node.args))
    if kind in ("ratio", "div", "mul"):
        return all(map(_is_segment, node.args))
    return kind == "pow" and node.args[0].kind == "symbol" and node.args[0].value[0].isupper()


def _is_segment(node: Expression) -> bool:
    """Whether an expression names line segments: AB, |AB|, AB/CD."""
    if node.kind in ("mul", "div", "ratio"):
        return all(map(_is_segment, node.args))
    return node.kind in ("symbol", "apply") and (node.value[0].isupper() or node.value.startswith("mark"))


def _difference(relation: Expression) -> Expression:
    left, right = relation.args
    return difference(left, right)


def _values(node: Expression, names: frozenset[str]) -> list[Any]:
    found = []
    for point in points(names, whole=False):
        try:
            found.append(evaluate(node, point))
        except Undefined:
            found.append(None)
        except (ArithmeticError, ValueError):
            return []
    return found


def _proportional(first: Expression, second: Expression) -> Any | None:
    """second/first if it is the same at all points, else None."""
    names = symbols(first) | symbols(second)
    pairs = [
        pair
        for pair in zip(_values(first, names), _values(second, names), strict=False)
        if None not in pair and pair[0] != 0 and context.isfinite(pair[0])
    ]
    if len(pairs) < 3:
        return None
    ratios = [right / left for left, right in pairs]
    alike = ratios[0] != 0 and not any(close(ratios[0], ratio) is False for ratio in ratios[1:])
    return ratios[0] if alike else None


def same_equation(first: Expression, second: Expression) -> bool | None:
    """Whether two equations are multiples of each other or have the same solution for one symbol."""
    if symbols(first) != symbols(second):
        return False
    one, other = _difference(first), _difference(second)
    if _proportional(one, other) is not None:
        return True
    for name in sorted(symbols(first), reverse=True):
        solutions = _solved(one, name), _solved(other, name)
        if None not in solutions:
            return same(*solutions)
    return False


def solved_for_y(relation: Expression) -> Expression | None:
    """Return the solution for y of an equation linear in y, or None."""
    return (
        _solved(_difference(relation), "y") if "y" in symbols(relation) and len(relation.args) == 2 else None
    )


def _solved(difference: Expression, name: str) -> Expression | None:
    """Return the solution of `difference` = 0 for a symbol in which it is linear, or None."""
    parts = linear(difference, name)
    if parts is None or same(parts[1], number(0)) is not False:
        return None
    return make("neg", make("div", *parts))


def same_order(first: Expression, second: Expression) -> bool | None:
    """Whether two chains of inequalities are equal, also reversed or multiplied by a factor."""
    if len(first.args) == len(second.args):
        pairs = list(zip(first.args, second.args, strict=True))
        if first.value == second.value and all(same(*pair) for pair in pairs):
            return True
        turned = tuple(TURNED.get(sign) for sign in reversed(second.value))
        if first.value == turned and all(map(same, first.args, reversed(second.args))):
            return True
    if len(first.args) != 2 or len(second.args) != 2 or not set(first.value + second.value) <= TURNED.keys():
        return False
    factor = _proportional(_difference(first), _difference(second))
    if factor is None or context.im(factor) != 0:
        return False
    sign = second.value[0] if factor > 0 else TURNED[second.value[0]]
    return first.value[0] == sign
