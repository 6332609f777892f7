"""Superscripts, subscripts, overlines and roots of plain HTML: `10<sup>8</sup>` is 10^8, not 108.

Extraction to text drops these tags, which makes wrong mathematics. Footnote marks, ordinals and trade marks
stay as they are. What a superscript is, is judged by its text and by the text before it.
"""

import re
from itertools import islice

from resiliparse.parse.html import DOMNode, HTMLTree

from .drawn import MAX_TEXT, SELECTOR, table_to_tex
from .katex import html_to_tex
from .markup import JOINER, PLAIN_MARKUP
from .signs import Source
from .tables import read_table

IN_LINE = frozenset(("i", "em", "b", "strong", "var", "span", "font", "u", "small", "nobr", "big", "a", "tt"))
NOTE_CLASS = re.compile(r"ref(?:erence)?|foot|fn|cite|note", re.IGNORECASE)
NOTE = re.compile(r"\d{1,3}(?:\s*[,–-]\s*\d{1,3})*|[a-h]|[*†‡§¶]+")  # could be a footnote's mark
SIGN = re.compile(r"[*†‡§¶#]+|™|℠|®|©|TM|SM|\(?[RC]\)|\(TM\)")
ORDINAL = re.compile(r"st|nd|rd|th|ers?|i?[eè]res?|i?[eè]mes?|ndes?|lles?|mes?|ths", re.IGNORECASE)
ROMANCE_ORDINAL = re.compile(r"[eoaºª]s?|r[oa]s?|n?d[oa]|t[oa]|[nm]o|gr|d|r|er|re", re.IGNORECASE)
ROMANCE = re.compile(r"<html[^>]{0,200}\slang=[\"']?(?:fr|es|pt|it|ca|gl|ro)\b", re.IGNORECASE)
ROMAN_NUMBER = re.compile(r"(?<![A-Za-z])[IVXLC]+$")
YEAR = re.compile(r"[^\s\d.,=+*/×·(^-]\s(?:1[5-9]|20)\d\d$")
LETTERS = re.compile(r"[^\W\d_]+$")
WORD = re.compile(r"[^\W\d_]{3,}")
HAN = re.compile("[\u2e80-\u9fff\uac00-\ud7af]")
GREEK = re.compile("[\u0370-\u03ff\u1f00-\u1fff]")
WORDS = read_table("scripts")
TERMS, SHORT_WORDS = (frozenset(WORDS[name].split()) for name in ("terms", "short_words"))
STYLED = re.compile(r"vertical-align:\s*(super|sub)\b")
FRACTIONS = (  # (what the source holds, the fraction's selector, those of its halves)
    ("sfrac", ".sfrac", ".num", ".den"),
    ("intbl", ".intbl", "em", "strong"),
    ('"fraction', ".fraction", ".top, .numerator", ".bottom, .denominator"),
)
DRAWN = (("dcell", 0), ("hbar", 0), ("hrcomp", 0), ("border-bottom", 7), ('"+3"', 0))  # signs of drawn tables
MAX_HALF = 60  # characters of one half of a drawn fraction
MAX_SCRIPT = 40  # characters
MAX_BEFORE = 60
NO_BASE = ".,;:!?\"“”'‘%。，；：！？、-–—([{="  # no script follows these
OVERLINED_CLASS = re.compile(r"\.([\w-]+)\s*\{[^{}]*text-decoration(?:-line)?\s*:\s*$")
MAX_RULES = 20
MAX_RULE = 200  # characters of a style rule before the word
OVERLINE_SELECTOR = '[style*="overline"], span.overline'
BORDER_SELECTOR = '[style*="border-top"]'
ROOTS = {"√": "", "∛": "[3]", "∜": "[4]"}  # and their degrees
ROOT_SIGNS = (*ROOTS, "&radic", "&Sqrt", "&#8730", "&#x221A", "&#x221a")
RAISED = re.compile(r"margin[\w-]*:[^;]*-")  # a degree moved over its root sign
MAX_RADICAND = 200  # characters
SYMBOL_SELECTOR = '[face*="ymbol"], [style*="ymbol"]'
SYMBOL_FONT = re.compile(r"(?:^|font-family\s*:|\d\w+)\s*[\"']?symbol[\"']?\s*(?:[,;]|$)", re.IGNORECASE)
BEFORE_FONT = re.compile(rb"(?:face\s*=|font[\w-]*\s*:)[^;>]*$", re.IGNORECASE)
REACH, MAX_WORDS = 40, 200  # bytes before the font's name; names that are looked at
LETTERS_OF_ITS_OWN = re.compile("[\u0370-\u03ff\u2190-\u22ff]")
FONT = read_table("symbol_font")
SYMBOLS_SHOWN = str.maketrans(FONT["letters"] + FONT["ascii"], FONT["greek"] + FONT["signs"])
SYMBOLS_SHOWN |= {0xA1 + place: sign for place, sign in enumerate(FONT["latin"])}
SYMBOLS_SHOWN |= {0xF000 + code: sign for code, sign in SYMBOLS_SHOWN.items()}  # as Word writes them
OVERLINED = re.compile(r"[\w.]{1,20}")
NUMBER_END = re.compile(r"\d[\d,]*\.\d*$|\d+$")
COMBINING = re.compile("((?:\\d{0,9}\\.)?\\d{0,9})((?:\\w[\u0304\u0305])+)")


def mark_plain_html(tree: HTMLTree, source: Source, has_scripts: bool) -> None:
    """Write scripts, fractions, lines and the font Symbol of plain HTML as TeX into a page's text nodes;
    `has_scripts`: whether there are elements `sub` or `sup`.
    """
    replace_symbol_font(tree, source)
    if has_lines(source):
        mark_lines(tree, source.html)
    mark_fractions(tree, source)
    styled = STYLED.search(source.html) is not None
    if styled:
        raise_styled(tree)
    if has_scripts or styled:
        mark_scripts(tree, source.html)


def mark_scripts(tree: HTMLTree, html: str) -> None:
    """Write superscripts as `^`, subscripts as `_` into a page's text nodes."""
    romance = ROMANCE.search(html[:5000]) is not None
    for node in tree.body.query_selector_all("sup, sub")[::-1]:  # inner ones first
        if node.parent is not None and (text := _script(node, romance)) is not None:
            node.parent.replace_child(tree.create_text_node(text), node)


def raise_styled(tree: HTMLTree) -> None:
    """Make elements that a style raises or lowers superscripts and subscripts."""
    for node in tree.body.query_selector_all('[style*="vertical-align"]')[:]:
        if (found := STYLED.search(_style(node))) and node.tag in IN_LINE and node.parent is not None:
            script = tree.create_element("sup" if found[1] == "super" else "sub")
            script.append_child(tree.create_text_node(node.text))
            node.parent.replace_child(script, node)


def mark_fractions(tree: HTMLTree, source: Source) -> None:
    """Write fractions that a page draws with elements over each other as `\\frac`."""
    for sign, selector, *halves in FRACTIONS:
        for node in tree.body.query_selector_all(selector)[:] if source.holds(sign) else ():
            parts = [part for half in halves if (part := node.query_selector(half)) is not None]
            if len(parts) == 2 and node.parent is not None and (tex := _fraction(*parts)):
                node.parent.replace_child(tree.create_text_node(f"${tex}$"), node)
    if not any(source.holds(sign, rare) for sign, rare in DRAWN):
        return
    for part in tree.body.query_selector_all(SELECTOR)[:]:
        table = _outermost(part)
        if table is not None and table.parent is not None and (tex := table_to_tex(table.html)):
            table.parent.replace_child(tree.create_text_node(f"$${tex}$$"), table)


def _outermost(part: DOMNode) -> DOMNode | None:
    """Return the outermost table around a part that holds no more than a formula."""
    table, node = None, part.parent
    while node is not None and len(node.text) <= MAX_TEXT and node.tag != "body":
        table = node if node.tag == "table" else table
        node = node.parent
    return table


def _fraction(upper: DOMNode, lower: DOMNode) -> str:
    """Return the TeX of a fraction; empty unless both halves are short and in plain markup."""
    for half in (upper, lower):
        plain = all(child.tag in PLAIN_MARKUP for child in half.query_selector_all("*")[:])
        if not plain or not half.text.strip() or len(half.text) > MAX_HALF or "\ue000" in half.text:
            return ""
    return f"\\frac{{{html_to_tex(upper.html)}}}{{{html_to_tex(lower.html)}}}"


def _script(node: DOMNode, romance: bool) -> str | None:
    """Return the text that replaces a script; None for one that stays."""
    text = " ".join(node.text.replace(JOINER, "").split())
    if not text or len(text) > MAX_SCRIPT or "\ue000" in text:
        return None
    before, after = _text_before(node), _text_after(node)
    if node.tag == "sub":
        upper = node.prev and node.prev.prev
        slash = before.endswith("⁄") or before.endswith("/") and text.isdigit()
        if slash and upper is not None and upper.tag == "sup":
            return text  # the lower half of a fraction
        return f"_{_group(text, after)}" if _is_base(before) and not WORD.search(text[24:]) else None
    if _is_note(node, text):
        return None
    if text.isdigit() and _lower_half(node):
        return f" {text}" if before[-1:].isdigit() else text
    if not _is_base(before):
        symbol = re.match(r"[A-Z][a-z]?(?![a-z])", after)
        return f"^{_group(text)}" if symbol and text.isdigit() and int(text) > 2 else None  # an isotope
    return superscript(before, text, after, romance)


def superscript(before: str, text: str, after: str, romance: bool) -> str | None:
    """Write a superscript between two texts as a power, a prime or a degree; None if it is text."""
    if text in ("'", "''", "′", "″", "’"):
        return text + JOINER
    last, letters = before[-1], LETTERS.search(before)
    word = letters[0] if letters else ""
    one = len(word) == 1
    if text in ("o", "°", "º") and last.isdigit() and not romance:
        return "°"
    if SIGN.fullmatch(text):
        return f"^{text}" if text == "*" and one and not HAN.match(word) else None
    roman = ROMAN_NUMBER.search(before) is not None
    if ORDINAL.fullmatch(text) and (last.isdigit() or word in "nkijmNM)" or roman or romance):
        return None
    if romance and ROMANCE_ORDINAL.fullmatch(text) or text == "e" and len(word) > 1 and roman:
        return None
    if text[0] == "[" or (text[0] == "(" and not one) or (WORD.search(text) and not one and last != "e"):
        return None
    if (NOTE.fullmatch(text) or text in ("n", "i")) and not _is_quantity(before, word):
        return None
    return f"^{_group(text, after)}"


def _is_quantity(before: str, word: str) -> bool:
    """Whether text ends with what can have a power, rather than a footnote."""
    if not word:
        if before[-1] in ")]}|":
            inside = before[max(before.rfind("("), before.rfind("["), before.rfind("{")) + 1 : -1]
            return all(found.lower() in TERMS for found in WORD.findall(inside))
        return not YEAR.search(before)
    if HAN.search(word):
        return word in ("米", "秒")
    if GREEK.search(word) or word.lower() in TERMS or before[-len(word) - 1 : -len(word)].isdigit():
        return True
    return len(word) == 1 or (len(word) == 2 and word.lower() not in SHORT_WORDS)


def _is_base(before: str) -> bool:
    """Whether text ends with something that can carry a script."""
    return bool(before) and not before[-1].isspace() and before[-1] not in NO_BASE


def _group(text: str, after: str = "") -> str:
    """Put braces around a script: of several characters, or of one that the text after it would lengthen."""
    longer = text[-1].isdigit() and after[:1].isdigit() or text[-1].isalpha() and after[:1].isalpha()
    return text if len(text) == 1 and not longer else f"{{{text}}}"


def _is_note(node: DOMNode, text: str) -> bool:
    """Whether a superscript is a link or is marked as a footnote."""
    around = node.parent
    if around.tag == "a" and " ".join(around.text.split()) == text or node.query_selector("a") is not None:
        return True
    return NOTE_CLASS.search(f"{node.class_name or ''} {node.id or ''}") is not None


def _lower_half(node: DOMNode) -> bool:
    """Whether a fraction's slash and lower half follow: `<sup>1</sup>/<sub>2</sub>`."""
    slash = node.next
    if slash is None or slash.text.replace(JOINER, "").strip() not in ("/", "⁄"):
        return False
    lower = slash.next
    return lower is not None and (lower.tag == "sub" or lower.text.isdigit())


def _text_before(node: DOMNode) -> str:
    """Return the end of the text before a node in its line; scripts of the other kind are passed over."""
    previous, parent = node.prev, node.parent
    for _ in range(12):
        if previous is None:
            if parent is None or parent.tag not in IN_LINE:
                return ""
            previous, parent = parent.prev, parent.parent
        elif previous.tag == "#text" or previous.tag in IN_LINE or previous.tag in ("code", "abbr", "mark"):
            if text := previous.text.replace(JOINER, ""):
                return text[-MAX_BEFORE:]
            previous = previous.prev
        elif previous.tag in ("sub", "sup") and previous.tag != node.tag or previous.tag == "#comment":
            previous = previous.prev
        else:
            return ""
    return ""


def _text_after(node: DOMNode) -> str:
    """Return the beginning of the text after a node in its line."""
    following, parent = node.next, node.parent
    while following is None and parent is not None and parent.tag in IN_LINE:
        following, parent = parent.next, parent.parent
    inside = following is not None and following.tag in ("#text", *IN_LINE)
    return following.text.lstrip(JOINER)[:4] if inside else ""


def replace_symbol_font(tree: HTMLTree, source: Source) -> None:
    """Write text in the font Symbol as the Greek letters and signs that it shows."""
    if not _has_symbol_font(source.letters):
        return
    for node in tree.body.query_selector_all(SYMBOL_SELECTOR)[:]:
        fonts = (node.getattr("face") or "", _style(node))
        if any(map(SYMBOL_FONT.search, fonts)) and not LETTERS_OF_ITS_OWN.search(node.text):
            _translate(node)


def _has_symbol_font(letters: bytes) -> bool:
    places = islice((match.start() for match in re.finditer(b"ymbol", letters)), MAX_WORDS)
    return any(BEFORE_FONT.search(letters, max(0, place - REACH), place) for place in places)


def _translate(node: DOMNode) -> None:
    for child in node.child_nodes[:]:
        if child.tag == "#text":
            child.value = child.text.translate(SYMBOLS_SHOWN) + JOINER
        else:
            _translate(child)


def has_lines(source: Source) -> bool:
    """Whether a page may have lines over formulas: overlines, or borders of what is below a root."""
    overlines = b"overline" in source.letters
    return overlines or b"border-top" in source.letters and any(sign in source.html for sign in ROOT_SIGNS)


def mark_lines(tree: HTMLTree, html: str) -> None:
    """Write overlines of a page's styles as `\\overline`, after a root sign as `\\sqrt`, into its text."""
    selectors = [] if "border-top" not in html else [BORDER_SELECTOR]
    for place in islice(re.finditer("overline", html), MAX_RULES):
        before = html[max(0, place.start() - MAX_RULE) : place.start()]
        if match := OVERLINED_CLASS.search(before):
            selectors.append(f".{match[1]}")
        if "style=" in before[-60:] or before.endswith(('class="', "class='", "class=")):
            selectors.append(OVERLINE_SELECTOR)
    for node in tree.document.query_selector_all(", ".join(dict.fromkeys(selectors)))[:] if selectors else ():
        if node.parent is not None and (tex := _root(node) or _overline(node)):
            node.parent.replace_child(tree.create_text_node(f"${tex}$"), node)


def _root(node: DOMNode) -> str:
    """Return the TeX of the root of a lined element, and remove its sign; empty if there is no root sign."""
    sign = node.prev
    before = sign.text.replace(JOINER, "").rstrip() if sign is not None else ""
    text = node.text.strip()
    if not before or before[-1] not in ROOTS or not text or len(text) > MAX_RADICAND or "\ue000" in text:
        return ""
    if sign.tag != "#text" and before not in ROOTS:
        return ""
    if not all(child.tag in PLAIN_MARKUP for child in node.query_selector_all("*")[:]):
        return ""
    degree, higher = ROOTS[before[-1]], sign.prev
    if before in ROOTS and higher is not None and higher.tag == "sup" and RAISED.search(_style(higher)):
        degree = f"[{higher.text.strip()}]"
        higher.decompose()
    if sign.tag == "#text":
        sign.value = before[:-1]
    else:
        sign.decompose()
    return f"\\sqrt{degree}{{{html_to_tex(node.html)}}}"


def _overline(node: DOMNode) -> str:
    """Return the TeX of an overlined element, and of the digits before it, which go; empty for text."""
    text = node.text.strip()
    style = _style(node)
    if not OVERLINED.fullmatch(text) or ("border-top" in style and "overline" not in style):
        return ""
    before, digits = node.prev, ""
    digital = text[0].isdigit() and before is not None and before.tag == "#text"
    if digital and (match := NUMBER_END.search(before.text)):
        digits = match[0]
        before.value = before.text[: match.start()]
    return f"{digits}\\overline{{{text}}}"


def _style(node: DOMNode) -> str:
    return node.getattr("style") or ""


def overlined(text: str) -> str:
    """Text with combining overlines, as in 0.3̅, written as TeX."""
    if "\u0305" not in text:
        return text
    return COMBINING.sub(_combined, text)


def _combined(match: re.Match[str]) -> str:
    letters = re.sub("[\u0304\u0305]", "", match[2])
    return f"${match[1]}\\overline{{{letters}}}$" if "\u0305" in match[2] else match[0]
