r"""Parse a final answer, cleaned LaTeX or plain ASCII, to an `Expression`.

From loosest to tightest: lists (, ; and or), labels and units, relations, unions, ratios, then `expressions`.
Tokens, nesting and digits are bounded, so any text takes milliseconds.
"""

from functools import lru_cache

from .expressions import ExpressionParser
from .groups import CLOSING
from .remarks import stopped
from .tokens import tokenize
from .tree import Expression, Unreadable, make, number
from .vocabulary import LEADING_WORDS, SCALES


class AnswerParser(ExpressionParser):
    """Parses a whole answer."""

    def answer(self) -> Expression:
        node = self.sequence()
        if self.peek() != "end":
            raise Unreadable(f"{self.peek()!r} not expected")
        return node

    def sequence(self) -> Expression:
        """Return a list of items, or the single item; ";" separates whole lists."""
        groups, items, connective = [], [self.item()], None
        while self.peek() in (",", ";", "and", "or"):
            kind = self.next().kind
            while self.peek() in (",", "and", "or"):  # "a, b, and c"
                kind = self.next().kind if self.peek() != "," else (self.next().kind, kind)[1]
            if kind == ";":
                groups.append(self._list(items, connective))
                items, connective = [self.item()], None
                continue
            connective = kind if connective in (None, ",") else connective
            items.append(self.item())
        last = self._list(items, connective)
        return Expression("list", ";", (*groups, last)) if groups else last

    @staticmethod
    def _list(items: list[Expression], connective: str | None) -> Expression:
        return items[0] if len(items) == 1 else Expression("list", connective, tuple(items))

    def item(self) -> Expression:
        """Return a relation with an optional label before and unit after it."""
        label, marked = self._leading_words()
        if label is not None and self.peek() in CLOSING | {"end"}:
            return Expression("text", label)
        node = self._with_unit(self.nested(self.relation))
        if label is None or label.casefold() in LEADING_WORDS:
            return node
        if not marked:
            raise Unreadable(f"the words {label[:40]!r}")
        if stopped(label):
            raise Unreadable(f"the label {label[:40]!r}")
        return Expression("relation", ("=",), (Expression("text", label), node))

    def _leading_words(self) -> tuple[str | None, bool]:
        """Words before an expression, and whether a colon marks them as its label."""
        words = []
        while self.peek() == "text" and self.peek(1) != "relation":
            words.append(self.next().value)
        marked = bool(words) and self.peek() == ":"
        if marked:
            self.next()
        return " ".join(words) or None, marked

    def _with_unit(self, node: Expression) -> Expression:
        words = []
        while self.peek() in ("text", "/") or (words and self.peek() in ("^", "symbol", "(")):
            if self.peek() == "^":
                self.next()
                words.append(f"^{self.script().value}")
            elif self.peek() == "(":
                words.append(self._parenthesis())
            else:
                words.append(str(self.next().value or "/"))
        while words and (scaled := words[0].casefold().partition(" "))[0] in SCALES:
            node = _scaled(node, SCALES[scaled[0]])
            words[0:1] = [scaled[2]] if scaled[2] else []
        unit = " ".join(words)
        if unit and node.kind == "relation":  # the unit of 72/18 = 4 kg is that of 4
            return Expression(
                "relation", node.value, (*node.args[:-1], Expression("quantity", unit, node.args[-1:]))
            )
        return Expression("quantity", unit, (node,)) if unit else node

    def _parenthesis(self) -> str:
        """Return a remark in parentheses after a unit, e.g. 240 yuan (A)."""
        start = self.position
        while self.peek() not in (")", "end"):
            self.position += 1
        self.expect(")")
        remark = self.tokens[start : self.position - 1]
        if not all(token.kind == "text" for token in remark) and not (
            len(remark) == 1 and remark[0].kind == "symbol" and remark[0].value in "ABCDEF"
        ):
            raise Unreadable("a remark that may hold a value")
        return " ".join(token.value for token in remark if token.kind == "text")

    def relation(self) -> Expression:
        sides, operators = [self._side()], []
        while self.peek() == "relation":
            operators.append(self.next().value)
            sides.append(self._side())
        return Expression("relation", tuple(operators), tuple(sides)) if operators else sides[0]

    def _side(self) -> Expression:
        if self.peek() == "text" and self.peek(1) == "relation":
            label = self.next().value
            if stopped(label):
                raise Unreadable(f"the label {label[:40]!r}")
            return Expression("text", label)
        return self.union()

    def union(self) -> Expression:
        node = self.ratio()
        while self.peek() in ("cup", "cap", "setminus"):
            kind = {"cup": "union", "cap": "intersection", "setminus": "difference"}[self.next().kind]
            node = make(kind, node, self.ratio())
        return node

    def ratio(self) -> Expression:
        parts = [self.sum()]
        while self.peek() == ":" and not self.colons:
            self.next()
            parts.append(self.sum())
        if self.peek() == "over":
            self.next()
            return make("div", parts[-1], self.sum())
        return Expression("ratio", None, tuple(parts)) if len(parts) > 1 else parts[0]


def _scaled(node: Expression, scale: int) -> Expression:
    """Return a value, or the last side of a relation, times a scale word: 5 million."""
    if node.kind == "relation":
        return Expression("relation", node.value, (*node.args[:-1], _scaled(node.args[-1], scale)))
    return make("mul", node, number(scale))


@lru_cache(maxsize=16384)
def parse(text: str, separate: bool = False) -> Expression | str:
    """Return the expression of cleaned text, or why there is none. With `separate`, commas never group
    digits.
    """
    try:
        return AnswerParser(tokenize(text, separate)).answer()
    except Unreadable as error:
        return str(error)
    except RecursionError:
        return "nested too deep"
