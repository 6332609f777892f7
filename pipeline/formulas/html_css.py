"""Output of MathJax 2's HTML-CSS renderer to TeX, for pages without its source script.

The class of a span names its MathML element, as in CommonHTML. Only the height of a box tells whether it is a
base, a script or a numerator: here boxes get the places that CommonHTML names. A formula with a part that is
not clear is not rebuilt.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator

from .markup import JOINER, MAX_DEPTH, Element, parse_markup
from .mathjax import BRACE_GLYPHS, NUMBER
from .mathjax2 import BAR, LEAVES, common_to_tex

ROWS = ("mrow", "texatom", "mstyle", "mpadded", "TeXmathchoice")
AROUND = ("", "MathJax", "MathJax_Display", "math")
ABSOLUTE = re.compile(r"position:\s*absolute")
TOP = re.compile(rf"(?:^|;)\s*top:\s*({NUMBER})em")
STRUT = re.compile(rf"width:\s*0px;\s*height:\s*({NUMBER})em")  # ends a box, from its top to its baseline
SIDE = re.compile(r"(?:^|;)\s*(left|right):\s*(50%)?")
LABEL = re.compile(r"\(.+\)")
FONTS = (  # signs in the styles of glyphs, and the classes that CommonHTML gives them; the first that fits
    ("MathJax_AMS", "TeX-ams-R"), ("MathJax_Caligraphic", "TeX-cal"), ("MathJax_Script", "TeX-scr"),
    ("MathJax_Fraktur", "TeX-frak"), ("MathJax_SansSerif", "TeX-sans"), ("MathJax_Typewriter", "TeX-type"),
    ("bold-italic", "TeX-math-BI"), ("italic", ""), ("bold", "TeX-main-B"), ("MathJax_Main", "TeX-main-R"),
)  # fmt: skip
EXTENDERS = frozenset("⎜⎟⎢⎥⎪−=")
STRETCHED = {  # signs by their pieces beside extenders
    frozenset(pieces): sign
    for sign, *pieces in (
        "(⎛⎝", ")⎞⎠", "[⎡⎣", "]⎤⎦", "{⎧⎨⎩", "}⎫⎬⎭", "⌊⎣", "⌋⎦", "⌈⎡", "⌉⎤", "|∣", "‖∥", "→→", "←←", "↔←→",
        "⇒⇒", "⇐⇐", "⇔⇐⇒",
    )
}  # fmt: skip
PIECES = re.compile("[⎛-⎳⏐\ue000-\uf8ff]")  # glyphs that mean nothing by themselves
LINES = "–—¯ˉ_"  # what bars over and under formulas are made of
CLOSE = 0.03  # em; positions are rounded to pixels
APART = 0.2
MAX_EMPTY = 4  # times as many places in a table as cells


class Unclear(Exception):
    """A formula whose parts cannot be told."""


def html_css_to_tex(markup: str) -> str:
    """TeX of a serialised `.MathJax` element; empty if it has no glyphs, or where its parts are not clear."""
    root = parse_markup(markup.replace(JOINER, ""))
    try:
        tex = common_to_tex(_box("", _content(root))) if _depth(root) <= MAX_DEPTH else ""
    except Unclear:
        return ""
    return "" if PIECES.search(tex) else tex


def _depth(node: Element) -> int:
    return 1 + max(map(_depth, node.children), default=0)


def _box(kind: str, children: list[Element], attributes: str = "") -> Element:
    """Return a box of CommonHTML."""
    return Element("span", f' class="mjx-{kind}"{attributes}', children, "", [*children])


def _kind(node: Element) -> str:
    return node.get("class").split(" ")[0]


def _content(node: Element) -> list[Element]:
    """Return the boxes of CommonHTML for what is below a node, in its order."""
    if node.text.strip():  # glyphs of no element
        raise Unclear
    found: list[Element] = []
    for child in node.children:
        kind = _kind(child)
        if kind in LEAVES:
            found.append(_leaf(child))
        elif kind in STACKS:
            found.append(STACKS[kind](child))
        elif kind in ROWS:
            found.append(_box("mrow", _content(child)))
        elif kind in AROUND:
            found += _content(child)
        else:
            raise Unclear
    return found


def _leaf(node: Element) -> Element:
    kind, text, styles = _kind(node), node.all_text(), _styles(node)
    if kind not in ("mtext", "ms"):
        text = text.replace("\xa0", "").strip()
    if kind == "mo" and len(text) > 1:
        text = STRETCHED.get(frozenset(text) - EXTENDERS, text)
    font = next((name for sign, name in FONTS if sign in styles), "")
    return _box(kind, [Element("span", f' class="mjx-char {font}"', [], text, [text])])


def _styles(node: Element) -> str:
    if any(child.get("class") for child in node.children):
        raise Unclear
    return " ".join([node.get("style"), *map(_styles, node.children)])


def _boxes(node: Element) -> Iterator[Element]:
    """Return the boxes that an element puts at places of their own, not those inside of them."""
    for child in node.children:
        if child.get("class") or child.text.strip() and not ABSOLUTE.search(child.get("style")):
            raise Unclear
        if ABSOLUTE.search(child.get("style")):
            yield child
        else:
            yield from _boxes(child)


def _parts(node: Element) -> list[Element]:
    """Return the boxes with elements, not those with a line or a root's sign."""
    return [box for box in _boxes(node) if _has_elements(box)]


def _has_elements(box: Element) -> bool:
    return any(child.get("class") or _has_elements(child) for child in box.children)


def _strut(box: Element) -> re.Match[str] | None:
    return STRUT.search(box.children[-1].get("style")) if box.children else None


def _low(box: Element) -> float:
    """How far the baseline of a box is below that of its element, in em."""
    top, strut = TOP.search(box.get("style")), _strut(box)
    if top is None or strut is None:
        raise Unclear
    return float(top[1]) + float(strut[1])


def _scripted(node: Element) -> Element:
    """Return an element with scripts, or with limits below and above it."""
    limits = _kind(node) in ("munderover", "munder", "mover")
    base, *scripts = _parts(node) or [node]
    if abs(_low(base)) > CLOSE or not 1 <= len(scripts) <= 2:
        raise Unclear
    scripts.sort(key=_low)
    names = ("over", "under") if limits else ("sup", "sub")
    if len(scripts) == 2 and _low(scripts[1]) - _low(scripts[0]) < APART:
        raise Unclear
    if len(scripts) == 1:
        low = _low(scripts[0])
        above, below = (CLOSE, 2 * CLOSE) if limits else (-CLOSE, CLOSE)  # an accent can be no higher
        if above < low < below:
            raise Unclear
        names = names[low >= below :]
    parts = [_box("op" if limits else "base", _content(base))]
    for name, script in zip(names, scripts, strict=False):
        parts.append(_box(name, _content(script)))
        if limits:
            _name_stretched(parts[-1], name)
    return _box("munderover" if limits else "msubsup", parts)


def _name_stretched(part: Element, place: str) -> None:
    """Write a brace or a line below or above a formula, drawn in pieces, by its own character."""
    text = part.all_text()
    if text and (not text.strip(LINES) or not BRACE_GLYPHS.sub("", text)):
        while len(part.children) == 1:
            part = part.children[0]
        part.text = BAR if not text.strip(LINES) else "⏟" if place == "under" else "⏞"


def _fraction(node: Element) -> Element:
    parts, boxes = _parts(node), len([*_boxes(node)])
    if len(parts) != 2 or _low(parts[1]) - _low(parts[0]) < APART:
        raise Unclear
    named = zip(("numerator", "denominator"), parts, strict=True)
    return _box(
        "mfrac", [*(_box(name, _content(part)) for name, part in named), *[_box("line", [])] * (boxes - 2)]
    )


def _root(node: Element) -> Element:
    kind, parts = _kind(node), _parts(node)
    if len(parts) != (2 if kind == "mroot" else 1) or abs(_low(parts[0])) > CLOSE:
        raise Unclear
    named = zip(("box", "root"), parts, strict=False)
    return _box(kind, [_box(name, _content(part)) for name, part in named])


def _table(node: Element) -> Element:
    """Return a table, whose boxes are its columns; or one of them is the table and another its labels."""
    parts = _parts(node)
    labelled = len(parts) == 2 and _strut(parts[0]) is None
    columns = [*_columns(parts[0] if labelled else node)]
    heights = [_low(box) for box in max(columns, key=len, default=[])]
    if heights != sorted(heights) or len(heights) * len(columns) > MAX_EMPTY * sum(map(len, columns)):
        raise Unclear
    rows = [_box("mtr", [_box("mtd", []) for _ in columns]) for _ in heights]
    for number, column in enumerate(columns):
        for box in column:
            rows[_row_of(box, heights)].children[number] = _box("mtd", _content(box.children[0]))
    for box in next(_columns(parts[1]), []) if labelled else []:
        if not LABEL.fullmatch(box.all_text().strip()):
            raise Unclear
        rows[_row_of(box, heights)].children.insert(0, _box("label", _content(box.children[0])))
    sides = [SIDE.search(column[0].get("style")) for column in columns]
    names = " ".join("center" if side is None or side[2] else side[1] for side in sides)
    return _box("mtable", rows, f' columnalign="{names}"')


def _columns(node: Element) -> Iterator[list[Element]]:
    """Return the columns of a table, each with the boxes of its cells."""
    boxes = _parts(node)
    cells = [box for box in boxes if _kind(box.children[0]) == "mtd"]
    if 0 < len(cells) < len(boxes):
        raise Unclear
    if cells:
        yield cells
    else:
        for box in boxes:
            yield from _columns(box)


def _row_of(box: Element, heights: list[float]) -> int:
    """Return the row of a cell: all cells of a row have one baseline."""
    low = _low(box)
    row = bisect_left(heights, low - CLOSE)
    if not (row < len(heights) and heights[row] <= low + CLOSE):
        raise Unclear
    return row


STACKS: dict[str, Callable[[Element], Element]] = {
    **dict.fromkeys(("msubsup", "msub", "msup", "munderover", "munder", "mover"), _scripted),
    **dict.fromkeys(("msqrt", "mroot"), _root),
    "mfrac": _fraction,
    "mtable": _table,
    "mspace": lambda node: _box("mspace", []),
}
