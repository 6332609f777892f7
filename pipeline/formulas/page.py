"""Tier 2 of extraction: the text of a page with all of its formulas as TeX.

Tier 1 is Resiliparse alone. Only a page in whose source or text something points at formulas goes through
this; all others would come out the same. So the pages that are kept as mathematical have their formulas in
every later step, and none is read a second time.
"""

import re

from resiliparse.parse.html import DOMNode, HTMLTree

from pipeline.formulas.delimiters import Delimiters, convert, page_delimiters
from pipeline.formulas.dom import Formulas, mark_formulas

SIGNS = (  # each begins with letters, which a search can look for; faster than a string at a time
    re.compile("athJax"),
    re.compile(r"tex(?:=|\.cgi|html|(?<=[lk]atex)|(?<=data-tex)|(?<=class=\"tex)\")"),
    re.compile(r"math(?:[ /?\"-]|url|(?<=[<:]math))"),
    re.compile("ql-formula"),
    re.compile("cht=tx"),
)
TEXT_SIGN = re.compile(r"\\[(\[]|\\begin\{|\$\$|\$`|```math|\[(?:i?tex|latex)\]|\\[a-z]+[\s{_^]|[_^]\{")
CODE = "pre, code, kbd, samp, textarea, .tex2jax_ignore, .mathjax_ignore"
PROCESSED = re.compile(
    r"(?:^|\s)(?:math|arithmatex|output_area|math-container|\w+_process)(?:$|\s)"
)  # formulas after all
HIDDEN_FROM = 0xE100


def has_formula_markup(html: str) -> bool:
    """Whether something in a page's source points at formulas."""
    return any(sign.search(html) for sign in SIGNS)


def has_formula_text(text: str) -> bool:
    """Whether something in a page's text points at formulas."""
    return TEXT_SIGN.search(text) is not None


class MathPage:
    """A page whose formulas are marked in its DOM; `restore` puts them into the extracted text."""

    def __init__(self, tree: HTMLTree, html: str) -> None:
        self.formulas = Formulas()
        self.delimiters = page_delimiters(html)
        mark_formulas(tree, html, self.formulas)
        hidden = self.delimiters.first_characters
        self._hide = {ord(character): HIDDEN_FROM + index for index, character in enumerate(hidden)}
        self._show = {code: character for character, code in self._hide.items()}
        if "$<code" in html:
            _mark_code(tree, self.formulas)
        self._hidden = _hide_code(tree, self.delimiters, self._hide)

    @property
    def changed(self) -> bool:
        """Whether the DOM is another one now, so that text extracted before is of no use."""
        return self._hidden or bool(self.formulas.found)

    def restore(self, text: str) -> str:
        """Extracted text with formulas in place of marks and of what stands between delimiters."""
        text = convert(text, self.delimiters)
        return self.formulas.restore(text.translate(self._show) if self._hidden else text)


def _mark_code(tree: HTMLTree, formulas: Formulas) -> None:
    """The formulas of Git hosts: a code element between dollar signs."""
    for node in tree.document.query_selector_all("code")[:]:
        before, after = node.prev, node.next
        if before is None or after is None or before.tag != "#text" or after.tag != "#text":
            continue
        if before.text.endswith("$") and after.text.startswith("$"):
            tex = node.text
            before.value, after.value = before.text[:-1], after.text[1:]
            node.parent.replace_child(tree.create_text_node(formulas.mark(tex, False)), node)


def _hide_code(tree: HTMLTree, delimiters: Delimiters, hide: dict[int, int]) -> bool:
    """Change the characters that begin delimiters where the page shows code; whether there were any."""
    hidden = False
    for node in tree.document.query_selector_all(CODE)[:]:
        if node.tag not in ("body", "html", "main", "article") and delimiters.pattern.search(node.text):
            _hide_text(node, hide)
            hidden = True
    return hidden


def _hide_text(node: DOMNode, hide: dict[int, int]) -> None:
    for child in node.child_nodes[:]:
        if child.tag == "#text":
            child.value = child.text.translate(hide)
        elif not PROCESSED.search(child.class_name or ""):
            _hide_text(child, hide)
