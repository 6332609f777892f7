"""Rendered HTML to TeX, for pages without source or MathML: KaTeX's spans, and `sub` and `sup`.

KaTeX stacks scripts, fractions and limits in lists (class `vlist`), lowest first; classes name the kind.
"""

import re
from collections.abc import Iterator

from .markup import Element, parse_markup
from .mathml import join
from .symbols import FUNCTIONS, OVER, SYMBOLS

INVISIBLE = frozenset(
    ("strut", "pstrut", "vlist-s", "frac-line", "hide-tail", "nulldelimiter", "katex-mathml")
)
ALPHABETS = ("mathbb", "mathcal", "mathfrak", "mathbf", "mathscr", "mathsf", "mathtt", "boldsymbol")

SLASHED = re.compile(r"\^\{([^{}]*)\}/_\{([^{}]*)\}")  # a fraction of a script above and one below


def katex_html_to_tex(markup: str) -> str:
    """TeX of a `.katex-html` element: symbols, scripts, fractions, roots, limits, accents, matrices."""
    return _katex(parse_markup(markup)).strip()


def html_to_tex(markup: str) -> str:
    """TeX of inline HTML such as `<em>x</em><sup>2</sup>`."""
    return SLASHED.sub(r"\\frac{\1}{\2}", tex_of(parse_markup(markup)).strip())


def tex_of(node: Element) -> str:
    """TeX of an element of inline HTML."""
    if "sfrac" in node.get("class").split():
        parts = [part for name in ("num", "den") if (part := _find(node, name)) is not None]
        if len(parts) == 2:
            return f"\\frac{{{tex_of(parts[0])}}}{{{tex_of(parts[1])}}}"
    rows: list[str] = []
    for piece in node.pieces:
        row = _symbols(piece) if isinstance(piece, str) else tex_of(piece)
        lined = not isinstance(piece, str) and "border-top" in piece.get("style")
        if lined and rows[-1:] == [r"\surd"]:
            rows.pop()
            degree = f"[{rows.pop()[2:-1]}]" if rows and rows[-1].startswith("^{") else ""
            row = f"\\sqrt{degree}{{{row}}}"
        rows.append(row)
    row = join(rows)
    if node.tag in ("sub", "sup"):
        return f"{'_' if node.tag == 'sub' else '^'}{{{row}}}"
    return f"\\mathbf{{{row}}}" if node.tag in ("b", "strong") and len(row) == 1 and row.isalpha() else row


def _symbols(text: str) -> str:
    if len(text) == 1:
        return "" if text in "\u200b\u2061" else SYMBOLS.get(text, text)
    name = text.strip()
    if name in FUNCTIONS:
        return "\\" + name
    return join([SYMBOLS.get(character, character) for character in text if character not in "\u200b\u2061"])


def _katex(node: Element) -> str:
    classes = frozenset(node.get("class").split())
    if classes & INVISIBLE:
        return ""
    if "mspace" in classes:
        return " "
    if "msupsub" in classes:
        return _scripts(node)
    if "mfrac" in classes:
        rows = list(_stack(node))
        return f"\\frac{{{rows[-1]}}}{{{rows[0]}}}" if len(rows) == 2 else " ".join(rows)
    if "sqrt" in classes:
        return f"\\sqrt{{{' '.join(_stack(node))}}}"
    if "op-limits" in classes:
        return _limits(node)
    if "accent" in classes:
        base, *mark = list(_stack(node))
        name = OVER.get("".join(mark).strip(), "")
        return f"\\{name}{{{base}}}" if name else base
    if "mtable" in classes:
        columns = [list(_stack(child)) for child in node.children if "col-align" in child.get("class")]
        rows = r" \\ ".join(" & ".join(row) for row in zip(*columns, strict=False))
        return f"\\begin{{matrix}}{rows}\\end{{matrix}}"
    row = join([_symbols(piece) if isinstance(piece, str) else _katex(piece) for piece in node.pieces])
    if "text" in classes:
        return f"\\text{{{row}}}"
    alphabet = next((name for name in ALPHABETS if name in classes), "")
    return f"\\{alphabet}{{{row}}}" if alphabet and row else row


def _find(node: Element, name: str) -> Element | None:
    for child in node.children:
        if name in child.get("class").split() or (found := _find(child, name)) is not None:
            return child if name in child.get("class").split() else found
    return None


def _stack(node: Element) -> Iterator[str]:
    """TeX of the non-empty entries of the first list below `node`."""
    entries = _find(node, "vlist")
    for entry in entries.children if entries is not None else []:
        if tex := _katex(entry).strip():
            yield tex


def _scripts(node: Element) -> str:
    entries = list(_stack(node))
    if len(entries) == 2:
        return f"_{{{entries[0]}}}^{{{entries[1]}}}"
    below = _find(node, "vlist-t2") is not None
    return "".join(f"{'_' if below else '^'}{{{entry}}}" for entry in entries)


def _limits(node: Element) -> str:
    entries = list(_stack(node))
    commands = [index for index, entry in enumerate(entries) if entry[0] == "\\" and entry[1:].isalpha()]
    base = commands[0] if commands else 0
    below = [f"_{{{entry}}}" for entry in entries[:base]]
    above = [f"^{{{entry}}}" for entry in entries[base + 1 :]]
    return "".join([*entries[base : base + 1], *below, *above])
