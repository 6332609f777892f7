"""Tier 2 of extraction: the text of a page with its formulas as TeX.

Tier 1 is Resiliparse alone. Only pages with signs of formulas in their source or text take tier 2; it would
not change the others. So every stage after the crawl sees formulas, and no page is extracted twice.
"""

import re

from resiliparse.parse.html import DOMNode, HTMLTree

from .delimiters import Delimiters, convert, page_delimiters
from .dom import Formulas, mark_formulas
from .macros import Macros
from .signs import Source

TEXT_SIGNS = (  # each begins with a literal, which is found faster than any of several
    re.compile(r"\\(?:[(\[]|[a-z]+[\s{_^])"),
    re.compile(r"\$[$`]"),
    re.compile("```math"),
    re.compile(r"\[(?i:i?tex|latex|i?math)\]"),
    re.compile(r"\{(?<=[_^]\{)"),
)
CODE = "pre, code, kbd, samp, textarea, .tex2jax_ignore, .mathjax_ignore"
PROCESSED = re.compile(
    r"(?:^|\s)(?!\S*ignore)(?:arithmatex|output_area|\S*(?:math|process)\S*)"
)  # read even inside code and ignored elements
HIDDEN_FROM = 0xE100


def has_formula_text(text: str) -> bool:
    """Whether a page's text has signs of formulas."""
    return any(sign.search(text) for sign in TEXT_SIGNS)


class MathPage:
    """A page whose formulas are marked in its DOM; `restore` puts them into the extracted text."""

    def __init__(self, tree: HTMLTree, source: Source, words: set[str]) -> None:
        self.macros = Macros(source)
        self.formulas = Formulas(self.macros)
        self.delimiters = page_delimiters(source)
        mark_formulas(tree, source, words, self.formulas)
        hidden = self.delimiters.first_characters
        self._hide = {ord(character): HIDDEN_FROM + index for index, character in enumerate(hidden)}
        self._show = {code: character for character, code in self._hide.items()}
        if source.holds("$<code"):
            _mark_code(tree, self.formulas)
        self._hidden = _hide_code(tree, self.delimiters, self._hide)

    @property
    def changed(self) -> bool:
        """Whether the DOM was changed, so that text extracted before is outdated."""
        return self._hidden or bool(self.formulas.found)

    def restore(self, text: str) -> str:
        """Return extracted text with formulas in place of marks and delimited TeX."""
        text = convert(text, self.delimiters, self.macros.expand)
        return self.formulas.restore(text.translate(self._show) if self._hidden else text)


def _mark_code(tree: HTMLTree, formulas: Formulas) -> None:
    """Return the formulas of Git hosts: a code element between dollar signs."""
    for node in tree.document.query_selector_all("code")[:]:
        before, after = node.prev, node.next
        if before is None or after is None or before.tag != "#text" or after.tag != "#text":
            continue
        if before.text.endswith("$") and after.text.startswith("$"):
            tex = node.text
            before.value, after.value = before.text[:-1], after.text[1:]
            node.parent.replace_child(tree.create_text_node(formulas.mark(tex, False)), node)


def _hide_code(tree: HTMLTree, delimiters: Delimiters, hide: dict[int, int]) -> bool:
    """Replace the first characters of delimiters in code elements; returns whether there were any."""
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
