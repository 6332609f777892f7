"""From the decoded body of a page to its text: character set, main content with formulas as TeX.

Resiliparse parses and extracts. Pages with signs of formulas also go through `formulas` (tier 2), which
writes them as TeX between `$` or `$$`.
"""

import codecs
import re

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5
from resiliparse.parse.html import HTMLParserException, HTMLTree

from pipeline.crawl.bodies import Unusable
from pipeline.formulas.markup import JOINER
from pipeline.formulas.page import MathPage, has_formula_markup, has_formula_text

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
CLOSING_RUNS = [
    f"</{tag}>{gap}" * 32
    for tag in ("div", "span", "b", "i", "p", "font", "ul", "table")
    for gap in ("", "\n")
]
SNIFF_BYTES = 4096
HTML_TYPES = ("text/html", "application/xhtml+xml")
HTML_START = re.compile(rb"<(?:!doctype\s+html|html|head|body|title|div|table|p|h1)\b", re.IGNORECASE)
META_CHARSET = re.compile(rb"charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]+)", re.IGNORECASE)
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Resiliparse drops a text node of one character with three bytes of UTF-8 as an icon: Chinese words beside
# formulas, operators. A joiner after it prevents that.
LONE_CHARACTER = re.compile(r">(\s*+(?:[\u0800-\ud7ff\uf900-\uffff]|&#?\w{2,8};))(?=\s*+<)")


def is_html(content_type: str, body: bytes) -> bool:
    """Whether the declared type is HTML or, if none is declared, the body begins like HTML."""
    if content_type:
        return content_type in HTML_TYPES
    return HTML_START.search(body[:SNIFF_BYTES]) is not None


def decode_text(body: bytes, declared: str | None) -> tuple[str, str]:
    """(text, charset) of a body.

    Tried in this order: byte order mark; UTF-8 (a wrong `meta` is common, valid UTF-8 by accident is rare);
    HTTP header; `meta`; detection. The first that decodes without error wins, else the first known one with
    replacement characters. A character truncated at the end is dropped.
    """
    for mark, charset in BYTE_ORDER_MARKS:
        if body.startswith(mark):
            return body.decode(charset, "replace"), charset.removesuffix("-sig")
    candidates = [declared, _meta_charset(body)]
    if body.isascii() and not any(
        name and name.lower().startswith(("iso-2022", "hz", "utf-16")) for name in candidates
    ):
        return body.decode("ascii"), "utf-8"
    known = ["utf-8", *(map_encoding_to_html5(name, fallback_utf8=False) for name in candidates if name)]
    for name in (*known, ""):
        charset = name if name != "" else detect_encoding(body)  # slow: only where nothing else fits
        if charset and (text := _decode_exactly(body, charset)) is not None:
            return text, charset
    charset = next((name for name in known[1:] if name), None) or detect_encoding(body) or "utf-8"
    return bytes_to_str(body, charset, errors="replace", fallback_encodings=()), charset


def _decode_exactly(body: bytes, charset: str) -> str | None:
    """The text, or None if the bytes are invalid in that charset."""
    name = "gb18030" if charset in ("gbk", "gb2312") else charset  # the superset, as browsers do
    try:
        return codecs.getincrementaldecoder(name)().decode(body)
    except (UnicodeError, LookupError):
        return None


def _meta_charset(body: bytes) -> str | None:
    match = META_CHARSET.search(body[:SNIFF_BYTES])
    return match[1].decode("ascii") if match else None


def extract(html: str, min_characters: int) -> tuple[str, str]:
    """(title, text) of a page: its main content with paragraphs and lists kept, formulas as TeX.

    A page with less than `min_characters` of main content is taken whole. Tags of elements nested absurdly
    deep are removed, their text stays. Raises Unusable("too_deep") for formulas nested so deep, and
    Unusable("out_of_memory").
    """
    html = LONE_CHARACTER.sub(rf">\1{JOINER}", html.replace("\0", "") if "\0" in html else html)
    tree = _parse(html)
    if _is_deep(tree, html):
        html = CONTAINER.sub(lambda tag: "" if tag[1].lower() in IN_LINE else "<br>", html)
        tree = _parse(html)
        if _is_deep(tree, html):
            raise Unusable("too_deep")
    if tree.body is None:
        return "", ""
    title = " ".join((tree.title or "").split())
    page = MathPage(tree, html) if has_formula_markup(html) else None
    text = _plain_text(tree, min_characters)
    if page is None and has_formula_text(text):
        page = MathPage(tree, html)
        if page.changed:
            text = _plain_text(tree, min_characters)
    return title, page.restore(text) if page is not None else text


def _parse(html: str) -> HTMLTree:
    try:
        return HTMLTree.parse(html)
    except HTMLParserException as error:  # any HTML can be parsed, with enough memory
        raise Unusable("out_of_memory") from error


def _is_deep(tree: HTMLTree, html: str) -> bool:
    """Whether elements are nested so deep that extraction would take too long."""
    return _may_be_deep(html) and tree.document.query_selector(TOO_DEEP) is not None


def _may_be_deep(html: str) -> bool:
    """Whether elements may be nested absurdly deep: many are not closed, or many of a kind close in a row.

    The query on the tree would cost a fifth of extraction. Pages missed here still have their time limit.
    """
    tags, closing = html.count("<"), html.count("</")
    return tags - 2 * closing > MAX_DEPTH or (
        closing > MAX_DEPTH and any(run in html for run in CLOSING_RUNS)
    )


def _plain_text(tree: HTMLTree, min_characters: int) -> str:
    text = clean(extract_plain_text(tree, main_content=True))
    if len(text) < min_characters:
        text = clean(extract_plain_text(tree))
    return text


def clean(text: str) -> str:
    """Text without NUL characters, the joiner of `extract`, and white space at both ends."""
    return text.replace("\0", "").replace(JOINER, "").strip()
