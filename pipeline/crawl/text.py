"""From the source of a page to its text: main content with formulas as TeX.

Resiliparse parses and extracts. Pages with signs of formulas also go through `formulas` (tier 2), which
writes them as TeX between `$` or `$$`.
"""

import re
from collections import Counter

import numpy as np
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLParserException, HTMLTree
from webformulas.markup import JOINER
from webformulas.page import MathPage, has_formula_text
from webformulas.scripts import mark_plain_html, overlined
from webformulas.signs import Source, formula_words, has_formula_markup

from pipeline.crawl.boilerplate import HEAD, remove_elements, remove_lines
from pipeline.crawl.http_decoding import Unusable
from pipeline.crawl.kept import keep_content
from pipeline.crawl.list_numbers import NUMBERED, mark_labels, restore_labels

MIN_CHARACTERS = 100  # a page with less text is rejected
FEW, LITTLE = 2500, 0.015  # characters of main content, and their share of the source: some may be missing
LOST = 4  # the main content is replaced if the paragraphs are so many times as long
PARAGRAPH = 80  # bytes of UTF-8
SENTENCE_ENDS = tuple(".!?:;,。！？：；，”\"')）…\ue001")
MAX_DEPTH = 512  # of nested elements; extraction time grows with its square
TOO_DEEP = " > ".join(["*"] * MAX_DEPTH)
# Removed from a page nested too deeply: all tags except those of hidden parts, headings, images, formulas.
CONTAINER = re.compile(
    r"</?(?!(?:html|head|title|body|script|style|noscript|template|textarea|p|h[1-6]|pre|br|img|m\w*|"
    r"semantics|annotation)\b)([a-z][\w:-]*)[^<>]*>",
    re.IGNORECASE,
)
IN_LINE = frozenset(
    ("a", "abbr", "b", "big", "code", "em", "font", "i", "q", "s", "small", "span", "strong", "u")
)
RUN = 32  # closing tags of a kind in a row
CLOSING_RUNS = [
    f"</{tag}>{gap}".encode() * RUN
    for tag in ("div", "span", "b", "i", "p", "font", "ul", "table")
    for gap in ("", "\n")
]
LONGEST = max(map(len, CLOSING_RUNS))
# Tags that need more than Resiliparse, found in one search: scripts, and lists with what numbers them.
TAGS = re.compile(r"<(?:/[sS][uU]|[oO][lL]\s[^>]*|[lL][iI] [vV]alue)")
# Resiliparse drops a text node of one character with three bytes of UTF-8 as an icon: Chinese words beside
# formulas, operators. A joiner after it prevents that.
LONE_CHARACTER = re.compile(r">\s*+(?:[\u0800-\ud7ff\uf900-\uffff]|&#?\w{2,8};)(?=\s*+<)")
WORD_FORMULA = re.compile(  # a comment, and the picture of it
    r"<!--\[if gte msEquation \d+\]>((?:[^<]|<(?!!))*+)<!\[endif\]-->"
    r"(?:\s*<!\[if !msEquation\]>.{0,5000}?<!\[endif\]>)?",
    re.DOTALL,
)


def extract(source: Source, min_characters: int, removed: Counter[str] | None = None) -> tuple[str, str]:
    """(title, text) of a page: its main content with paragraphs and lists kept, formulas as TeX.

    Lines that are no content and formulas that cannot be read are left out; `removed` counts them by reason.
    A page with less than `min_characters` of main content is taken whole. Tags of elements nested absurdly
    deep are removed, their text stays. Raises Unusable("too_deep") for formulas nested so deep, and
    Unusable("out_of_memory").
    """
    removed = Counter() if removed is None else removed
    if b"\0" in source.letters:
        source = Source(source.html.replace("\0", ""))
    html = LONE_CHARACTER.sub(lambda lone: lone[0] + JOINER, source.html)
    if "msEquation" in html:
        html = WORD_FORMULA.sub(r"\1", html)
    if html.find("PreTeXt", 0, HEAD) >= 0:
        html = html.replace("theorem-like", "theoremlike")  # a class that Resiliparse takes for a widget
    tree, source = _parse(html), source.with_html(html)
    if _is_deep(tree, source):
        html = CONTAINER.sub(lambda tag: "" if tag[1].lower() in IN_LINE else "<br>", html)
        tree, source = _parse(html), Source(html)
        if _is_deep(tree, source):
            raise Unusable("too_deep")
    if tree.body is None:
        return "", ""
    title = " ".join((tree.title or "").split())
    remove_elements(tree, html)
    words = formula_words(source)
    page = MathPage(tree, source, words) if has_formula_markup(words) else None
    tags = {tag.lower() for tag in TAGS.findall(html)}
    mark_plain_html(tree, source, has_scripts="</su" in tags)
    keep_content(tree)
    labelled = any(map(NUMBERED.match, tags))
    if labelled:
        mark_labels(tree)
    text = _plain_text(tree, html, min_characters)
    if page is None and has_formula_text(text):
        page = MathPage(tree, source, words)
        if page.changed:
            text = _plain_text(tree, html, min_characters)
    if page is not None:
        text = page.restore(text)
        if page.formulas.unread:
            removed["unread formula"] += page.formulas.unread
    text = restore_labels(text) if labelled else text
    return title, clean(remove_lines(overlined(text), removed))


def _parse(html: str) -> HTMLTree:
    try:
        return HTMLTree.parse(html)
    except HTMLParserException as error:  # any HTML can be parsed, with enough memory
        raise Unusable("out_of_memory") from error


def _is_deep(tree: HTMLTree, source: Source) -> bool:
    """Whether elements are nested so deep that extraction would take too long."""
    return _may_be_deep(source) and tree.document.query_selector(TOO_DEEP) is not None


def _may_be_deep(source: Source) -> bool:
    """Whether elements may be nested absurdly deep: many are not closed, or many of a kind close in a row.

    The query on the tree would cost a fifth of extraction. Pages missed here still have their time limit.
    """
    tags, closing = source.tags()
    closed = np.count_nonzero(closing)
    if tags - 2 * closed > MAX_DEPTH or closed <= MAX_DEPTH:
        return tags - 2 * closed > MAX_DEPTH
    places = np.flatnonzero(closing)
    dense = (places[RUN - 1 :] - places[: 1 - RUN] < LONGEST).any()
    return dense and any(run in source.letters for run in CLOSING_RUNS)


def _plain_text(tree: HTMLTree, html: str, min_characters: int) -> str:
    """Extract the main content; the whole page if it has nearly none, its paragraphs if most are missing."""
    text = clean(extract_plain_text(tree, main_content=True))
    if len(text) < min_characters:
        return clean(extract_plain_text(tree))
    if len(text) < FEW and len(text) < LITTLE * len(html):
        paragraphs = clean(_paragraphs(extract_plain_text(tree)))
        return paragraphs if len(paragraphs) > LOST * len(text) else text
    return text


def _paragraphs(text: str) -> str:
    """Keep the paragraphs of a whole page, with the lines beside them: menus have neither."""
    lines = text.split("\n")
    near = {
        place
        for number, line in enumerate(lines)
        if "\t\t" in line or len(line.encode()) >= PARAGRAPH and line.strip()[-1:] in SENTENCE_ENDS
        for place in range(number - 2, number + 3)
    }
    return "\n".join(line for number, line in enumerate(lines) if number in near)


def clean(text: str) -> str:
    """Text without NUL characters, the joiner of `extract`, and white space at both ends."""
    return text.replace("\0", "").replace(JOINER, "").strip()
