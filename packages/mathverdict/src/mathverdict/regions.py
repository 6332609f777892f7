"""Sets of real numbers: intervals, inequalities, unions and set-builders.

A region is the ends of its intervals and a test of membership. Two regions are equal if they have the same
members among their ends and between them; ends with symbols are compared at the fixed points of `points`.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from .equations import TURNED
from .points import points
from .tree import Expression, difference, make, symbols
from .values import close, context, evaluate, linear, spend, value

INFINITY = Expression("constant", "infinity")
COMPARE = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}
Ranks = Mapping[Expression, int]  # odd numbers in the order of the ends' values


class Region(NamedTuple):
    """Ends, and whether a place belongs to the region: the rank of an end, or an even number between two."""

    ends: tuple[Expression, ...]
    holds: Callable[[int, Ranks], bool]


def is_region(node: Expression) -> bool:
    """Whether the notation always means a set of numbers (an open interval could be a pair)."""
    if node.kind in ("union", "difference", "intersection", "builder", "space"):
        return True
    if node.kind == "tuple":
        return node.value in ("[)", "(]") or any(INFINITY in (end, *end.args) for end in node.args)
    if node.kind == "relation":
        return bool({"<", ">", "<=", ">=", "!=", "in"} & set(node.value))
    sure = [is_region(item) for item in node.args] if node.kind == "list" else []
    return any(sure) and all(
        one or item.kind == "relation" for one, item in zip(sure, node.args, strict=True)
    )


def region(node: Expression) -> Region | None:
    """Return the region that an expression describes, or None."""
    if node.kind == "tuple" and len(node.args) == 2:
        above, below = ">=" if node.value[0] == "[" else ">", "<=" if node.value[1] == "]" else "<"
        return _combined(all, [_ray(above, node.args[0]), _ray(below, node.args[1])])
    if node.kind == "set":
        return _combined(any, [_ray("=", item) for item in node.args])
    if node.kind == "space" and node.value == "R":
        return _combined(all, [])
    if node.kind == "relation":
        return _from_relation(node)
    if node.kind == "builder":
        variable, condition = node.args
        return region(condition) if len(symbols(variable)) == 1 and condition.kind != "tuple" else None
    if node.kind in ("union", "intersection", "list"):
        joins = node.kind == "union" or (node.kind == "list" and _joins(node))
        return _combined(any if joins else all, map(region, node.args))
    if node.kind == "difference":
        parts = [region(side) for side in node.args]
        return _combined(lambda found: next(found) and not next(found), parts)
    return None


def _joins(node: Expression) -> bool:
    """Whether a list of conditions means "one of them": "or", or commas, unless all exclude a point."""
    excluded = all(item.kind == "relation" and item.value == ("!=",) for item in node.args)
    return (node.value == "or" or (node.value in (",", ";") and not excluded)) or (
        node.value == "and" and all(item.kind in ("tuple", "union") for item in node.args)
    )


def _combined(combine: Callable[[Iterable[bool]], bool], parts: Iterable[Region | None]) -> Region | None:
    parts = list(parts)
    if None in parts:
        return None
    ends = tuple(end for part in parts for end in part.ends)
    return Region(ends, lambda place, ranks: combine(part.holds(place, ranks) for part in parts))


def _ray(sign: str, end: Expression) -> Region:
    """Return the numbers that are e.g. "<=" `end`."""
    return Region((end,), lambda place, ranks: COMPARE[sign](place, ranks[end]))


def _from_relation(node: Expression) -> Region | None:
    sides, signs = node.args, node.value
    if signs == ("in",):
        return region(sides[1])
    if not set(signs) <= TURNED.keys() or len(sides) > 3:
        return None
    if len(sides) == 3:
        parts = [_solved(TURNED[signs[0]], sides[1], sides[0]), _solved(signs[1], sides[1], sides[2])]
        return _combined(all, parts)
    return _solved(signs[0], *sides)


def _solved(sign: str, left: Expression, right: Expression) -> Region | None:
    """`left sign right` solved for its variable: a symbol alone on one side, else the only symbol."""
    if right.kind == "symbol" and left.kind != "symbol":
        left, right, sign = right, left, TURNED[sign]
    if left.kind == "symbol" and left.value not in symbols(right):
        return _ray(sign, right)
    names = symbols(left) | symbols(right)
    if len(names) != 1:
        return None
    if left.kind == "call" and left.value == "abs" and not symbols(right):
        inner, below = left.args[0], sign in ("<", "<=")
        sides = [_solved(sign, inner, right), _solved(TURNED[sign], inner, make("neg", right))]
        return None if sign in ("=", "!=") else _combined(all if below else any, sides)
    parts = linear(difference(left, right), *names)
    rise = value(parts[1]) if parts else None
    if rise is None or rise == 0 or context.im(rise) != 0:
        return None
    return _ray(sign if context.re(rise) > 0 else TURNED[sign], make("neg", make("div", *parts)))


def same_region(first: Region, second: Region) -> bool:
    """Whether two regions have the same members, and any."""
    ends = {*first.ends, *second.ends}
    names = frozenset().union(*map(symbols, ends))
    members = False
    for point in points(names, whole=False) if names else [{}]:
        spend(len(ends) ** 2)
        agreed = _agree(first, second, ends, point)
        if agreed is False:
            return False
        members = members or agreed is True
    return members


def _agree(
    first: Region, second: Region, ends: Iterable[Expression], point: Mapping[str, Any]
) -> bool | None:
    """Whether two regions have the same members at a point; None if neither has any or it has no value."""
    ranks: dict[Expression, int] = {}
    last = None
    try:
        values = {end: evaluate(end, point) for end in ends}
        if any(context.im(number) != 0 for number in values.values()):
            return False
        for end in sorted(values, key=lambda end: context.re(values[end])):
            new = last is None or close(values[last], values[end]) is False
            ranks[end] = ranks.get(last, -1) + (2 if new else 0)
            last = end
    except (ArithmeticError, ValueError):
        return None
    low = max((ranks[end] for end in ends if values[end] == -context.inf), default=-1)
    high = min((ranks[end] for end in ends if values[end] == context.inf), default=2 * len(ranks) + 1)
    members = [(first.holds(place, ranks), second.holds(place, ranks)) for place in range(low + 1, high)]
    return all(one == other for one, other in members) if any(map(any, members)) or not ends else None
