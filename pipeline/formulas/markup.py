"""A small tree of markup: elements with tag, attributes and children."""

import re
from dataclasses import dataclass, field
from html import unescape

TOKEN = re.compile(r"<!--.*?-->|<(/?)([\w:.-]+)((?:[^>\"']|\"[^\"]*\"|'[^']*')*)>|([^<]+)", re.DOTALL)
ATTRIBUTE = re.compile(r"([\w:.-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")
JOINER = "\u2060"  # shows nothing; text extraction puts it beside lone characters
VOID = ("br", "img", "wbr", "hr")
MAX_DEPTH = 200


@dataclass(slots=True)
class Element:
    """An element: `tag` without namespace prefix, lower case; `children` elements only; `text` its own;
    `pieces` both, in order.
    """

    tag: str
    attributes: str = ""
    children: list["Element"] = field(default_factory=list)
    text: str = ""
    pieces: list["Element | str"] = field(default_factory=list)

    def get(self, name: str) -> str:
        """An attribute's value, empty if absent."""
        if name not in self.attributes:
            return ""
        for match in ATTRIBUTE.finditer(self.attributes):
            if match[1].lower() == name:
                return unescape(match[2] or match[3] or match[4] or "")
        return ""

    def all_text(self) -> str:
        """Text of the element and all below it."""
        return self.text + "".join(child.all_text() for child in self.children)


def parse_markup(markup: str) -> Element:
    """The tree of serialised markup, below a root without tag; what is nested too deep is flattened."""
    root = Element("")
    stack = [root]
    for closing, name, attributes, text in TOKEN.findall(markup):
        if text:
            piece = unescape(text) if "&" in text else text
            stack[-1].text += piece
            stack[-1].pieces.append(piece)
        elif closing:
            tag = name.rsplit(":", 1)[-1].lower()
            if stack[-1].tag == tag and len(stack) > 1:
                stack.pop()
            elif any(open_.tag == tag for open_ in stack[-4:]):
                while len(stack) > 1 and stack.pop().tag != tag:
                    pass
        elif name:
            tag = name.rsplit(":", 1)[-1].lower()
            node = Element(tag, attributes)
            stack[-1].children.append(node)
            stack[-1].pieces.append(node)
            if not attributes.endswith("/") and tag not in VOID and len(stack) < MAX_DEPTH:
                stack.append(node)
    return root
