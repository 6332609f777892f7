"""A small subset of TeX as MathML, KaTeX's HTML and plain text: what the generated pages' formulas need.

Covers numbers, letters, commands for symbols and functions, sub- and superscripts, `\\frac`, `\\sqrt`,
`\\text` and `pmatrix`.
"""

import re
from dataclasses import dataclass
from html import escape

TOKEN = re.compile(
    r"\\begin\{pmatrix\}|\\end\{pmatrix\}|\\text\{[^}]*\}|\\\\|\\%|\\[a-zA-Z]+|\d+(?:\.\d+)?|[a-zA-Z]|\S"
)

SYMBOLS = {
    "cdot": "·",
    "times": "×",
    "div": "÷",
    "le": "≤",
    "ge": "≥",
    "ne": "≠",
    "in": "∈",
    "to": "→",
    "infty": "∞",
    "sum": "∑",
    "int": "∫",
    "alpha": "α",
    "beta": "β",
    "lambda": "λ",
    "varepsilon": "ε",
    "delta": "δ",
    "pi": "π",
    "mu": "μ",
    "sigma": "σ",
    "ldots": "…",
    "equiv": "≡",
    "mid": "∣",
    "subset": "⊂",
    "cap": "∩",
    "cup": "∪",
    "forall": "∀",
    "exists": "∃",
    "pm": "±",
    "circ": "∘",
    "Rightarrow": "⇒",
    "quad": " ",
    "langle": "⟨",
    "rangle": "⟩",
    "approx": "≈",
    "prime": "′",
    "%": "%",
}
FUNCTIONS = {"det", "gcd", "lim", "sin", "cos", "ln", "log", "max", "min", "dim", "ker", "mod"}
SUPERSCRIPTS = str.maketrans("0123456789+-n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ")


@dataclass(frozen=True)
class Node:
    """`kind`: row, frac, sqrt, sup, sub, matrix (rows of cells), or leaf: number, letter, operator, word."""

    kind: str
    text: str = ""
    parts: tuple["Node", ...] = ()


def parse(tex: str) -> Node:
    """The formula as a tree; raises ValueError for TeX outside the subset."""
    node, rest = _row(TOKEN.findall(tex))
    if rest:
        raise ValueError(f"unbalanced TeX: {tex}")
    return node


def _row(tokens: list[str], stops: tuple[str, ...] = ()) -> tuple[Node, list[str]]:
    nodes: list[Node] = []
    while tokens and tokens[0] not in ("}", *stops):
        if tokens[0] in "^_":
            kind = "sup" if tokens[0] == "^" else "sub"
            script, tokens = _atom(tokens[1:])
            nodes[-1:] = [Node(kind, parts=(nodes[-1], script))]
        else:
            node, tokens = _atom(tokens)
            nodes.append(node)
    return (nodes[0] if len(nodes) == 1 else Node("row", parts=tuple(nodes))), tokens


def _atom(tokens: list[str]) -> tuple[Node, list[str]]:
    token, rest = tokens[0], tokens[1:]
    if token == "{":
        node, rest = _row(rest)
        return node, rest[1:]
    if token == "\\frac":
        top, rest = _atom(rest)
        bottom, rest = _atom(rest)
        return Node("frac", parts=(top, bottom)), rest
    if token == "\\sqrt":
        inner, rest = _atom(rest)
        return Node("sqrt", parts=(inner,)), rest
    if token == "\\begin{pmatrix}":
        return _matrix(rest)
    if token.startswith("\\text{"):
        return Node("word", token[6:-1]), rest
    if token.startswith("\\"):
        name = token[1:]
        if name in FUNCTIONS:
            return Node("word", name), rest
        if name not in SYMBOLS:
            raise ValueError(f"TeX command outside the subset: {token}")
        return Node("letter" if SYMBOLS[name].isalpha() else "operator", SYMBOLS[name]), rest
    kind = "number" if token[0].isdigit() else "letter" if token.isalpha() else "operator"
    return Node(kind, token), rest


def _matrix(tokens: list[str]) -> tuple[Node, list[str]]:
    rows: list[list[Node]] = [[]]
    while True:
        cell, tokens = _row(tokens, ("&", "\\\\", "\\end{pmatrix}"))
        rows[-1].append(cell)
        separator, tokens = tokens[0], tokens[1:]
        if separator == "\\end{pmatrix}":
            return Node("matrix", parts=tuple(Node("row", parts=tuple(row)) for row in rows)), tokens
        if separator == "\\\\":
            rows.append([])


def to_mathml(node: Node) -> str:
    """Presentation MathML without the enclosing `math` element."""
    inner = [to_mathml(part) for part in node.parts]
    match node.kind:
        case "row":
            return f"<mrow>{''.join(inner)}</mrow>"
        case "frac":
            return f"<mfrac>{''.join(inner)}</mfrac>"
        case "sqrt":
            return f"<msqrt>{inner[0]}</msqrt>"
        case "sup" | "sub":
            return f"<m{node.kind}>{''.join(inner)}</m{node.kind}>"
        case "matrix":
            rows = ("".join(f"<mtd>{to_mathml(cell)}</mtd>" for cell in row.parts) for row in node.parts)
            return f"<mo>(</mo><mtable>{''.join(f'<mtr>{row}</mtr>' for row in rows)}</mtable><mo>)</mo>"
    tag = {"number": "mn", "letter": "mi", "operator": "mo", "word": "mtext"}[node.kind]
    return f"<{tag}>{escape(node.text)}</{tag}>"


def to_katex(node: Node) -> str:
    """The visual half of KaTeX's output (class names as KaTeX writes them, without its measured lengths)."""
    inner = [to_katex(part) for part in node.parts]
    match node.kind:
        case "row":
            return "".join(inner)
        case "frac":
            fraction = f'{inner[0]}<span class="frac-line"></span>{inner[1]}'
            return f'<span class="mord"><span class="mfrac">{fraction}</span></span>'
        case "sqrt":
            return f'<span class="mord sqrt">√{inner[0]}</span>'
        case "sup" | "sub":
            return f'<span class="mord">{inner[0]}<span class="msupsub">{inner[1]}</span></span>'
        case "matrix":
            rows = ("".join(to_katex(cell) for cell in row.parts) for row in node.parts)
            return (
                f'<span class="minner">({"".join(f"<span class=mtable>{row}</span>" for row in rows)})</span>'
            )
    css = {"number": "mord", "letter": "mord mathnormal", "operator": "mbin", "word": "mord text"}[node.kind]
    return f'<span class="{css}">{escape(node.text)}</span>'


def to_plain(node: Node) -> str:
    """Unicode text, as people write mathematics without any markup: `x²+1`, `(a+b)/2`."""
    inner = [to_plain(part) for part in node.parts]
    match node.kind:
        case "row":
            return "".join(inner)
        case "frac":
            return f"{_wrapped(inner[0])}/{_wrapped(inner[1])}"
        case "sqrt":
            return f"√{_wrapped(inner[0])}"
        case "sup":
            small = inner[1].translate(SUPERSCRIPTS)
            if small == "′":
                return inner[0] + small
            return inner[0] + (small if re.fullmatch("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+", small) else f"^{_wrapped(inner[1])}")
        case "sub":
            return f"{inner[0]}_{inner[1]}"
        case "matrix":
            return "[" + "; ".join(" ".join(to_plain(cell) for cell in row.parts) for row in node.parts) + "]"
        case "word" if node.text == "mod":
            return " mod "
    return node.text


def _wrapped(text: str) -> str:
    return text if re.fullmatch(r"\w+", text) else f"({text})"
