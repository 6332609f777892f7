"""Content that Resiliparse would drop: headed sections, folded answers, proofs in an `aside`.

Resiliparse leaves out elements whose `id` has words such as `related` or `share`, and what is hidden.
"""

import re

from resiliparse.parse.html import DOMNode, HTMLTree

HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
SECTION = re.compile(r"(?:^|\s)(?:section|level\d|sect\d)(?:$|\s)")  # Docutils, Pandoc, DocBook
BOILERPLATE = re.compile(r"posts?|articles?|comments?$|news|stories|products|share-this", re.IGNORECASE)
NAME = re.compile(r"[^\W_]{3,}")
KEPT = (
    'h1, h2, h3, h4, h5, h6, [hidden], [aria-hidden="true"], [aria-expanded="false"], aside, [style*="none"]'
)
HIDING = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden)\s*(?:!important)?;?", re.IGNORECASE)
ANSWER = re.compile(
    r"(?:^|[\s_-])(?:answers?|solutions?|soln?|hints?|proofs?|explanations?|reveal|spoiler)(?:$|[\s_\d-])|"
    r"答案|解答|解析|答え",
    re.IGNORECASE,
)
FORMULA = re.compile(
    r"\ue000[0-9]+\ue001|\\\(.*?\\\)|\\\[.*?\\\]|\\begin\{|\$[^$\n]*[\\^_=][^$\n]*\$", re.DOTALL
)
SHORT, MAX_TEXT = 40, 10_000  # characters
STEERING = ("nav", "form", "button", "svg", "i", "a", "input", "label", "script", "style", "template")


def keep_content(tree: HTMLTree) -> None:
    """Take from a page's content what makes Resiliparse drop it; formulas are marks already."""
    for node in tree.body.query_selector_all(KEPT)[:]:
        if node.tag in HEADINGS:
            _keep_section(node)
        elif node.parent is not None and node.tag not in STEERING and _is_content(node):
            _show(tree, node)


def _keep_section(heading: DOMNode) -> None:
    """Remove an `id` that is made from a heading, of the heading and of the section that begins with it."""
    section = heading.parent
    nodes = [heading]
    if section.tag in ("div", "section") and heading.previous_element_sibling is None:
        nodes += [] if BOILERPLATE.search(section.id or "") else [section]
    for node in nodes:
        if (name := node.id) and _is_made_from(name, heading, node.class_name or ""):
            node.delattr("id")


def _is_made_from(name: str, heading: DOMNode, classes: str) -> bool:
    """Whether software made an `id` from a heading: it links to it, or names it in part."""
    if SECTION.search(classes) or f'href="#{name}"' in heading.html:
        return True
    words, text = NAME.findall(name.lower()), heading.text.lower()
    common = sum(word in text for word in words)
    return common > 1 and 2 * common >= len(words)


def _is_content(node: DOMNode) -> bool:
    """Whether a hidden element is an answer, or text with formulas.

    Formulas alone are a page's definitions, or what is drawn beside its reading.
    """
    text = node.text.strip()[:MAX_TEXT]
    if not text or node.tag == "aside" and _links(node) > len(text) / 2:
        return False
    words = FORMULA.sub("", text).strip() if any(sign in text for sign in "\ue000\\$") else text
    if words != text and len(words) > (SHORT if node.tag == "span" else 0):
        return True
    if node.tag == "aside":
        return False
    attributes = [[one.class_name, one.id, one.getattr("aria-label")] for one in (node, node.parent)]
    return ANSWER.search(" ".join(filter(None, [text[:SHORT], *sum(attributes, [])]))) is not None


def _links(node: DOMNode) -> int:
    """Return the length of the text of an element's links."""
    return sum(len(link.text) for link in node.query_selector_all("a")[:])


def _show(tree: HTMLTree, node: DOMNode) -> None:
    for name in ("hidden", "aria-hidden", "aria-expanded", "role"):
        if node.hasattr(name):
            node.delattr(name)
    if style := node.getattr("style"):
        node.setattr("style", HIDING.sub("", style))
    if node.tag == "aside":
        section = tree.create_element("div")
        for child in node.child_nodes[:]:
            section.append_child(child)
        node.parent.replace_child(section, node)
