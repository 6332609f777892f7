"""Formulas that a page draws with tables: fractions, and sums and integrals with their limits.

HeVeA stacks rows of a table inside of a cell, TtH lines of a cell, others underline a cell. A table with
words is no formula.
"""

import re
from html import unescape

from .katex import tex_of
from .markup import JOINER, Element, parse_markup
from .mathml import join
from .symbols import FUNCTIONS, LIMITS

WORDS = re.compile(r"[^\W\d_]{4,}|[^\W\d_]{2,}\s+[^\W\d_]{2,}|\ue000")
LARGE = frozenset([*LIMITS, "∫", "∮"])
MAX_TEXT = 500  # characters of a drawn formula
SELECTOR = 'td.hbar, td > hr, td > .hrcomp, td.dcell, td > font[size="+3"], td[style*="border-bottom"]'


def table_to_tex(markup: str) -> str:
    """Return the TeX of a serialised table that draws a formula; empty for another table."""
    markup = markup.replace(JOINER, "").replace("&nbsp;", " ")
    text = unescape(re.sub("<[^>]*>", "|", markup))
    if len(text.replace("|", "")) > MAX_TEXT or WORDS.search(re.sub("|".join(FUNCTIONS), " ", text)):
        return ""
    return _table(parse_markup(markup)).strip()


def _table(node: Element) -> str:
    """TeX of what lies below `node`: a row of cells, or rows over each other."""
    rows = [row for row in _below(node, "tr") if row.children]
    if len(rows) == 1:
        return join([_cell(cell) for cell in rows[0].children])
    first = rows[0].children if rows else []
    lined = [cell for cell in first if "border-bottom" in cell.get("style")]
    if len(rows) == 2 and len(lined) == 1 and len(first) <= 3 and len(rows[1].children) == 1:
        fraction = f"\\frac{{{_cell(lined[0])}}}{{{_cell(rows[1].children[0])}}}"
        return " ".join(fraction if cell is lined[0] else _cell(cell) for cell in first)
    if any(len(row.children) != 1 for row in rows):
        return ""
    lines = ["hr" if "hbar" in row.children[0].get("class") else _cell(row.children[0]) for row in rows]
    return _stacked(lines, [row.children[0].all_text() for row in rows])


def _cell(cell: Element) -> str:
    """TeX of a cell: of the tables in it, or of lines over each other."""
    if (tables := _below(cell, "table")) and not cell.text.strip():
        return join([_table(table) for table in tables])
    lines: list[list[Element | str]] = [[]]
    names = []
    for piece in _flat(cell):
        tag = piece.tag if isinstance(piece, Element) else ""
        if tag in ("hr", "br"):
            names.append(tag)
            lines.append([])
        else:
            lines[-1].append(piece)
    parts = [tex_of(Element("", pieces=line)).strip() for line in lines]
    if "hr" in names:
        bar = names.index("hr") + 1
        return f"\\frac{{{join(parts[:bar])}}}{{{join(parts[bar:])}}}"
    kept = [(part, line) for part, line in zip(parts, lines, strict=True) if part]
    texts = ["".join(p if isinstance(p, str) else p.all_text() for p in line) for _, line in kept]
    return _stacked([part for part, _ in kept], texts) or tex_of(cell)


def _flat(cell: Element) -> list[Element | str]:
    """Pieces of a cell, those of its blocks and fonts in their places."""
    pieces: list[Element | str] = []
    for piece in cell.pieces:
        nested = isinstance(piece, Element) and piece.tag in ("div", "font", "center", "p")
        pieces += _flat(piece) if nested and isinstance(piece, Element) else [piece]
    return pieces


def _stacked(lines: list[str], texts: list[str]) -> str:
    """TeX of lines over each other: a fraction, or a large sign with its limits; empty for others."""
    if len(lines) == 3 and lines[1] == "hr":
        return f"\\frac{{{lines[0]}}}{{{lines[2]}}}"
    signs = [number for number, text in enumerate(texts) if text.strip() in LARGE]
    if len(signs) != 1 or not 1 < len(lines) <= 3:
        return ""
    above, below = lines[: signs[0]], lines[signs[0] + 1 :]
    return (
        lines[signs[0]]
        + "".join(f"_{{{line}}}" for line in below)
        + "".join(f"^{{{line}}}" for line in above)
    )


def _below(node: Element, tag: str) -> list[Element]:
    """Return the nearest elements of a tag below a node."""
    return [one for child in node.children for one in ([child] if child.tag == tag else _below(child, tag))]
