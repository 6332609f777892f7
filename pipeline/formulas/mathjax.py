"""Output of MathJax 3 and 4 to TeX by way of MathML, for pages without its source and MathML.

Each MathML element has one output element, `mjx-mfrac` in HTML and `g data-mml-node="mfrac"` in SVG, with
extra boxes around its parts. Glyphs carry their code points.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from unicodedata import category, decomposition, name

from .markup import Element, parse_markup
from .mathml import to_tex

CODE = re.compile(r"(?:^|\s)mjx-c([0-9A-F]{2,6})(?=\s|$)")
NUMBER = r"-?(?:\d+\.?\d*|\.\d+)"
HEX = re.compile("[0-9A-Fa-f]{2,6}")
FONT = re.compile(r"TEX-([A-Z]+)-")
HEIGHT = re.compile(rf"translate\(\s*{NUMBER}[\s,]+({NUMBER})")
WIDTH = re.compile(rf"width:\s*({NUMBER}em)")
END = re.compile(rf"({NUMBER})$")
ALIGN = re.compile(r"text-align:\s*(\w+)")
LEAVES = ("mi", "mn", "mo", "mtext", "ms")
ROWS = ("mrow", "mstyle", "mpadded", "mphantom")
PARTS = ("num", "den", "base", "under", "over", "script", "root", "mtd", "surd")
HIDDEN = (
    "nstrut", "dstrut", "tstrut", "line", "surd", "spacer", "rect", "path", "use", "defs", "labels", "merror",
)  # fmt: skip
STYLES = (  # MathML variant; words of Unicode names, MathJax classes and font names that mean it
    ("script", ("SCRIPT", "mjx-cal", "mjx-sc", "C", "S")),
    ("double-struck", ("DOUBLE-STRUCK", "mjx-ds", "D", "A")),
    ("fraktur", ("FRAKTUR", "BLACK-LETTER", "mjx-fr", "F")),
    ("sans-serif", ("SANS-SERIF", "mjx-ss", "SS")),
    ("monospace", ("MONOSPACE", "mjx-ty", "M")),
    ("bold", ("BOLD", "mjx-b", "B")),
)
ASSEMBLED = {  # tall delimiters are drawn in pieces
    piece: sign
    for sign, pieces in zip(
        "()[]{}|", ("⎛⎜⎝", "⎞⎟⎠", "⎡⎢⎣", "⎤⎥⎦", "⎧⎨⎩", "⎫⎬⎭", "\u2223\u23d0"), strict=True
    )
    for piece in pieces
}
ARROWS = "←→↔⇐⇒⇔"  # in SVG followed by their extension pieces
MARKS = "\ue000\ue001"  # enclose the numbers of formulas in a page's text
BAR, BRACE = "\u00af", "\u23df\u23de"  # the position tells whether above or below
BRACE_GLYPHS = re.compile("[\ue150-\ue157]")


def drawn_to_tex(markup: str) -> str:
    """TeX of a serialised `mjx-container`, rebuilt from its glyphs; empty if it has none."""
    drawn = _box(parse_markup(markup), "math")
    found = as_row(_inner(drawn)) if drawn is not None else None
    return to_tex(found).strip() if found is not None and found.all_text().strip() else ""


def _kind(node: Element) -> str:
    """Name of a node's MathML element or MathJax box."""
    return (node.get("data-mml-node") or node.tag.removeprefix("mjx-")).lower()


def _box(node: Element, kind: str) -> Element | None:
    """First box of that kind below a node; does not descend into other parts."""
    for child in node.children:
        if _kind(child) == kind:
            return child
        if _kind(child) not in PARTS and (found := _box(child, kind)) is not None:
            return found
    return None


def element(tag: str, children: list[Element], attributes: str = "") -> Element:
    """Return an element of MathML."""
    return Element(tag, attributes, children, "", [*children])


def as_row(children: list[Element]) -> Element:
    """One element for `children`: the only one itself, or a row of them."""
    return children[0] if len(children) == 1 else element("mrow", children)


def _part(node: Element, kind: str) -> Element:
    box = _box(node, kind)
    return as_row(_inner(box) if box is not None else [])


def _inner(node: Element) -> list[Element]:
    """MathML of a node's content with boxes unwrapped; each argument of an element is one entry."""
    found: list[Element] = []
    for child in node.children:
        kind = _kind(child)
        if kind in BUILDERS:
            found.append(BUILDERS[kind](child))
        elif kind in ROWS:
            found.append(element(kind, _inner(child)))
        elif kind == "texatom":
            found.append(as_row(_inner(child)))
        elif kind not in HIDDEN:
            found += _inner(child)
    return found


def _character(code: str) -> str:
    """Return the character of a hexadecimal code point; empty for controls, surrogates and marks."""
    number = int(code, 16) if HEX.fullmatch(code) else 0
    character = chr(number) if 0 < number <= 0x10FFFF else ""
    return "" if category(character or "\0") in ("Cc", "Cs") or character in MARKS else character


def _glyphs(node: Element) -> Iterator[tuple[str, str]]:
    """(character, font name or "") of each glyph below a node."""
    for child in node.children:
        if code := child.get("data-c") or next(iter(CODE.findall(child.get("class"))), ""):
            font = FONT.search(child.get("xlink:href") or child.get("href"))
            if character := _character(code):
                yield character, font[1] if font else ""
        elif child.tag in ("mjx-utext", "text"):
            yield from ((character, "") for character in child.all_text())
        else:
            yield from _glyphs(child)


def _plain(character: str) -> str:
    """Return the plain letter of a styled mathematical letter."""
    found = decomposition(character) if character != "ℓ" else ""
    return chr(int(found[7:], 16)) if found.startswith("<font> ") else character


def _leaf(node: Element) -> Element:
    kind, glyphs = _kind(node), list(_glyphs(node))
    text = "".join(character if kind == "mo" else _plain(character) for character, _ in glyphs)
    leaf = Element(kind, "", [], text, [text])
    if kind == "mo" and (pieces := _box(node, "stretchy-h")) is not None and not text:
        leaf.text = BRACE if _box(pieces, "mid") is not None else BAR
    elif kind == "mo" and BRACE_GLYPHS.search(text):
        leaf.text = BRACE
    elif kind == "mo" and len(text) > 1 and (text[0] in ASSEMBLED or text[0] in ARROWS):
        leaf.text = ASSEMBLED.get(text[0], text[0])
    elif kind in ("mi", "mn") and glyphs:
        (first, font), *_ = glyphs
        words = {*re.findall("[A-Z-]{4,}", name(first, "")), *node.get("class").split(), font}
        style = next((style for style, signs in STYLES if not words.isdisjoint(signs)), "")
        style = "" if text == "ℓ" else style
        if not style and kind == "mi" and len(text) == 1 and first.isascii():
            style = "normal"  # an italic letter would have its own code point
        leaf.attributes = f' mathvariant="{style}"' if style else ""
    return leaf


def _fraction(node: Element) -> Element:
    if _box(node, "num") is not None:
        line, parts = _box(node, "line") is not None, [_part(node, "num"), _part(node, "den")]
    else:
        line, parts = any(child.tag == "rect" for child in node.children), _inner(node)[:2]
    return element("mfrac", parts, "" if line else ' linethickness="0"')


def _root(node: Element) -> Element:
    if _box(node, "box") is not None:
        parts = [_part(node, "box"), _part(node, "root")]
    else:  # SVG: radicand, degree if any, root sign
        body, *more = [child for child in node.children if _kind(child) not in HIDDEN] or [element("", [])]
        parts = [as_row(_inner(body)), *_inner(element("", more))]
    return element(_kind(node), parts[: 2 if _kind(node) == "mroot" else 1])


def _number(found: re.Match[str] | None) -> float:
    return float(found[1]) if found else 0.0


def _height(node: Element) -> float:
    return _number(HEIGHT.search(node.get("transform")))


def _scripted(node: Element) -> Element:
    """Scripts beside a base, or limits below and above it."""
    kind = _kind(node)
    beside = next((child for child in node.children if _kind(child) == "script"), None)
    if beside is not None:  # the upper one first
        scripts = _inner(beside)[::-1]
        base = as_row(_inner(element("", [child for child in node.children if child is not beside])))
        kind = {"munder": "msub", "mover": "msup", "munderover": "msubsup"}.get(kind, kind)
    elif _box(node, "base") is not None:
        base = _part(node, "base")
        scripts = [_part(node, name) for name in ("under", "over") if name in kind]
    else:  # SVG's, in any order
        base, *scripts = _inner(node) or [as_row([])]
        drawn = [child for child in node.children if child.get("data-mml-node")]
        if len(drawn) == 3 and _height(drawn[1]) > _height(drawn[2]):
            scripts.reverse()
    for script in scripts:
        if script.tag == "mo" and script.text == BRACE:
            script.text = "\u23df" if kind == "munder" else "\u23de"
        elif script.tag == "mo" and script.text and not script.text.strip("\u2013"):  # SVG's lines
            script.text = BAR
    return element(kind, [base, *scripts])


def _multiscripts(node: Element) -> Element:
    """Return a base with scripts on both sides; each side has a box of upper and a box of lower scripts."""
    sides: tuple[list[list[Element]], list[list[Element]]] = ([], [])
    base: list[Element] = []
    for child in node.children:
        kind = _kind(child)
        if kind in ("prescripts", "scripts"):
            cells = [
                [as_row(_inner(cell)) for cell in row.children] for row in child.children if row.children
            ]
            sides[kind == "scripts"].extend(cells)
        elif kind == "g":
            sides[bool(base)].append(_inner(child))
        else:
            base = base or _inner(element("", [child]))
    before, after = ([part for pair in _pairs(*side) for part in pair] for side in sides)
    return element("mmultiscripts", [*base, *after, element("mprescripts", []), *before])


def _pairs(
    uppers: Sequence[Element] = (), lowers: Sequence[Element] = (), *_: Sequence[Element]
) -> Iterator[tuple[Element, Element]]:
    nothing = element("none", [])
    return ((lower, upper) for upper, lower in zip_longest(uppers, lowers, fillvalue=nothing))


def _rows(node: Element) -> Iterator[Element]:
    for child in node.children:
        if _kind(child) in ("mtr", "mlabeledtr"):
            yield child
        elif _kind(child) not in ("mtd", "labels"):
            yield from _rows(child)


def _cells(row: Element) -> list[Element]:
    return [child for child in row.children if _kind(child) == "mtd"]


def _table(node: Element) -> Element:
    drawn = list(_rows(node))
    rows = [element("mtr", [element("mtd", _inner(cell)) for cell in _cells(row)]) for row in drawn]
    labels = _labels(node)
    for row, source in zip(rows, drawn, strict=True):
        if _kind(source) == "mlabeledtr" and labels:
            row.tag, row.children = "mlabeledtr", [element("mtd", _inner(labels.pop(0))), *row.children]
    longest = max(map(_cells, drawn), key=len, default=[])
    found = [ALIGN.search(cell.get("style")) for cell in longest]
    names = " ".join(match[1] if match else "center" for match in found)
    return element("mtable", rows, f' columnalign="{names}"' if any(found) else "")


def _labels(node: Element) -> list[Element]:
    """Equation numbers: cells of a table outside its rows."""
    box = _box(node, "labels")
    if box is not None:
        return [cell for row in _rows(box) for cell in _cells(row)]
    found: list[Element] = []
    for child in node.children:
        if _kind(child) not in ("mtr", "mlabeledtr"):
            found += [child] if _kind(child) == "mtd" else _labels(child)
    return found


def _space(node: Element) -> Element:
    width = WIDTH.search(node.get("style"))
    return element("mspace", [], f' width="{width[1]}"' if width else "")


def _enclosed(node: Element) -> Element:
    drawn = {_kind(child): child for child in node.children}
    notation, box, line = "", _box(node, "box"), drawn.get("line")
    if "ustrike" in drawn or (
        line and _number(END.match(line.get("y1"))) < _number(END.match(line.get("y2")))
    ):
        notation = "updiagonalstrike"
    elif "dstrike" in drawn or line:
        notation = "downdiagonalstrike"
    elif "rect" in drawn or (box is not None and "border" in box.get("style")):
        notation = "box"
    return element("menclose" if notation else "mrow", _inner(node), f' notation="{notation}"')


BUILDERS: dict[str, Callable[[Element], Element]] = {
    **dict.fromkeys(LEAVES, _leaf),
    **dict.fromkeys(("msub", "msup", "msubsup", "munder", "mover", "munderover"), _scripted),
    **dict.fromkeys(("msqrt", "mroot"), _root),
    "mfrac": _fraction,
    "mmultiscripts": _multiscripts,
    "mtable": _table,
    "mspace": _space,
    "menclose": _enclosed,
}
