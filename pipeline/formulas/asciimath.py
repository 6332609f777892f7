"""AsciiMath to TeX, by the grammar of asciimath.org: expressions, scripts, fractions, brackets, matrices."""

import re

from .tables import read_table

TABLE = read_table("asciimath")
SYMBOLS: dict[str, str] = {name: f"\\{name}" for name in TABLE["same"].split()} | TABLE["symbols"]
UNARY, BINARY = TABLE["unary"], TABLE["binary"]  # commands with arguments
OPENING, CLOSING, AROUND = TABLE["opening"], TABLE["closing"], TABLE["around"]
TEXTS = ("text", "mbox")
MATRICES = {("(", ")"): "pmatrix", ("[", "]"): "bmatrix", ("|", "|"): "vmatrix", (r"\{", r"\}"): "Bmatrix"}
NAMES = sorted(
    {*SYMBOLS, *UNARY, *BINARY, *OPENING, *CLOSING, *AROUND, *TEXTS, "|", "_", "^", "/"},
    key=len,
    reverse=True,
)
TOKEN = re.compile(r'"[^"]*"|\d+(?:\.\d+)?|' + "|".join(map(re.escape, NAMES)) + r"|\S")
TEXT = re.compile(r"\s*(?:\(([^)]*)\)|\[([^\]]*)\]|\{([^}]*)\})")
COMMAND_END = re.compile(r"\\[A-Za-z]+$")
MAX_DEPTH = 60
MAX_LENGTH = 2000  # a longer text is not one formula


def asciimath_to_tex(source: str) -> str:
    """TeX of one AsciiMath formula; what is no AsciiMath comes out as it is."""
    if len(source) > MAX_LENGTH:
        return source
    reader = _Reader(source)
    pieces = []
    while reader.token:
        pieces.append(reader.expression(""))
        if reader.token:  # a closing bracket alone
            pieces.append(reader.take())
    return _spaced(pieces)


def _spaced(pieces: list[str]) -> str:
    """TeX pieces in a row, a command apart from the letter after it."""
    spaced: list[str] = []
    for piece in filter(None, pieces):
        if spaced and piece[0].isalpha() and COMMAND_END.search(spaced[-1]):
            spaced.append(" ")
        spaced.append(piece)
    return "".join(spaced)


class _Reader:
    """A recursive descent over the tokens of one formula; `token` is the next one, empty at the end."""

    def __init__(self, source: str) -> None:
        self.source, self.end, self.depth, self.token = source, 0, 0, ""
        self._advance()

    def _advance(self) -> None:
        match = TOKEN.search(self.source, self.end)
        self.token, self.end = (match[0], match.end()) if match else ("", len(self.source))

    def take(self) -> str:
        token = self.token
        self._advance()
        return token

    def expression(self, closing: str) -> str:
        """Terms up to a closing bracket, which is not taken, or the bar `closing`."""
        pieces: list[str] = []
        self.depth += 1
        while self.token and self.token not in CLOSING and self.token != closing:
            term = self.term()
            if self.token == "/":
                self._advance()
                term = f"\\frac{{{_bare(term)}}}{{{_bare(self.term()) if self.token else ''}}}"
            pieces.append(term)
        self.depth -= 1
        return _spaced(pieces)

    def term(self) -> str:
        """Return a simple expression with its scripts."""
        base = self.simple()
        scripts: dict[str, str] = {}
        while self.token in ("_", "^") and self.token not in scripts:
            mark = self.take()
            scripts[mark] = _bare(self.simple())
        return base + "".join(f"{mark}{{{scripts[mark]}}}" for mark in "_^" if mark in scripts)

    def simple(self) -> str:
        """One symbol, bracketed expression or function with its arguments."""
        token = self.take()
        if self.depth > MAX_DEPTH:
            return token
        if token.startswith('"') and len(token) > 1:
            return f"\\text{{{token[1:-1]}}}"
        if token in TEXTS:
            return self._text()
        if token in UNARY:
            return f"\\{UNARY[token]}{{{_bare(self.simple()) if self.token else ''}}}"
        if token in BINARY:
            first, second = _bare(self.simple()), _bare(self.simple())
            return (
                f"\\sqrt[{first}]{{{second}}}"
                if token == "root"
                else f"\\{BINARY[token]}{{{first}}}{{{second}}}"
            )
        if token in AROUND:
            left, right = AROUND[token]
            return _spaced([f"\\left{left}", _bare(self.simple()) if self.token else "", f"\\right{right}"])
        if token in OPENING:
            return self._bracket(token)
        if token == "|" and self.token and "|" in self.source[self.end - len(self.token) :]:
            inner = self.expression("|")
            self._advance()
            return _spaced([r"\left|", inner, r"\right|"])
        return SYMBOLS.get(token, token)

    def _text(self) -> str:
        start = self.end - len(self.token)
        match = TEXT.match(self.source, start)
        if match is None:
            return ""
        self.end = match.end()
        self._advance()
        return f"\\text{{{match[1] or match[2] or match[3] or ''}}}"

    def _bracket(self, token: str) -> str:
        left, start = OPENING[token], self.end - len(self.token)
        inner = self.expression("")
        raw = self.source[start : self.end - len(self.token)] if self.token else ""
        right = CLOSING[self.take()] if self.token in CLOSING else "."
        if raw and (rows := _rows(raw)):
            body = r" \\ ".join(" & ".join(map(asciimath_to_tex, row)) for row in rows)
            if (left, right) == (r"\{", "."):
                return f"\\begin{{cases}}{body}\\end{{cases}}"
            if name := MATRICES.get((left, right)):
                return f"\\begin{{{name}}}{body}\\end{{{name}}}"
        if (left, right) in (("(", ")"), ("[", "]"), (r"\{", r"\}")):
            return f"{left}{inner}{right}"
        return _spaced([f"\\left{left}", inner, f"\\right{right}"])


def _rows(raw: str) -> list[list[str]]:
    """Return the rows of a matrix: two or more bracketed lists of equal length, with commas between; else
    none.
    """
    rows = [row.strip() for row in _split(raw)]
    if len(rows) < 2 or not all(row[:1] + row[-1:] in ("()", "[]") for row in rows):
        return []
    cells = [[cell.strip() for cell in _split(row[1:-1])] for row in rows]
    return cells if len({len(row) for row in cells}) == 1 else []


def _split(text: str) -> list[str]:
    """Return the parts of a text between commas outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _bare(tex: str) -> str:
    """TeX without the round brackets that only group it."""
    if not (tex.startswith("(") and tex.endswith(")")):
        return tex
    depth = 0
    for place, character in enumerate(tex):
        depth += (character == "(") - (character == ")")
        if depth == 0 and place < len(tex) - 1:
            return tex
    return tex[1:-1]
