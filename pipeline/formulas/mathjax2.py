"""Output of MathJax 2's CommonHTML renderer to TeX by way of MathML, for pages without its source script.

The class of a span names its MathML element (`mjx-msubsup`) or its place in it (`mjx-base`, `mjx-sup`).
"""

from collections.abc import Callable, Iterator

from .markup import JOINER, Element, parse_markup
from .mathjax import as_row, element
from .mathml import to_tex

LEAVES = ("mi", "mn", "mo", "mtext", "ms")
PLACES = (
    "base",
    "sub",
    "sup",
    "op",
    "under",
    "over",
    "numerator",
    "denominator",
    "root",
    "mtr",
    "mlabeledtr",
    "label",
    "mtd",
)
STYLES = (  # MathML variants by the font of a glyph
    ("TeX-ams-R", "double-struck"), ("TeX-cal", "script"), ("TeX-scr", "script"), ("TeX-frak", "fraktur"),
    ("TeX-main-B", "bold"), ("TeX-math-BI", "bold-italic"), ("TeX-sans", "sans-serif"),
    ("TeX-type", "monospace"),
)  # fmt: skip
BAR = "\u00af"


def common_html_to_tex(markup: str) -> str:
    """TeX of a serialised `.mjx-chtml` element; empty if it has no glyphs."""
    return common_to_tex(parse_markup(markup.replace(JOINER, "")))


def common_to_tex(root: Element) -> str:
    """TeX of the boxes of CommonHTML below `root`; empty if they have no glyphs."""
    found = as_row(_inner(root))
    return to_tex(found).strip() if found.all_text().strip() else ""


def _kind(node: Element) -> str:
    """Name of a node's MathML element or of its place in one; empty for other boxes."""
    return node.get("class").split(" ")[0].removeprefix("mjx-")


def _inner(node: Element) -> list[Element]:
    """MathML of what is below a node."""
    found: list[Element] = []
    for child in node.children:
        kind = _kind(child)
        if kind in BUILDERS:
            found.append(BUILDERS[kind](child))
        elif kind in ("mrow", "texatom", "mstyle", "mpadded"):
            found.append(as_row(_inner(child)))
        elif kind not in ("surd", "line", "assistive"):
            found += _inner(child)
    return found


def _places(node: Element) -> Iterator[tuple[str, Element]]:
    """Return the parts of an element by their places, not those of elements inside of them."""
    for child in node.children:
        if (kind := _kind(child)) in PLACES:
            yield kind, child
        else:
            yield from _places(child)


def _glyphs(node: Element) -> Iterator[Element]:
    for child in node.children:
        if _kind(child) == "char":
            yield child
        else:
            yield from _glyphs(child)


def _leaf(node: Element) -> Element:
    kind, glyphs = _kind(node), list(_glyphs(node))
    text = "".join(glyph.text for glyph in glyphs)
    fonts = " ".join(glyph.get("class") for glyph in glyphs)
    style = next((style for font, style in STYLES if font in fonts and text.isalnum()), "")
    if not style and kind == "mi" and len(text) == 1 and text.isascii() and "TeX-main-R" in fonts:
        style = "normal"
    return Element(
        kind, f' mathvariant="{style}"' if style and kind in ("mi", "mn") else "", [], text, [text]
    )


def _scripted(node: Element) -> Element:
    """Return an element with scripts, or with limits below and above."""
    parts = {place: as_row(_inner(part)) for place, part in _places(node)}
    limits = "op" in parts
    base, low, high = ("op", "under", "over") if limits else ("base", "sub", "sup")
    children = [parts.get(base) or as_row([]), *(parts[place] for place in (low, high) if place in parts)]
    above = parts[high].all_text() if limits and high in parts else ""
    if above and not above.strip("\u2013\u2014\u00af\u02c9- "):
        children[-1] = Element("mo", "", [], BAR, [BAR])
    names = {(True, True): "munderover", (True, False): "munder", (False, True): "mover"}
    name = names.get((low in parts, high in parts), "mrow")
    tag = name if limits else {"munderover": "msubsup", "munder": "msub", "mover": "msup"}.get(name, "mrow")
    return element(tag, children)


def _fraction(node: Element) -> Element:
    parts = {place: as_row(_inner(part)) for place, part in _places(node)}
    line = _has_line(node)
    both = [parts.get(place) or as_row([]) for place in ("numerator", "denominator")]
    return element("mfrac", both, "" if line else ' linethickness="0"')


def _has_line(node: Element) -> bool:
    """Whether a fraction has a line of its own."""
    return any(
        _kind(child) == "line" or _kind(child) not in PLACES and _has_line(child) for child in node.children
    )


def _root(node: Element) -> Element:
    degree = [as_row(_inner(part)) for place, part in _places(node) if place == "root"]
    boxes = element("", [child for child in node.children if _kind(child) != "root"])
    return element("mroot" if degree else "msqrt", [as_row(_inner(boxes)), *degree])


def _table(node: Element) -> Element:
    rows = []
    for _, row in _places(node):
        cells = [element("mtd", _inner(cell)) for place, cell in _places(row) if place in ("mtd", "label")]
        labelled = bool(row.children) and _kind(row.children[0]) == "label"
        rows.append(element("mlabeledtr" if labelled else "mtr", cells))
    align = node.get("columnalign")
    return element("mtable", rows, f' columnalign="{align}"' if align else "")


BUILDERS: dict[str, Callable[[Element], Element]] = {
    **dict.fromkeys(LEAVES, _leaf),
    **dict.fromkeys(("msubsup", "munderover"), _scripted),
    **dict.fromkeys(("msqrt", "mroot"), _root),
    "mfrac": _fraction,
    "mtable": _table,
    "mspace": lambda node: element("mspace", []),
}
