r"""The parser's position in the tokens, and what delimiters enclose: brackets, sets, bars, matrices."""

from collections.abc import Callable

from .tokens import Token
from .tree import Expression, Unreadable, call, make, number

MAX_DEPTH = 80
CLOSING = frozenset((")", "]", "}", "\\}", ",", ";", "and", "or", "rangle", "rfloor", "rceil", "&", "\\\\"))
MATRICES = frozenset(
    ("matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix", "array", "psmallmatrix", "bsmallmatrix")
)
BRACKETS = {"(": ")", "[": "]", "{": "}", "\\{": "\\}", "langle": "rangle"}
OPEN_LEFT, OPEN_RIGHT = {"]": "(", "langle": "("}, {"[": ")", "rangle": ")"}  # open ends: ]0, 1[
MINUS_ONE = number(-1)


class GroupParser:
    """Walks over tokens; its subclasses add `sum`, `item` and `sequence`."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.position = self.depth = self.bars = self.colons = self.turned = 0

    def peek(self, ahead: int = 0) -> str:
        place = self.position + ahead
        return self.tokens[place].kind if place < len(self.tokens) else "end"

    def next(self) -> Token:
        if self.position >= len(self.tokens):
            raise Unreadable("it ends too early")
        self.position += 1
        return self.tokens[self.position - 1]

    def expect(self, kind: str) -> None:
        if self.peek() != kind:
            raise Unreadable(f"{kind!r} expected, not {self.peek()!r}")
        self.position += 1

    def nested(self, read: Callable[[], Expression]) -> Expression:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable(f"nested deeper than {MAX_DEPTH}")
        node = read()
        self.depth -= 1
        return node

    def _environment(self) -> Expression:
        name = self._name()
        if name == "array":
            self._name()
        if name not in MATRICES and name not in ("vmatrix", "cases"):
            raise Unreadable(f"the environment {name}")
        rows, row = [], []
        while True:
            row.append(self.nested(self.item if name == "cases" else self.sum))
            kind = self.peek()
            if kind == "&":
                self.next()
                continue
            rows.append(row)
            row = []
            while self.peek() == "\\\\":
                self.next()
            if self.peek() == "command" and self.tokens[self.position].value == "end":
                self.next()
                self._name()
                break
            if kind != "\\\\":
                raise Unreadable("a matrix that does not end")
        if len({len(row) for row in rows}) != 1:
            raise Unreadable("matrix rows of different lengths")
        cells = tuple(cell for row in rows for cell in row)
        matrix = Expression("matrix", (len(rows), len(rows[0])), cells)
        if name == "cases" and len(rows[0]) == 1:
            return Expression("list", ",", cells)
        return call("det", matrix) if name == "vmatrix" else matrix

    def _name(self) -> str:
        self.expect("{")
        parts = []
        while self.peek() not in ("}", "end"):
            token = self.next()
            parts.append(str(token.value if token.value is not None else ""))
        self.expect("}")
        return "".join(parts)

    def _bars(self, kind: str) -> Expression:
        self.bars += 1
        inner = self.nested(self.sum)
        self.bars -= 1
        self.expect(kind)
        return call("abs", inner)

    def enclosed(self, closing: str) -> Expression:
        """Return what stands before the next `closing` bracket; a bar there opens and closes anew."""
        bars, self.bars = self.bars, 0
        inside = self.nested(self.sequence)
        self.bars = bars
        self.expect(closing)
        return inside

    def _brackets(self, opening: str) -> Expression:
        """Return a parenthesis, tuple, interval, set or set-builder."""
        self.expect(opening)
        before = self.bars, self.colons, self.turned
        if self.peek() == BRACKETS.get(opening):
            self.next()
            brackets = opening + BRACKETS[opening]
            return Expression("set") if opening in ("{", "\\{") else Expression("tuple", brackets)
        # a bar or a colon in braces means "such that"
        self.bars = self.colons = int(opening in ("{", "\\{"))
        self.turned = int(opening == "]")
        inside = self.nested(self.sequence)
        if self.colons and self.peek() in ("|", ":"):
            self.next()
            inside = make("builder", inside, self.nested(self.sequence))
        self.bars, self.colons, self.turned = before
        if self.peek() == "choose":
            self.next()
            inside = call("binom", inside, self.nested(self.sum))
        return self._bracketed(opening, inside, self.next().kind)

    @staticmethod
    def _bracketed(opening: str, inside: Expression, closing: str) -> Expression:
        if inside.kind == "builder":
            return inside
        items = inside.args if inside.kind == "list" and inside.value == "," else (inside,)
        if (opening, closing) in (("{", "}"), ("\\{", "\\}")):
            members = items if opening == "{" else inside.args if inside.kind == "list" else (inside,)
            if len(members) > 1 and all(item.kind == "relation" and item.value == ("=",) for item in members):
                return Expression("list", ",", members)
            return inside if opening == "{" and len(items) == 1 else Expression("set", None, members)
        ends = OPEN_LEFT.get(opening, opening) + OPEN_RIGHT.get(closing, closing)
        if ends in ("()", "[]", "[)", "(]"):
            if inside.kind == "list" and {item.kind for item in inside.args}.isdisjoint(("list", "relation")):
                items = inside.args  # also with ";"
            if len(items) > 1:
                return Expression("tuple", ends, items)
            if opening + closing in ("()", "[]"):
                return inside if inside.kind != "list" else Expression("tuple", ends, inside.args)
        raise Unreadable(f"{opening!r} closed by {closing!r}")
