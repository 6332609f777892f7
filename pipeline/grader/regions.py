"""Sets of real numbers: intervals, inequalities and set-builders in one comparable form.

A region is a list of intervals whose ends are expressions, possibly symbolic; a point is an interval of
length zero. Regions with numeric ends are sorted and merged before the comparison.
"""

from collections.abc import Callable
from functools import cmp_to_key
from typing import NamedTuple

from .equations import TURNED
from .tree import Expression, difference, make, symbols, walk
from .values import context, linear, same, value

INFINITY = Expression("constant", "infinity")
MINUS_INFINITY = make("neg", INFINITY)


class Interval(NamedTuple):
    """From `low` to `high`; a closed end belongs to it."""

    low: Expression
    low_closed: bool
    high: Expression
    high_closed: bool


Region = list[Interval]
EVERYTHING = [Interval(MINUS_INFINITY, False, INFINITY, False)]


def _point(node: Expression) -> Interval:
    return Interval(node, True, node, True)


def is_region(node: Expression) -> bool:
    """Whether the notation always means a set of numbers (an open interval could be a pair)."""
    if node.kind in ("union", "difference", "intersection", "builder", "space"):
        return True
    if node.kind == "tuple":
        return node.value in ("[)", "(]") or any(INFINITY in (end, *end.args) for end in node.args)
    if node.kind == "relation":
        return bool({"<", ">", "<=", ">=", "!=", "in"} & set(node.value))
    if node.kind != "list":
        return False
    sure = [is_region(item) for item in node.args]
    return any(sure) and all(
        one or item.kind == "relation" for one, item in zip(sure, node.args, strict=True)
    )


def region(node: Expression) -> Region | None:
    """Return the region that an expression describes, or None."""
    if node.kind == "tuple" and len(node.args) == 2:
        low, high = node.args
        return [Interval(low, node.value[0] == "[", high, node.value[1] == "]")]
    if node.kind == "set":
        return [_point(item) for item in node.args]
    if node.kind == "space" and node.value == "R":
        return EVERYTHING
    if node.kind == "relation":
        return _from_relation(node)
    if node.kind == "builder":
        return _from_builder(node)
    if node.kind == "union" or (node.kind == "list" and _joins(node)):
        return _combined(node, lambda first, second: first + second)
    if node.kind == "intersection" or node.kind == "list":
        return _combined(node, _intersection)
    if node.kind == "difference":
        return _difference(node)
    return None


def _joins(node: Expression) -> bool:
    """Whether a list of conditions means "one of them": "or", or commas, unless all exclude a point."""
    excluded = all(item.kind == "relation" and item.value == ("!=",) for item in node.args)
    return (node.value == "or" or (node.value in (",", ";") and not excluded)) or (
        node.value == "and" and all(item.kind in ("tuple", "union") for item in node.args)
    )


def _combined(node: Expression, combine: Callable[[Region, Region], Region | None]) -> Region | None:
    found: Region | None = None
    for item in node.args:
        part = region(item)
        if part is None:
            return None
        found = part if found is None else combine(found, part)
        if found is None:
            return None
    return found


def _difference(node: Expression) -> Region | None:
    whole, removed = (region(side) for side in node.args)
    if whole is None or removed is None:
        return None
    for hole in removed:
        outside = [
            Interval(MINUS_INFINITY, False, hole.low, not hole.low_closed),
            Interval(hole.high, not hole.high_closed, INFINITY, False),
        ]
        whole = _intersection(whole, outside)
        if whole is None:
            return None
    return whole


def _from_builder(node: Expression) -> Region | None:
    variable, condition = node.args
    names = symbols(variable)
    if len(names) != 1 or condition.kind not in ("relation", "list"):
        return None
    return region(condition)


def _from_relation(node: Expression) -> Region | None:
    sides, operators = node.args, node.value
    if operators == ("in",):
        return region(sides[1])
    if len(operators) == 2 and operators[-1] == "in" and operators[0] == "=":
        return None
    if not set(operators) <= TURNED.keys():
        return None
    if len(sides) == 3:
        low, high = (operators[0], sides[0], sides[1]), (operators[1], sides[1], sides[2])
        parts = [_half(TURNED[low[0]], low[2], low[1]), _half(*high)]
        if None in parts:
            return None
        return _joined_ends(*parts) or _intersection(*parts)
    return _half(operators[0], *sides) if len(sides) == 2 else None


def _joined_ends(first: Region, second: Region) -> Region | None:
    """low < x < high without comparing the ends, so that they may be symbolic."""
    if len(first) != 1 or len(second) != 1:
        return None
    one, other = first[0], second[0]
    if one.high == INFINITY and other.low == MINUS_INFINITY:
        return [Interval(one.low, one.low_closed, other.high, other.high_closed)]
    if one.low == MINUS_INFINITY and other.high == INFINITY:
        return [Interval(other.low, other.low_closed, one.high, one.high_closed)]
    return None


def _half(operator: str, left: Expression, right: Expression) -> Region | None:
    """`left operator right` solved for its variable: a symbol alone on one side, else the only symbol."""
    if right.kind == "symbol" and left.kind != "symbol":
        left, right, operator = right, left, TURNED[operator]
    if left.kind == "symbol" and left.value not in symbols(right):
        return _bound(operator, right)
    names = symbols(left) | symbols(right)
    if len(names) != 1:
        return None
    if left.kind == "call" and left.value == "abs" and not symbols(right):
        return _absolute(operator, left.args[0], right)
    if right.kind == "call" and right.value == "abs" and not symbols(left):
        return _absolute(TURNED[operator], right.args[0], left)
    return _linear(operator, difference(left, right), next(iter(names)))


def _bound(operator: str, end: Expression) -> Region:
    closed = operator in ("<=", ">=")
    if operator in ("<", "<="):
        return [Interval(MINUS_INFINITY, False, end, closed)]
    if operator in (">", ">="):
        return [Interval(end, closed, INFINITY, False)]
    if operator == "=":
        return [_point(end)]
    return [Interval(MINUS_INFINITY, False, end, False), Interval(end, False, INFINITY, False)]


def _absolute(operator: str, inner: Expression, limit: Expression) -> Region | None:
    if operator in ("=", "!="):
        return None
    parts = _half(operator, inner, limit), _half(TURNED[operator], inner, make("neg", limit))
    if None in parts:
        return None
    return _intersection(*parts) if operator in ("<", "<=") else parts[0] + parts[1]


def _linear(operator: str, difference: Expression, name: str) -> Region | None:
    """`difference operator 0`, linear in the symbol `name`."""
    parts = linear(difference, name)
    rise = value(parts[1]) if parts else None
    if rise is None or rise == 0 or context.im(rise) != 0:
        return None
    return _bound(
        operator if context.re(rise) > 0 else TURNED[operator],
        make("neg", make("div", *parts)),
    )


def _order(first: Expression, second: Expression) -> int | None:
    """-1, 0 or 1 for numeric ends, None where they cannot be compared."""
    if first == second or same(first, second):
        return 0
    left, right = value(first), value(second)
    if left is None or right is None or context.im(left) != 0 or context.im(right) != 0:
        return None
    left, right = context.re(left), context.re(right)
    return -1 if left < right else 1


def _intersection(first: Region, second: Region) -> Region | None:
    found = []
    for one in first:
        for other in second:
            low, high = _order(one.low, other.low), _order(one.high, other.high)
            if low is None or high is None:
                return None
            start = (one if low > 0 else other) if low else (one if not one.low_closed else other)
            stop = (one if high < 0 else other) if high else (one if not one.high_closed else other)
            length = _order(start.low, stop.high)
            if length is None:
                return None
            if length < 0 or (length == 0 and start.low_closed and stop.high_closed):
                found.append(Interval(start.low, start.low_closed, stop.high, stop.high_closed))
    return found


def _merged(parts: Region) -> Region | None:
    """Sorted and joined where intervals touch; None if ends cannot be ordered."""
    if any(_order(part.low, part.high) is None for part in parts):
        return None

    def compare(one: Interval, other: Interval) -> int:
        return _order(one.low, other.low) or other.low_closed - one.low_closed

    result: Region = []
    for part in sorted(parts, key=cmp_to_key(compare)):
        length = _order(part.low, part.high)
        if length > 0 or (length == 0 and not (part.low_closed and part.high_closed)):
            continue
        if result:
            gap = _order(result[-1].high, part.low)
            if gap > 0 or (gap == 0 and (result[-1].high_closed or part.low_closed)):
                last = result.pop()
                end = _order(last.high, part.high)
                closed = (
                    last.high_closed
                    if end > 0
                    else part.high_closed
                    if end < 0
                    else last.high_closed or part.high_closed
                )
                part = Interval(last.low, last.low_closed, last.high if end > 0 else part.high, closed)
        result.append(part)
    return result


def _same_end(first: Expression, first_closed: bool, second: Expression, second_closed: bool) -> bool:
    infinite = any(part == INFINITY for part in walk(first))
    return same(first, second) is True and (infinite or first_closed == second_closed)


def same_region(first: Region, second: Region) -> bool:
    """Whether two regions are equal, end by end."""
    ordered = _merged(first), _merged(second)
    if [] in ordered:  # empty: [2, 1) is not another spelling of (2, 1)
        return first == second
    if None not in ordered:
        first, second = ordered
    return len(first) == len(second) and all(
        _same_end(one.low, one.low_closed, other.low, other.low_closed)
        and _same_end(one.high, one.high_closed, other.high, other.high_closed)
        for one, other in zip(first, second, strict=True)
    )
