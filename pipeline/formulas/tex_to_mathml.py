"""TeX to presentation MathML, with latex2mathml.

The library shows unknown commands as text, copies links and styles from the TeX, and leaves `<` in words
unescaped. So only its element tree is used: a formula with unknown TeX is an error, attributes other than
layout are dropped, and the serialiser escapes all text.
"""

import re
from html import escape, unescape
from xml.etree.ElementTree import Element, tostring

from latex2mathml.converter import convert_to_element

ATTRIBUTES = {
    "accent", "columnalign", "columnlines", "displaystyle", "form", "linethickness", "mathvariant", "maxsize",
    "minsize", "movablelimits", "rowlines", "scriptlevel", "stretchy", "width",
}  # fmt: skip
MACROS = re.compile(r"\\(?:def|newcommand|newenvironment|DeclareMathOperator)(?![a-zA-Z])")
KNOWN_AS = {"aligned": "split", "gathered": "matrix"}  # environments by their names in latex2mathml
ENVIRONMENT = re.compile(r"(\\(?:begin|end)\s*\{)(aligned|gathered)\}")
PERCENT = re.compile(r"\\.|%", re.DOTALL)  # a sign, as models write it, not a comment
UNREAD = re.compile(r"[\\{}]|&(?!#x)")  # in shown text: TeX that was not understood


def mathml_tree(tex: str, display: bool = False) -> Element:
    """Return the `math` element of a formula; `\\boxed` becomes an `mrow` of class `boxed`.

    Raises ValueError for TeX that latex2mathml cannot read, and for strikes and line breaks outside an
    environment, which not all browsers show. Macros are refused, because their expansion is unbounded.
    """
    unsupported = ValueError(f"TeX outside the supported subset: {tex}")
    if MACROS.search(tex):
        raise unsupported
    source = ENVIRONMENT.sub(lambda match: f"{match[1]}{KNOWN_AS[match[2]]}}}", tex)
    source = PERCENT.sub(lambda match: r"\%" if match[0] == "%" else match[0], source)
    try:
        math = convert_to_element(source, display="block" if display else "inline")
    except Exception as error:  # a dozen classes without a common base, and StopIteration, IndexError, ...
        raise unsupported from error
    for node in math.iter():
        text = node.text or ""
        boxed = node.get("notation") == "box"
        unread = UNREAD.search(text) or (node.tag == "mtext" and "$" in text)
        if unread or node.get("linebreak") or (node.tag == "menclose" and not boxed):
            raise unsupported
        node.text = unescape(text)
        node.attrib = {name: value for name, value in node.attrib.items() if name in ATTRIBUTES}
        if boxed:
            node.tag, node.attrib = "mrow", {"class": "boxed"}
    math.attrib = {"display": "block"} if display else {}
    return math


def tex_to_mathml(tex: str, display: bool = False) -> str:
    """Return a formula as a `math` element, or its escaped source in `<code class="tex">` if `mathml_tree`
    fails.
    """
    try:
        return tostring(mathml_tree(tex, display), encoding="unicode", short_empty_elements=False)
    except (ValueError, RecursionError):
        return f'<code class="tex">{escape(tex)}</code>'
