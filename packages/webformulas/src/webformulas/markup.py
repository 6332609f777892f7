"""A minimal parser of serialised HTML and MathML, several times faster to read than DOM nodes."""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from html import unescape

TOKEN = re.compile(r"<!--.*?-->|<(/?)([\w:.-]+)((?:[^>\"']++|\"[^\"]*\"|'[^']*')*)>|([^<]+)", re.DOTALL)
ATTRIBUTE = re.compile(r"([\w:.-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")
JOINER = "\u2060"  # text extraction puts it beside single characters, which Resiliparse would drop
PLAIN_MARKUP = ("em", "i", "b", "strong", "sub", "sup", "span", "var", "br")  # in formulas of plain HTML
VOID = ("br", "img", "wbr", "hr")
MAX_DEPTH = 200


@dataclass(slots=True)
class Element:
    """An element: `tag` is lower case without namespace prefix, `children` holds elements, `text` the
    element's own text, `pieces` both in order.
    """

    tag: str
    attributes: str = ""
    children: list["Element"] = field(default_factory=list)
    text: str = ""
    pieces: list["Element | str"] = field(default_factory=list)

    def get(self, name: str) -> str:
        """Return an attribute's value, empty if absent."""
        if name not in self.attributes:
            return ""
        if self.attributes.startswith(f' {name}="'):  # the first one, as most that are asked for
            return unescape(self.attributes.split('"', 2)[1])
        for match in ATTRIBUTE.finditer(self.attributes):
            if match[1].lower() == name:
                return unescape(match[2] or match[3] or match[4] or "")
        return ""

    def all_text(self) -> str:
        """Text of the element and its descendants."""
        return self.text + "".join(child.all_text() for child in self.children)


def parse_markup(markup: str) -> Element:
    """Parse markup below a root without tag; elements deeper than MAX_DEPTH become siblings."""
    root = Element("")
    stack = [root]
    for closing, name, attributes, text in TOKEN.findall(markup):
        if text:
            piece = unescape(text) if "&" in text else text
            stack[-1].text += piece
            stack[-1].pieces.append(piece)
        elif closing:
            tag = _tag(name)
            if stack[-1].tag == tag and len(stack) > 1:
                stack.pop()
            elif any(open_.tag == tag for open_ in stack[-4:]):
                while len(stack) > 1 and stack.pop().tag != tag:
                    pass
        elif name:
            tag = _tag(name)
            node = Element(tag, attributes, [], "", [])
            stack[-1].children.append(node)
            stack[-1].pieces.append(node)
            if not attributes.endswith("/") and tag not in VOID and len(stack) < MAX_DEPTH:
                stack.append(node)
    return root


@lru_cache(maxsize=1024)
def _tag(name: str) -> str:
    return name.rsplit(":", 1)[-1].lower() if ":" in name else name.lower()
