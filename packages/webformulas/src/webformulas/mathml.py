"""MathML to TeX: the source in an annotation or `alttext`, else a translation of the presentation elements.

Reads serialised markup, because parsing it again is several times faster than walking DOM nodes.
"""

import re
from collections.abc import Callable
from html import unescape

from .markup import JOINER, PLAIN_MARKUP, Element, parse_markup
from .symbols import ARROWS, FENCES, FUNCTIONS, INFIX, LIMITS, MATRICES, OVER, SYMBOLS, UNDER, VARIANTS

COMMAND_END = re.compile(r"\\[A-Za-z]+$")
SINGLE = re.compile(r"\\?[^\W_]|\\[A-Za-z]+|[^\\\s{}^_]")
TEX_SIGN = re.compile(r"\\[A-Za-z,;:!|{}]|[_^{}]")
OPENING = re.compile(r"<(?:[\w.-]+:)?math((?:[^>\"]|\"[^\"]*\")*)>", re.IGNORECASE)
ANNOTATION = re.compile(
    r"<(?:[\w.-]+:)?annotation\s[^>]*encoding=\"[^\"]*tex[^\"]*\"[^>]*>(.*?)</(?:[\w.-]+:)?annotation>",
    re.IGNORECASE | re.DOTALL,
)
NO_LINE = re.compile(r"0(?:\.0*)?\s*(?:px|pt|em|ex|%)?")
WIDE = {"bar": "overline", "hat": "widehat", "tilde": "widetilde", "vec": "overrightarrow"}
SPACES = ((1.9, r"\qquad "), (0.9, r"\quad "), (0.26, r"\;"), (0.1, r"\,"))  # minimum width in em
ROWS = ("", "math", "mrow", "mstyle", "mpadded", "merror", "mtr", "mlabeledtr", "mtd", "a", *PLAIN_MARKUP)
IGNORED = frozenset(("annotation", "annotation-xml", "none", "mprescripts", "maligngroup", "malignmark"))


class Unread(ValueError):
    """A formula whose parts cannot be told: it is left out, because a wrong formula is worse than none."""


def mathml_to_tex(markup: str) -> tuple[str, bool]:
    """(TeX, whether it is displayed) of a serialised `math` element; empty TeX for one that shows nothing.

    Raises Unread for one that has no TeX source and is not understood.
    """
    markup = markup.replace(JOINER, "")
    opening = OPENING.search(markup)
    math = Element("math", opening[1] if opening else "")
    display = math.get("display") == "block" or math.get("mode") == "display"
    if source := math.get("data-latex").strip():
        return source, display
    annotation = ANNOTATION.search(markup) if "annotation" in markup else None
    if annotation and (source := unescape(annotation[1]).strip()):
        return source, display
    source = math.get("alttext").strip()
    if TEX_SIGN.search(source):
        return source, display
    return to_tex(parse_markup(markup)) or source, display


def join(pieces: list[str]) -> str:
    """Concatenate TeX, with a space where a letter would become part of the command before it."""
    row = ""
    for piece in pieces:
        if piece and row and (piece[0].isalpha() or piece[0] == "*") and COMMAND_END.search(row):
            row += " "
        row += piece
    return row


def to_tex(node: Element) -> str:
    """TeX of an element. Raises Unread for one of content MathML, of sums in columns, or unknown."""
    handler = HANDLERS.get(node.tag)
    if handler is None:
        raise Unread(f"<{node.tag}>")
    return handler(node)


def _children(node: Element) -> list[Element]:
    return [child for child in node.children if child.tag not in IGNORED]


def _argument(node: Element, index: int) -> str:
    children = node.children
    return to_tex(children[index]).strip() if index < len(children) else ""


def atom(tex: str) -> str:
    """TeX that can carry a script: in braces unless it is one symbol."""
    return tex if SINGLE.fullmatch(tex) or _is_group(tex) else "{" + tex + "}"


def _is_group(tex: str) -> bool:
    """Whether TeX is a pair of parentheses, or one command with its argument such as a bold letter."""
    if re.fullmatch(r"(?:\\left)?[(\[][^()\[\]]*(?:\\right)?[)\]]", tex):
        return True
    return re.fullmatch(r"\\(?:math\w+|boldsymbol|hat|bar|vec|tilde|dot|overline)\{[^{}]*\}", tex) is not None


def _row(node: Element) -> str:
    """TeX of an inferred or explicit row; matching fences become \\left and \\right, or a matrix."""
    if not node.children:
        return _symbols(node.text.strip()) if node.text.strip() else ""
    children = _children(node)
    if (whole := _fenced_table(children) or _binomial(children)) is not None:
        return whole
    pieces: list[str] = []
    stretched = _stretched_fences(children)
    for index, child in enumerate(children):
        if index in stretched:
            pieces.append(stretched[index])
        elif child.tag == "mo":
            pieces.append(_operator(child, infix=0 < index < len(children) - 1))
        else:
            pieces.append(to_tex(child))
    return join(pieces)


def _is_tall(node: Element) -> bool:
    return node.tag in ("mfrac", "mtable", "munderover", "munder") or any(map(_is_tall, node.children))


def _stretched_fences(children: list[Element]) -> dict[int, str]:
    """\\left and \\right by position in the row, if the row has fences at both ends and tall content."""
    if len(children) < 3 or children[0].tag != "mo" or children[-1].tag != "mo":
        return {}
    left, right = children[0].text.strip(), children[-1].text.strip()
    if (left in FENCES or not left) and (right in FENCES or not right) and left + right:
        declared = "true" in (children[0].get("fence"), children[0].get("stretchy"))
        never = "false" in (children[0].get("stretchy"), children[-1].get("stretchy"))
        if not never and (declared or any(map(_is_tall, children[1:-1]))):
            return {
                0: f"\\left{FENCES.get(left, '.')}",
                len(children) - 1: f"\\right{FENCES.get(right, '.')}",
            }
    return {}


def _fenced_table(children: list[Element]) -> str | None:
    """Return a table between delimiters as a matrix environment."""
    shown = [child for child in children if child.tag != "mo" or child.text.strip() not in ("", "\u2061")]
    if not 2 <= len(shown) <= 3 or shown[0].tag != "mo":
        return None
    table = _only_table(shown[1])
    left, right = shown[0].text.strip(), shown[2].text.strip() if len(shown) == 3 else ""
    if table is None or (len(shown) == 3 and shown[2].tag != "mo") or (left, right) not in MATRICES:
        return None
    name = MATRICES[left, right]
    return f"\\begin{{{name}}}{_cells(table)}\\end{{{name}}}"


def _binomial(children: list[Element]) -> str | None:
    """Return a fraction without line between parentheses."""
    if len(children) != 3 or [child.all_text().strip() for child in children[::2]] != ["(", ")"]:
        return None
    fraction = children[1]
    if fraction.tag != "mfrac" or not NO_LINE.fullmatch(fraction.get("linethickness")):
        return None
    return f"\\binom{{{_argument(fraction, 0)}}}{{{_argument(fraction, 1)}}}"


def _only_table(node: Element) -> Element | None:
    while node.tag in ("mrow", "mstyle", "mpadded") and len(node.children) == 1:
        node = node.children[0]
    return node if node.tag == "mtable" else None


def _cells(table: Element) -> str:
    rows = []
    for row in table.children:
        cells = [to_tex(cell).strip() for cell in row.children]
        tag = ""
        if row.tag == "mlabeledtr" and cells:
            tag = f" \\tag{{{row.children[0].all_text().strip().strip('()')}}}"
            cells = cells[1:]
        rows.append(" & ".join(cells) + tag)
    return r" \\ ".join(rows)


def _table(node: Element) -> str:
    sizes = [len(row.children) - (row.tag == "mlabeledtr") for row in node.children]
    if sizes == [1]:
        return _cells(node)
    align = node.get("columnalign").split()
    if align[:2] == ["right", "left"]:
        return f"\\begin{{aligned}}{_cells(node)}\\end{{aligned}}"
    if node.get("columnlines") or len(set(align)) > 1:
        columns, rest = max(sizes, default=0), align[-1] if align else "c"
        letters = "".join(name[0] for name in (align + [rest] * columns)[:columns])
        return f"\\begin{{array}}{{{letters}}}{_cells(node)}\\end{{array}}"
    return f"\\begin{{matrix}}{_cells(node)}\\end{{matrix}}"


def _symbols(text: str) -> str:
    return join([SYMBOLS.get(character, character) for character in text])


def _identifier(node: Element) -> str:
    text = node.text.strip() or node.all_text().strip()
    variant = VARIANTS.get(node.get("mathvariant"), "")
    if len(text) == 1:
        tex = SYMBOLS.get(text, text)
        if not variant or (variant == "mathrm" and not text.isascii()) or variant == "mathit":
            return tex
        bold_symbol = variant == "mathbf" and tex.startswith("\\")
        return f"\\boldsymbol{{{tex}}}" if bold_symbol else f"\\{variant}{{{tex}}}"
    name = re.sub(r"\s+", "", text)
    if name in FUNCTIONS and variant in ("", "mathrm"):
        return "\\" + name
    tex = _symbols(text)
    if text.isascii() and text.isalpha() or variant:
        return f"\\{variant or 'mathrm'}{{{tex}}}"
    return tex


def _number(node: Element) -> str:
    text = node.text.strip() or node.all_text().strip()
    variant = VARIANTS.get(node.get("mathvariant"), "")
    tex = _symbols(re.sub(r"[\s\u00a0]+", r"\\,", text)) if not re.search(r"\s", text) else text
    return f"\\{variant}{{{tex}}}" if variant not in ("", "mathrm") else tex


def _operator(node: Element, infix: bool = False) -> str:
    text = node.text.strip() or node.all_text().strip()
    name = re.sub(r"\s+", "", text)
    if name in FUNCTIONS:
        return "\\" + name
    if len(name) > 1 and name.isascii() and name.isalpha():
        return "\\bmod " if name == "mod" else f"\\operatorname{{{name}}}"
    tex = _symbols(text)
    return f" {tex} " if infix and text in INFIX else tex


def _text(node: Element) -> str:
    text = re.sub(r"\s+", " ", node.all_text().replace("\u00a0", " "))
    if not text.strip():
        return r"\ " if text else ""
    return f"\\text{{{text}}}"


def _space(node: Element) -> str:
    if node.get("linebreak") == "newline":
        return r" \\ "
    width = re.fullmatch(r"(\d+\.?\d*|\.\d+)em", node.get("width"))
    if width is None:
        return ""
    return next((tex for least, tex in SPACES if float(width[1]) >= least), "")


def _fraction(node: Element) -> str:
    top, bottom = _argument(node, 0), _argument(node, 1)
    if NO_LINE.fullmatch(node.get("linethickness")):
        return f"{{{top} \\atop {bottom}}}"
    if node.get("bevelled") == "true":
        return f"{atom(top)}/{atom(bottom)}"
    return f"\\frac{{{top}}}{{{bottom}}}"


def _script(tex: str, mark: str) -> str:
    return f"{mark}{{{tex}}}" if tex else ""


def _base_with_scripts(node: Element, below: int | None, above: int | None) -> str:
    """Return the first child with scripts; primes are written as such."""
    base = _argument(node, 0)
    low = _script(_argument(node, below), "_") if below else ""
    high = _argument(node, above) if above else ""
    if high and not high.strip("'"):
        return atom(base) + high + low
    return (atom(base) if base else "{}") + low + _script(high, "^")


def _under_over(node: Element, below: int | None, above: int | None) -> str:
    if not node.children:
        return ""
    base = node.children[0]
    low = _argument(node, below) if below else ""
    high = _argument(node, above) if above else ""
    sign, tex = " ".join(base.all_text().split()), to_tex(base).strip()
    named = tex.startswith(("\\overbrace", "\\underbrace", "\\operatorname"))
    if named or sign in LIMITS or sign in ("∫", "∮", "∬"):
        return tex + _script(low, "_") + _script(high, "^")
    arrow = ARROWS.get(base.all_text().strip())
    if arrow:
        return f"\\{arrow}" + (f"[{low}]" if low else "") + f"{{{high}}}"
    for index, names, script in (
        (above, OVER, f"\\overset{{{high}}}"),
        (below, UNDER, f"\\underset{{{low}}}"),
    ):
        if index and index < len(node.children):
            mark = node.children[index].all_text().strip()
            tex = marked(tex, names.get(mark), script if mark else "")
    return tex


def marked(tex: str, accent: str | None, other: str) -> str:
    """TeX with an accent over or under it, wide over more than one symbol, or with `other` there."""
    if accent is None:
        return f"{other}{{{tex}}}" if other else tex
    wide = len(tex) > 1 and not tex.startswith("\\")
    return f"\\{WIDE.get(accent, accent) if wide else accent}{{{tex}}}"


def _multiscripts(node: Element) -> str:
    """Read the base, then pairs of (lower, upper) to the right; after `mprescripts` pairs to the left."""
    base, before, after = "", "", ""
    side, pair = "after", []
    for index, child in enumerate(node.children):
        if index == 0:
            base = to_tex(child).strip()
        elif child.tag == "mprescripts":
            side, pair = "before", []
        else:
            pair.append("" if child.tag == "none" else to_tex(child).strip())
            if len(pair) == 2:
                scripts = _script(pair[0], "_") + _script(pair[1], "^")
                after, before = (after + scripts, before) if side == "after" else (after, before + scripts)
                pair = []
    return ("{}" + before if before else "") + (atom(base) if base else "{}") + after


def _fenced(node: Element) -> str:
    opening = node.get("open") if "open" in node.attributes else "("
    closing = node.get("close") if "close" in node.attributes else ")"
    separators = [*node.get("separators").replace(" ", "")] if "separators" in node.attributes else [","]
    children = _children(node)
    table = _only_table(children[0]) if len(children) == 1 else None
    if table is not None and (name := MATRICES.get((opening.strip(), closing.strip()))):
        return f"\\begin{{{name}}}{_cells(table)}\\end{{{name}}}"
    row = ""
    for index, child in enumerate(children):
        if index and separators:
            row += SYMBOLS.get(separator := separators[min(index, len(separators)) - 1], separator)
        row = join([row, to_tex(child)])
    left, right = FENCES.get(opening.strip(), opening.strip()), FENCES.get(closing.strip(), closing.strip())
    return join([f"\\left{left or '.'}", row, f"\\right{right or '.'}"])


def _enclosed(node: Element) -> str:
    notation, row = node.get("notation").split() or ["longdiv"], _row(node)
    names = {
        "box": "boxed", "updiagonalstrike": "cancel", "downdiagonalstrike": "bcancel", "radical": "sqrt",
        "top": "overline", "bottom": "underline", "horizontalstrike": "cancel",
    }  # fmt: skip
    name = names.get(notation[0])
    return f"\\{name}{{{row}}}" if name else row


def _semantics(node: Element) -> str:
    """Read the presentation, which may stand beside content MathML."""
    shown = [child for child in node.children if "MathML-Presentation" in child.get("encoding")]
    return _row(shown[0]) if shown else to_tex(node.children[0]) if node.children else ""


HANDLERS: dict[str, Callable[[Element], str]] = {
    "mi": _identifier,
    "mn": _number,
    "mo": _operator,
    "mtext": _text,
    "ms": _text,
    "mspace": _space,
    "mfrac": _fraction,
    "msqrt": lambda node: f"\\sqrt{{{_row(node)}}}",
    "mroot": lambda node: f"\\sqrt[{_argument(node, 1)}]{{{_argument(node, 0)}}}",
    "msub": lambda node: _base_with_scripts(node, 1, None),
    "msup": lambda node: _base_with_scripts(node, None, 1),
    "msubsup": lambda node: _base_with_scripts(node, 1, 2),
    "munder": lambda node: _under_over(node, 1, None),
    "mover": lambda node: _under_over(node, None, 1),
    "munderover": lambda node: _under_over(node, 1, 2),
    "mmultiscripts": _multiscripts,
    "mfenced": _fenced,
    "mtable": _table,
    "menclose": _enclosed,
    "mphantom": lambda node: f"\\phantom{{{_row(node)}}}",
    "semantics": _semantics,
    "maction": lambda node: to_tex(node.children[0]) if node.children else "",
    **dict.fromkeys(ROWS, _row),
    **dict.fromkeys(IGNORED, lambda node: ""),
}
