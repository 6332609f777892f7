"""Formulas of Word (OMML) to TeX."""

from collections.abc import Callable

from .markup import JOINER, Element, parse_markup
from .mathml import atom, join, marked
from .symbols import FENCES, FUNCTIONS, OVER, SYMBOLS

TALL = (r"\frac", r"\begin", r"\sum", r"\int", r"\prod")
SKIPPED = ("rpr", "ctrlpr", "omathparapr")


def omml_to_tex(markup: str) -> tuple[str, bool]:
    """(TeX, whether it is displayed) of a serialised `m:oMath` or `m:oMathPara`."""
    markup = markup.replace(JOINER, "")
    return _row(parse_markup(markup)).strip(), "omathpara" in markup[:20].lower()


def _row(node: Element) -> str:
    return join([_text(piece) if isinstance(piece, str) else _tex(piece) for piece in node.pieces])


def _tex(node: Element) -> str:
    return "" if node.tag in SKIPPED else HANDLERS.get(node.tag, _row)(node)


def _text(text: str) -> str:
    name = text.strip()
    return "\\" + name if name in FUNCTIONS else join([SYMBOLS.get(sign, sign) for sign in name])


def _part(node: Element, name: str, mark: str = "") -> str:
    """Return a named part, as a script after `mark`."""
    tex = next((_row(child).strip() for child in node.children if child.tag == name), "")
    return f"{mark}{{{tex}}}" if mark and tex else tex


def _property(node: Element, name: str, usual: str) -> str:
    """Return a property of an element, e.g. the sign of a sum."""
    kept = [child for one in node.children if one.tag == f"{node.tag}pr" for child in one.children]
    return next((child.get("m:val") for child in kept if child.tag == name), usual)


def _scripts(node: Element) -> str:
    return atom(_part(node, "e")) + _part(node, "sub", "_") + _part(node, "sup", "^")


def _sum(node: Element) -> str:
    sign = _text(_property(node, "chr", "∫"))
    return join([sign + _part(node, "sub", "_") + _part(node, "sup", "^"), _part(node, "e")])


def _fences(node: Element) -> str:
    inner = ",".join(_row(child).strip() for child in node.children if child.tag == "e")
    signs = _property(node, "begchr", "("), _property(node, "endchr", ")")
    left, right = (FENCES.get(sign, sign) for sign in signs)
    tall = any(sign in inner for sign in TALL)
    return join([f"\\left{left or '.'}", inner, f"\\right{right or '.'}"] if tall else [left, inner, right])


def _fraction(node: Element) -> str:
    over, under = _part(node, "num"), _part(node, "den")
    bare = _property(node, "type", "bar").lower() == "nobar"
    return f"{{{over} \\atop {under}}}" if bare else f"\\frac{{{over}}}{{{under}}}"


def _root(node: Element) -> str:
    degree = _part(node, "deg")
    return f"\\sqrt{f'[{degree}]' if degree else ''}{{{_part(node, 'e')}}}"


def _table(node: Element) -> str:
    rows = [child for child in node.children if child.tag in ("mr", "e")]
    cells = [[_row(cell).strip() for cell in row.children if cell.tag == "e"] or [_row(row)] for row in rows]
    name = "matrix" if node.tag == "m" else "aligned"
    return f"\\begin{{{name}}}" + r" \\ ".join(" & ".join(row) for row in cells) + f"\\end{{{name}}}"


def _accent(node: Element) -> str:
    mark, base = _property(node, "chr", "\u0302"), _part(node, "e")
    if node.tag == "bar":
        return f"\\{'overline' if _property(node, 'pos', 'bot') == 'top' else 'underline'}{{{base}}}"
    return marked(base, OVER.get(mark), "")


HANDLERS: dict[str, Callable[[Element], str]] = {
    "f": _fraction,
    "rad": _root,
    "nary": _sum,
    "d": _fences,
    "func": lambda node: join([_part(node, "fname"), f" {_part(node, 'e')}"]),
    "limlow": lambda node: _part(node, "e") + _part(node, "lim", "_"),
    "limupp": lambda node: _part(node, "e") + _part(node, "lim", "^"),
    **dict.fromkeys(("ssub", "ssup", "ssubsup"), _scripts),
    **dict.fromkeys(("m", "eqarr"), _table),
    **dict.fromkeys(("acc", "bar"), _accent),
}
