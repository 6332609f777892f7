"""Formulas of the generated pages as MathML and as plain text."""

import re
from functools import lru_cache
from html import escape, unescape
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert_to_element

UNREAD = re.compile(r"[\\{}]|&(?!#x)")  # in shown text: TeX that latex2mathml did not understand
SUPERSCRIPTS = str.maketrans("0123456789+-n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ")


@lru_cache(maxsize=4096)
def parse(tex: str) -> Element:
    """Return the formula as MathML of a simple converter: function names are text, a minus sign is a hyphen.

    An `mtable` stands for a matrix with its parentheses. Raises ValueError for unsupported TeX.
    """
    tree = convert_to_element(tex.replace(r"\mod", r"\bmod"))  # without spaces of its own
    for node in tree.iter():
        if UNREAD.search(node.text or ""):
            raise ValueError(f"TeX outside the supported subset: {tex}")
        name = node.text = unescape(node.text or "").replace("\xa0", " ")
        if node.tag == "mspace":
            node.tag, node.text = "mo", " "
        elif name == "−":
            node.text = "-"
        elif node.tag in ("mo", "mi") and len(name) > 1:
            node.tag = "mtext"
        elif node.tag == "mi" and not name.isalpha():
            node.tag = "mo"
        node.attrib = {}
        for table in node.findall("mtable"):
            index = list(node).index(table)
            del node[index + 1], node[index - 1]
    return tree


def to_mathml(node: Element) -> str:
    """Write presentation MathML without the enclosing `math` element."""
    inner = "".join(map(to_mathml, node)) or escape(node.text or "")
    if node.tag == "mtable":
        return f"<mo>(</mo><mtable>{inner}</mtable><mo>)</mo>"
    alone = node.tag == "math" or (node.tag == "mrow" and len(node) == 1)
    return inner if alone else f"<{node.tag}>{inner}</{node.tag}>"


def to_plain(node: Element) -> str:
    """Write Unicode text, as people write mathematics without any markup: `x²+1`, `(a+b)/2`."""
    inner = [to_plain(part) for part in node]
    match node.tag:
        case "mfrac":
            return f"{_wrapped(inner[0])}/{_wrapped(inner[1])}"
        case "msqrt":
            return f"√{_wrapped(inner[0])}"
        case "msup":
            return inner[0] + _superscript(inner[1])
        case "msub":
            return f"{inner[0]}_{inner[1]}"
        case "msubsup":
            return f"{inner[0]}_{inner[1]}{_superscript(inner[2])}"
        case "mtr":
            return " ".join(inner)
        case "mtable":
            return f"[{'; '.join(inner)}]"
        case "mtext" if node.text == "mod":
            return " mod "
    return "".join(inner) or (node.text or "")


def _superscript(text: str) -> str:
    small = text.translate(SUPERSCRIPTS)
    return small if re.fullmatch("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+|′", small) else f"^{_wrapped(text)}"


def _wrapped(text: str) -> str:
    return text if re.fullmatch(r"\w+", text) else f"({text})"
