"""Names of an answer: what a question asks for, quoted beside the value, and the order of several."""

from collections.abc import Sequence
from functools import lru_cache

from .boxes import formulas
from .equations import is_name
from .notation import clean
from .parser import parse
from .tree import Expression, symbols, walk

MAX_FORMULAS = 40  # of a question
MAX_NODES = 400  # of a formula that is compared by form


@lru_cache(maxsize=1024)
def question_formulas(question: str) -> tuple[Expression, ...]:
    """Return the formulas of a question, and the sides of its equations."""
    found: list[Expression] = []
    for start, end in formulas(question)[:MAX_FORMULAS]:
        tree = parse(clean(question[start:end].rstrip(" ?.,")))
        if isinstance(tree, Expression) and sum(1 for _ in walk(tree)) <= MAX_NODES:
            found += [tree, *(tree.args if tree.kind in ("relation", "list") else ())]
    return tuple(found)


def names_answer(side: Expression, question: str) -> bool:
    """Whether a left side only names the answer: x, f(3) unless the question has another value of f, or a
    formula with letters that stands in the question.
    """
    if side.kind == "apply" and not symbols(side):
        others = _values_of(side.value, question)
        return is_name(side) and (not others or side in others)
    unknown = any(part.kind in ("symbol", "apply") for part in walk(side))
    return is_name(side) or (unknown and side in question_formulas(question))


def _values_of(name: str, question: str) -> set[Expression]:
    """Return the values of a function at fixed places that a question names: f(3)."""
    parts = (part for formula in question_formulas(question) for part in walk(formula))
    return {part for part in parts if part.kind == "apply" and part.value == name and not _variables(part)}


def _variables(node: Expression) -> frozenset[str]:
    return frozenset().union(*map(symbols, node.args))


def in_name_order(
    names: Sequence[Expression], items: Sequence[Expression], question: str
) -> tuple[Expression, ...]:
    """Return the items in the order in which the question names them, (y, x), else by the alphabet."""
    order = next(
        (
            formula.args
            for formula in question_formulas(question)
            if formula.kind == "tuple" and sorted(formula.args, key=repr) == sorted(names, key=repr)
        ),
        sorted(names, key=repr),
    )
    by_name = dict(zip(names, items, strict=True))
    return tuple(by_name[name] for name in order)
