"""Whether two expressions are the same answer to a question.

`equivalent` chooses the rule by the form of both sides: sets of numbers, equations, lists, tuples and
matrices, single values. It is undecided where no value could be computed.
"""

from collections.abc import Callable, Sequence
from itertools import product

from . import regions
from .asked import Asked
from .equations import is_name, same_equation, same_order, solved_for_y
from .names import in_name_order, names_answer
from .scalars import is_rounding, same_scalar
from .tree import Decision, Expression, count, make, rebuild, rename, signed, symbols, walk
from .values import same, spend

MAX_ITEMS = 200
MAX_SIGNS = 4
_ROWS = ({("tuple", "[]")}, {("list", ",")})  # [[1, 2], [3, 4]] and [1, 2; 3, 4]
CHAIN = {"=", "~", "equiv"}
IMAGINARY = Expression("constant", "i")
INTEGERS = frozenset("knmljtNKZcC") | {f"{letter}_{digit}" for letter in "kncC" for digit in "0123"}


def equivalent(gold: Expression, given: Expression, asked: Asked) -> Decision:
    """Compare two expressions; `asked` is the form that the question asks for."""
    spend(5)
    if gold == given:
        return "right", "same expression"
    gold, given = _same_names(gold, given, asked)
    for rule in (_regions, _relations, _signs, _collections, _tuples):
        outcome = rule(gold, given, asked)
        if outcome is not None:
            return outcome
    return same_scalar(gold, given, asked)


def _verdict(same: bool | None, rule: str) -> Decision:
    return ("undecided" if same is None else "right" if same else "wrong"), rule


# names


def _same_names(gold: Expression, given: Expression, asked: Asked) -> tuple[Expression, Expression]:
    """Rename the dummy variables of `given` to those of `gold`: f(m) = 2m to f(n) = 2n, a free k to n."""
    left, right = _dummies(gold), _dummies(given)
    if left and right and len(left) == len(right) and left != right:
        given = rename(given, dict(zip(right, left, strict=True)))
    ours, theirs = symbols(gold), symbols(given)
    extra, missing = theirs - ours, ours - theirs
    if len(extra) == 1 and extra <= {"I", "j"} and IMAGINARY in walk(gold) and not extra & asked.names:
        return gold, rebuild(given, lambda part: IMAGINARY if part == Expression("symbol", *extra) else None)
    if {name.casefold() for name in extra} == {name.casefold() for name in missing} and len(extra) == 1:
        return gold, given if extra & asked.names else rename(given, {next(iter(extra)): next(iter(missing))})
    if (
        len(extra) == len(missing) == 1
        and extra | missing <= INTEGERS
        and not extra & asked.names
        and (not missing & asked.names or Expression("constant", "pi") in walk(gold))  # \\pi/6 + k\\pi
        and gold.kind != "relation" != given.kind
    ):
        given = rename(given, {next(iter(extra)): next(iter(missing))})
    return gold, given


def _dummies(node: Expression) -> list[str]:
    """Return the variables of f(x, y) in "f(x, y) = ..."."""
    if node.kind != "relation" or node.value[0] != "=" or node.args[0].kind != "apply":
        return []
    arguments = node.args[0].args
    return [argument.value for argument in arguments] if all(a.kind == "symbol" for a in arguments) else []


# sets of numbers


def _regions(gold: Expression, given: Expression, asked: Asked) -> Decision | None:
    pairs = [side.kind == "tuple" and len(side.args) == 2 for side in (gold, given)]
    sure = [regions.is_region(side) for side in (gold, given)]
    if not any(sure) and not (all(pairs) and (gold.value, given.value) != ("()", "()")):
        return None
    ours, theirs = regions.region(gold), regions.region(given)
    if ours is not None and theirs is not None:
        same = regions.same_region(ours, theirs)
        return ("right", "interval") if same else _other_region(gold, given) or ("wrong", "interval")
    return _other_region(gold, given)


def _other_region(gold: Expression, given: Expression) -> Decision | None:
    """Compare a chain such as b < a < c with another chain or with a list of its members."""
    chain = gold if gold.kind == "relation" else given
    other = given if chain is gold else gold
    if chain.kind != "relation" or "in" in chain.value:
        return None
    if other.kind == "list" and len(other.args) == len(chain.args) and len(chain.args) > 2:
        agreed = all(same(one, two) for one, two in zip(chain.args, other.args, strict=True))
        return _verdict(agreed, "order")
    if other.kind == "relation":
        return _verdict(same_order(gold, given), "inequality")
    return None


# equations and labels


def _relations(gold: Expression, given: Expression, asked: Asked) -> Decision | None:
    ours, theirs = (side.kind == "relation" for side in (gold, given))
    if ours and theirs:
        return _two_relations(gold, given, asked)
    if ours or theirs:
        return _one_relation(gold, given, asked)
    return None


def _two_relations(gold: Expression, given: Expression, asked: Asked) -> Decision | None:
    if not {*gold.value, *given.value} <= CHAIN:
        return _verdict(gold.value == given.value and all(map(same, gold.args, given.args)), "relation")
    names = [
        side.args[0] if len(side.args) == 2 and is_name(side.args[0]) else None for side in (gold, given)
    ]
    if None not in names:
        one, other = names
        variables = {one.kind, other.kind} == {"symbol"} and {one.value, other.value} <= set("xyz")
        values = {one.kind, other.kind} == {"apply"} and one.value == other.value and not symbols(one)
        if one == other or not (variables or values):
            return equivalent(gold.args[1], given.args[1], asked)
    if not symbols(given) or not symbols(gold) or len(gold.args) > 2 or len(given.args) > 2:
        reading = _reading(gold, asked)
        return None if reading.kind == "relation" else equivalent(reading, given, asked)
    outcome = same_equation(gold, given)
    return _verdict(outcome, "equation")


def _reading(node: Expression, asked: Asked) -> Expression:
    r"""Return the value that a chain states: 5 for x = 5, 1/3 for 1/3 \approx 0.33; itself if its sides
    disagree.
    """
    if node.kind != "relation" or not set(node.value) <= CHAIN:
        return node
    sides, signs = _unnamed(node, asked)
    result = sides[0]
    for sign, side in zip(signs, sides[1:], strict=True):
        if equivalent(result, side, Asked())[0] == "right" or (sign == "~" and is_rounding(side, result)):
            result = side
        elif not (sign == "~" and is_rounding(result, side)):
            return node
    return result


def _unnamed(chain: Expression, asked: Asked) -> tuple[list[Expression], list[str]]:
    """Return the sides of a chain behind those that only name the answer, and the signs between them."""
    sides, signs = list(chain.args), list(chain.value)
    while len(sides) > 1 and names_answer(sides[0], asked.text):
        named = sides.pop(0)
        signs.pop(0)
        if named.kind == sides[0].kind == "tuple" and len(named.args) == len(sides[0].args):
            sides[0] = sides[0]._replace(args=in_name_order(named.args, sides[0].args, asked.text))
    return sides, signs


def _every_side(gold: Expression, chain: Expression, asked: Asked) -> Decision:
    """Compare a chain that is to earn a reward: whatever it says is the reference."""
    outcomes = [equivalent(gold, side, asked) for side in _unnamed(chain, asked)[0]]
    return next((outcome for outcome in outcomes if outcome[0] != "right"), outcomes[0])


def _one_relation(gold: Expression, given: Expression, asked: Asked) -> Decision | None:
    relation, other = (gold, given) if gold.kind == "relation" else (given, gold)

    def compared(said: Expression) -> Decision:
        return equivalent(said, other, asked) if relation is gold else equivalent(other, said, asked)

    reading = _reading(relation, asked)
    if reading is not relation:
        if asked.strict and relation is given:
            return _every_side(gold, given, asked)
        outcome = compared(reading)
        return compared(relation.args[-1]) if outcome[0] != "right" else outcome
    if relation.value == ("in",) and is_name(relation.args[0]):
        return compared(relation.args[1])
    if relation.value == ("=",):
        solution = solved_for_y(relation)
        if solution is not None and symbols(other) and "y" not in symbols(other):
            return _verdict(same(solution, other), "equation solved for y")
    return "wrong", "equation against a value"


# ±


def _signs(gold: Expression, given: Expression, asked: Asked) -> Decision | None:
    if not count(gold, "pm") and not count(given, "pm"):
        return None
    if max(count(gold, "pm"), count(given, "pm")) > MAX_SIGNS:
        return "undecided", "too many ±"
    ours, theirs = _expanded(gold), _expanded(given)
    found = [_collections(left, right, asked) for left in ours for right in theirs]
    return next((outcome for outcome in found if outcome == ("right", "list")), ("wrong", "±"))


def _expanded(node: Expression) -> list[Expression]:
    """Return lists of the values that ± stands for: signs chosen independently and, if that differs, all
    alike.
    """
    items = node.args if node.kind in ("list", "set") else (node,)
    apart, together = [], []
    for item in items:
        signs = count(item, "pm")
        apart += [signed(item, iter(choice)) for choice in product((1, -1), repeat=signs)]
        together += [signed(item, 1), signed(item, -1)] if signs else [item]
    readings = [Expression("list", ",", tuple(apart))]
    return readings if len(apart) == len(together) else [*readings, Expression("list", ",", tuple(together))]


# lists, sets, tuples


def _items(node: Expression) -> tuple[Expression, ...] | None:
    if node.kind in ("list", "set") or (node.kind == "tuple" and not node.args):
        return node.args
    if node.kind == "union" and all(side.kind == "set" for side in node.args):
        return tuple(item for side in node.args for item in side.args)
    return None


def _collections(gold: Expression, given: Expression, asked: Asked) -> Decision | None:
    """Compare lists and sets in any order; labels (a=2, b=3) pair the items if both sides have them."""
    ours, theirs = _items(gold), _items(given)
    if (ours is None and theirs is None) or "text" in (gold.kind, given.kind):
        return None
    if (ours is None) != (theirs is None):
        return _list_against_one(gold, given, ours, theirs, asked)
    if len(ours) > MAX_ITEMS or len(theirs) > MAX_ITEMS:
        return "undecided", f"more than {MAX_ITEMS} items"
    if "set" in (gold.kind, given.kind) or {item.kind for item in (*ours, *theirs)} == {"tuple"}:
        ours, theirs = _distinct(ours, asked), _distinct(theirs, asked)
    if asked.blanks and gold.value == ";" and len(ours) == len(theirs):
        return _in_order(ours, theirs, asked, "blanks in order")
    if len(ours) != len(theirs):
        return "wrong", "list of another length"
    names, other_names = _labels(ours), _labels(theirs)
    if names and set(names) == set(other_names):
        by_name = dict(zip(other_names, theirs, strict=True))
        return _in_order(ours, [by_name[name] for name in names], asked, "labelled list")
    if _are_letters(names) or _are_letters(other_names):
        return _in_order(ours, _by_name(theirs, asked), asked, "labelled list")
    return _matched(ours, theirs, asked)


def _labels(items: Sequence[Expression]) -> list[Expression]:
    """Return the different names of items such as a = 2; none if an item has no name."""
    named = [
        item.args[0]
        for item in items
        if item.kind == "relation" and item.value == ("=",) and is_name(item.args[0])
    ]
    return named if len(named) == len(items) == len(set(named)) else []


def _are_letters(names: Sequence[Expression]) -> bool:
    """Whether names are single letters, whose order is that of their values."""
    return bool(names) and all(name.kind == "symbol" and len(name.value) == 1 for name in names)


def _by_name(items: Sequence[Expression], asked: Asked) -> Sequence[Expression]:
    """Return items labelled by letters in the order of these; others as they stand."""
    names = _labels(items)
    return in_name_order(names, items, asked.text) if _are_letters(names) else items


def _distinct(items: Sequence[Expression], asked: Asked) -> tuple[Expression, ...]:
    found: list[Expression] = []
    for item in items:
        if not any(equivalent(other, item, asked)[0] == "right" for other in found):
            found.append(item)
    return tuple(found)


def _in_order(ours: Sequence[Expression], theirs: Sequence[Expression], asked: Asked, rule: str) -> Decision:
    outcomes = [equivalent(one, other, asked) for one, other in zip(ours, theirs, strict=True)]
    if any(outcome[0] == "wrong" for outcome in outcomes):
        return "wrong", rule
    return next((outcome for outcome in outcomes if outcome[0] == "undecided"), ("right", rule))


def _matched(
    ours: Sequence[Expression], theirs: Sequence[Expression], asked: Asked, rule: str = "list"
) -> Decision:
    """Compare in any order."""
    left = list(theirs)
    open_questions = []
    for item in ours:
        outcomes = []
        for place, other in enumerate(left):
            outcomes.append(equivalent(item, other, asked))
            if outcomes[-1][0] == "right":
                del left[place]
                break
        else:
            undecided = [outcome for outcome in outcomes if outcome[0] == "undecided"]
            if not undecided:
                return "wrong", rule
            open_questions += undecided
    return open_questions[0] if open_questions else ("right", rule)


def _list_against_one(
    gold: Expression, given: Expression, ours: tuple | None, theirs: tuple | None, asked: Asked
) -> Decision:
    if ours is not None and len(ours) == 1:
        return equivalent(ours[0], given, asked)
    if theirs is not None and len(theirs) == 1:
        return equivalent(gold, theirs[0], asked)
    listed, other = (gold, given) if ours is not None else (given, gold)
    if listed.kind == "list" and (other.kind == "tuple" or (other.kind == "matrix" and 1 in other.value)):
        if len(gold.args) != len(given.args):
            return "wrong", "tuple"
        compare = _matched if other.value == "[]" and other is given else _in_order
        return compare(gold.args, _by_name(given.args, asked), asked, "tuple")
    if theirs and all(equivalent(gold, item, asked)[0] == "right" for item in theirs):
        return "right", "one value in several forms"
    return "wrong", "list against one value"


def _tuples(gold: Expression, given: Expression, asked: Asked) -> Decision | None:
    """Compare tuples and matrices; a tuple is also a vector in a row or in a column, or a point P(1, 2)."""
    if gold.kind == "tuple" and given.kind == "apply" and given.value.isupper():
        given = Expression("tuple", gold.value, given.args)
    gold, given = _matrix(gold), _matrix(given)
    kinds = {gold.kind, given.kind}
    if not kinds & {"tuple", "matrix"}:
        return None
    if {"[)", "(]"} & {side.value for side in (gold, given) if side.kind == "tuple"}:
        return "wrong", "interval against a tuple"
    if not kinds <= {"tuple", "matrix"}:
        return "wrong", "tuple against one value"
    shapes = {side.value for side in (gold, given) if side.kind == "matrix"}
    if len(shapes) + ("tuple" in kinds) > 1 and not all(1 in shape for shape in shapes):
        return "wrong", "matrix of another shape"
    if len(gold.args) != len(given.args):
        return "wrong", "tuple of another length"
    return _in_order(gold.args, given.args, asked, "matrix" if "matrix" in kinds else "tuple")


def _matrix(node: Expression) -> Expression:
    """Evaluate sums, multiples and transposes of matrices, and rows in brackets, to one matrix."""
    if node.kind == "tuple" and node.value == "[]" and {(row.kind, row.value) for row in node.args} in _ROWS:
        lengths = {len(row.args) for row in node.args}
        if len(lengths) == 1:
            cells = tuple(cell for row in node.args for cell in row.args)
            return Expression("matrix", (len(node.args), lengths.pop()), cells)
    if node.kind == "call" and node.value == "transpose":
        (inner,) = map(_matrix, node.args)
        rows, columns = inner.value
        cells = tuple(inner.args[row * columns + column] for column in range(columns) for row in range(rows))
        return Expression("matrix", (columns, rows), cells)
    if node.kind not in ("add", "mul", "div", "neg") or not count(node, "matrix"):
        return node
    parts = [_matrix(argument) for argument in node.args]
    matrices = [part for part in parts if part.kind == "matrix"]
    if node.kind == "add" and len(matrices) == len(parts) and len({part.value for part in parts}) == 1:
        combine: Callable[..., Expression] = lambda *cells: make("add", *cells)  # noqa: E731
        return Expression("matrix", parts[0].value, tuple(map(combine, *(part.args for part in parts))))
    if len(matrices) == 1 and (node.kind != "div" or parts[0].kind == "matrix"):
        cells = (
            Expression(node.kind, None, tuple(cell if part is matrices[0] else part for part in parts))
            for cell in matrices[0].args
        )
        return Expression("matrix", matrices[0].value, tuple(cells))
    return node
