"""TeX in an element's attributes: one rule for all sites, editors and rendering services.

A value is decoded first: percent-encoding, JSON, an address with its path, query and fragment. It is the
formula if it can only be TeX, or if its name says TeX and it may be. An image has its alternative text else.
"""

import json
import re
import unicodedata
from collections.abc import Mapping
from urllib.parse import unquote, unquote_plus

from .delimiters import undelimited
from .symbols import COMMANDS, FUNCTIONS

ENCODED = re.compile(r"(?<!\\)%[0-9A-Fa-f]{2}")
COMMAND = re.compile(r"\\([A-Za-z]+)")
SCRIPT = re.compile(r"[\w)\]}'|]\s?\^\s?[\w{\\(+*-]|\w_\{[^{}]+\}")
TEXT = re.compile(r"\\(?:text\w*|mbox|math(?:rm|it|bf|sf)|operatorname\*?|begin|end|label|tag)\s*\{[^{}]*\}")
PROSE = re.compile(  # two words in a row, a sentence's end, an address, code
    r"[^\W\d_]{2,}['’]?[,;:]?\s+[^\W\d_]{2,}|[，。；？！]|[.?!;]\s+[A-Z]|://|[\"<>]\s*/|\w\(\)|;$"
)
PATH = re.compile(r"^[A-Za-z]:\\|\\\w+\\\w+\.\w{2,4}$|^\.{0,2}/\w|tikz")  # a path, a picture
WORD, SHORT = re.compile(r"[^\W\d_]{3,}"), re.compile(r"[^\W\d_]{2}")
NUMBER = re.compile(r"[\d.,\s]*[KMB]?|[A-Za-z][A-Za-z\d]*\d[A-Za-z\d]*|#\w+|=.*")  # a number, a name, a cell
SIGN, SYMBOL = re.compile(r"[=<>+*/()^_|\\]|\d[.,]\d"), re.compile(r"[^\W\d_]|[=<>+/]")
NAMED = re.compile(
    r"(?:^|[\W_])(?:(?:la|ka)?tex|math|formula|eq|equation|expr)(?:$|[\W_])|expression|texexp", re.IGNORECASE
)
IN_CONTEXT = ("code", "chl", "value", "content", "text")  # names that say TeX if another value does
CONTEXT = re.compile(
    r"(?:^|[\s_-])(?:tx|(?:la|ka)?tex|math(?:tex|jax|editor)?|formula|eq|equation|mwe|ql|texrender)(?:$|[\s_-])",
    re.IGNORECASE,
)
OTHER = re.compile(
    r"(?:on\w+|style|class|id|href|srcset|for|d|pattern|.*(?:clipboard|tooltip|mathml|copy).*)$"
)
DISPLAY = re.compile(r"(?:^|[\s_-])(?:display(?:ed)?|block)(?:$|[\s_-])", re.IGNORECASE)
ADDRESS = re.compile(r"(?:https?:)?//\S|\.{0,2}/\w|[\w./-]+\.\w+\?", re.IGNORECASE)
PARAMETER = re.compile(r"([\w.\[\]-]+)=(.*)", re.DOTALL)
SERVICE = re.compile(r"tex\b|\.(?:latex|image|download)$|math(?:tex|url)|latex2png|texrendr", re.IGNORECASE)
EXTENSION = re.compile(r"\.(?:png|gif|svg|jpe?g|webp)$")
SETTINGS = re.compile(
    r"^(?:\s|\\(?:dpi|bg|fn|color|definecolor)(?:\{[^}]*\}|_\w+|\s+\w+)|"
    r"\\(?:inline|tiny|small|normalsize|large|Large|LARGE|huge|Huge|opaque|reverse|mathsmall)(?![A-Za-z]))+"
)
MAX_VALUE, MAX_NAME = 5000, 100  # characters


def attribute_formula(attributes: Mapping[str, str]) -> tuple[str, bool] | None:
    """(TeX, whether an attribute says that it is displayed) of an element; None for one without a formula."""
    sources = {name: value.strip() for name, value in attributes.items() if not OTHER.match(name)}
    alt = sources.pop("alt", "").removeprefix("LaTeX: ")
    addresses = {name: value for name, value in sources.items() if ADDRESS.match(value)}
    named = {name: value for name, value in sources.items() if NAMED.search(name)}
    about = [attributes[name] for name in attributes.keys() - {"style", "alt"} - addresses.keys()]
    about = [value for value in about if len(value) < MAX_NAME]
    context = any(map(CONTEXT.search, about))
    formulas = (_formula(values, context) for values in (named, addresses, sources, {"alt": alt}))
    tex = next(filter(None, formulas), "")
    if not tex and (CONTEXT.search(attributes.get("class", "")) or undelimited(alt)[1] is not None):
        tex = "" if alt.startswith("{") or len(alt) > MAX_VALUE else alt
    tex, delimited = undelimited(tex)
    display = bool(delimited) or any(DISPLAY.search(value) and "inline" not in value for value in about)
    shown = tex.removesuffix(r"\\").rstrip()  # Zhihu displays what ends with a new line
    return (shown, display or shown != tex) if shown else None


def shows(text: str, tex: str) -> bool:
    """Whether an element's text is nothing but the formula, as drawn from `tex`."""
    plain = unicodedata.normalize("NFKC", text)
    parts = re.findall(r"[A-Za-z]{3,}|[^\W_\u0370-\u03ff]", plain)
    return len(text) < 3 * len(tex) + 20 and all(part in tex for part in parts)


def is_tex(value: str) -> bool:
    """Whether a value can only be TeX, whatever its name is."""
    tex, delimited = undelimited(value)
    bare = COMMAND.sub(r"\\", TEXT.sub(r"\\ ", tex))
    if len(value) > MAX_VALUE or PATH.search(tex) or PROSE.search(bare) or not is_balanced(tex):
        return False
    if delimited is not None:
        return not WORD.search(_plain(tex)) and not NUMBER.fullmatch(tex)
    return any(name in COMMANDS for name in COMMAND.findall(tex)) or SCRIPT.search(tex) is not None


def is_balanced(tex: str) -> bool:
    """Whether each brace of TeX has its partner."""
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", tex):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0


def may_be_tex(value: str) -> bool:
    """Whether the value of something that is named a formula can be one: no word, number or identifier."""
    tex, plain = value.strip(), _plain(value)
    if is_tex(tex):
        return True
    if len(tex) > MAX_NAME or WORD.search(plain) or NUMBER.fullmatch(tex):
        return False
    return (SIGN if SHORT.search(plain) else SYMBOL).search(tex) is not None


def _plain(tex: str) -> str:
    """Return TeX without its commands, the texts in it and names of functions."""
    plain = COMMAND.sub(r"\\ ", TEXT.sub(r"\\ ", tex))
    return WORD.sub(lambda word: "\\" if word[0] in FUNCTIONS else word[0], plain)


def _formula(values: Mapping[str, str], context: bool) -> str:
    """Return the first formula of attributes, an object of JSON or an address's parameters, else nothing."""
    context = context or any(CONTEXT.search(value) for value in values.values() if len(value) < 40)
    for name, value in values.items():
        named = NAMED.search(name) is not None or context and name in IN_CONTEXT
        if tex := _decoded(value, named, context) if len(value) <= 4 * MAX_VALUE else "":
            return SETTINGS.sub("", tex).strip()
    return ""


def _decoded(value: str, named: bool, context: bool) -> str:
    """Return the formula that a value is, or that its JSON or address holds; empty without one."""
    if ADDRESS.match(value):
        return _of_address(value, context)
    value = _unquoted(value.removeprefix("data:"))
    if not value.startswith('{"'):
        return value if (may_be_tex if named else is_tex)(value) else ""
    try:
        entries = json.loads(value)
    except (ValueError, RecursionError):
        return ""
    texts = {name: entry for name, entry in entries.items() if isinstance(entry, str)}
    return _formula(texts, context or named)


def _unquoted(value: str) -> str:
    """Return a value without percent-encoding, which some services apply twice."""
    for _ in range(2):
        value = unquote(value) if ENCODED.search(value) else value
    return value


def _of_address(address: str, context: bool) -> str:
    """Return the formula in the query, the fragment or the path of an address; empty without one."""
    address, _, fragment = address.partition("#")
    path, _, query = address.partition("?")
    for part in filter(None, (query, fragment)):
        pieces = re.split("&(?!space;|plus;)", part)
        pairs = [match.groups() for match in map(PARAMETER.fullmatch, pieces) if match]
        tex = _formula({name: unquote_plus(value) for name, value in pairs}, context)
        if len(pairs) < len(pieces) or "\\" in part and not any(NAMED.search(name) for name, _ in pairs):
            whole = SETTINGS.sub("", _unquoted(part.replace("&space;", " ").replace("&plus;", "+")))
            tex = whole if (may_be_tex if SERVICE.search(path) else is_tex)(whole) else tex
        if tex:
            return tex
    segments = path.split("/")
    for number, segment in enumerate(segments):
        named = NAMED.search(segments[number - 1]) is not None
        if "%" in segment and (named or re.search(r"[\\^{]", _unquoted(segment))):
            tex = _unquoted(EXTENSION.sub("", "/".join(segments[number:])))
            return tex if (may_be_tex if named else is_tex)(tex) else ""
    return ""
