"""Numbers of ordered lists as a browser shows them: `start`, `type`, `reversed`, and an item's own `value`.

Resiliparse counts every ordered list from 1 and cannot be told another label. So the label is put into the
item as a mark, and after extraction the mark replaces the number before it.
"""

import re

from resiliparse.parse.html import DOMNode, HTMLTree

NUMBERED = re.compile(r"<ol.*(?:start|type|reversed|list-style)|<li value", re.DOTALL)  # tags in lower case
OPEN, CLOSE = "\ue002", "\ue003"
SHOWN = re.compile(f"(?:\\d+\\.\\s*)?{OPEN}([^{CLOSE}\n]*){CLOSE}\\s*")
STYLE = re.compile(r"list-style(?:-type)?\s*:\s*(lower|upper)-(alpha|latin|roman)")
ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl")) + (
    (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip
BLOCK = ("p", "div", "section", "article")


def mark_labels(tree: HTMLTree) -> None:
    """Mark the items of lists that do not count 1, 2, 3."""
    for node in tree.document.query_selector_all("ol")[:]:
        items = [child for child in node.child_nodes[:] if child.tag == "li"]
        kind = _kind(node)
        backwards = node.hasattr("reversed")
        number = _integer(node.getattr("start"), len(items) if backwards else 1)
        if kind == "1" and number == 1 and not backwards and not any(item.hasattr("value") for item in items):
            continue
        for item in items:
            number = _integer(item.getattr("value"), number)
            _put(tree, item, f"{OPEN}{label(number, kind)}.{CLOSE} ")
            number += -1 if backwards else 1


def restore_labels(text: str) -> str:
    """Text with the marked labels in place of the numbers that extraction gave."""
    return SHOWN.sub(r"\1 ", text)


def label(number: int, kind: str) -> str:
    """Give the label of an item: `kind` is an HTML list type (1, a, A, i, I)."""
    if kind in "aA" and number > 0:
        letters = ""
        while number:
            number, rest = divmod(number - 1, 26)
            letters = chr(ord("a") + rest) + letters
        return letters if kind == "a" else letters.upper()
    if kind in "iI" and 0 < number < 4000:
        numerals = ""
        for value, numeral in ROMAN:
            numerals += numeral * (number // value)
            number %= value
        return numerals if kind == "i" else numerals.upper()
    return str(number)


def _kind(node: DOMNode) -> str:
    kind = node.getattr("type") or ""
    if match := STYLE.search(node.getattr("style") or ""):
        kind = "i" if match[2] == "roman" else "a"
        kind = kind.upper() if match[1] == "upper" else kind
    return kind if kind in ("a", "A", "i", "I") else "1"


def _integer(value: str | None, otherwise: int) -> int:
    return int(value) if value and re.fullmatch(r"\s*-?\d{1,6}\s*", value) else otherwise


def _put(tree: HTMLTree, item: DOMNode, text: str) -> None:
    """Put text before the first text of an item, inside the blocks that it begins with."""
    parent = item
    while True:
        first = parent.first_child
        while first is not None and first.tag in ("#text", "#comment") and not first.text.strip():
            first = first.next
        if first is None or first.tag not in BLOCK:
            break
        parent = first
    mark = tree.create_text_node(text)
    if first is None:
        parent.append_child(mark)
    else:
        parent.insert_before(mark, first)
