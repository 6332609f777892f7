"""TeX of formula images: from the address of a rendering service, or from the alternative text."""

import json
import re
from collections.abc import Callable
from urllib.parse import unquote, unquote_plus

from .delimiters import undelimited

QUERY_SERVICES = re.compile(
    r"(?:latex\.php\?(?:[^#]*&)?latex|chart\?(?=[^#]*cht=tx)(?:[^#]*?&)?chl|/render/math\?(?:[^#]*&)?math|"
    r"/equation\?(?:[^#]*&)?tex|math\.now\.sh/?\?(?:[^#]*&)?(?:from|inline)|"
    r"(?:tex|latex|math|formula|equation)[\w.-]*/?\?(?:[^#]*&)?(?:latex|tex|math|formula|eq|equation|expression))"
    r"=([^&#]+)",
    re.IGNORECASE,
)
BARE_SERVICES = re.compile(
    r"(?:(?:gif|png|svg|pdf|swf)\.(?:latex|image|download)|math(?:tex|url)[\w.]*(?:\.cgi)?(?:/render\.cgi)?|"
    r"mimetex(?:\.cgi)?|latex\.codecogs\.com/[\w.]+|texrendr|latex2png|texvc)\?(.+)|"
    r"(?:upmath\.me|tex\.s2cms\.ru)/(?:svg|png)/(.+)",
    re.IGNORECASE | re.DOTALL,
)
SETTINGS = re.compile(
    r"^(?:\s|\\(?:dpi|bg|fn|color|definecolor)(?:\{[^}]*\}|_\w+|\s+\w+)|"
    r"\\(?:inline|tiny|small|normalsize|large|Large|LARGE|huge|Huge|opaque|reverse|mathsmall)(?![A-Za-z]))+"
)
TEX_CLASS = re.compile(
    r"(?:^|[\s_-])(?:tex|latex|math|formula|eq|equation|mwe|ql|mathtex|katex|mathjax|texrender)(?:$|[\s_-])",
    re.IGNORECASE,
)
DISPLAY_CLASS = re.compile(r"display|block|ql-img-displayed", re.IGNORECASE)
TEX_ALT = re.compile(r"\\[A-Za-z]{2,}|\\[{}\\,;]|[\w)\]}][\^_]\{|\^[\w\\]")
PATH = re.compile(r"[A-Za-z]:\\|\\\w+\\\w+\.\w{2,4}$")
SOURCE_ATTRIBUTES = ("data-equation-content", "data-latex", "data-tex", "data-formula")


def image_tex(attribute: Callable[[str], str]) -> tuple[str, bool] | None:
    """(TeX, whether the image is marked as displayed), or None for an image that is no formula; `attribute`
    gives the value of the attribute of a name, empty without it.
    """
    alt, classes, number = attribute("alt").strip(), attribute("class"), attribute("eeimg")
    display = DISPLAY_CLASS.search(classes) is not None or number == "2"
    for name in SOURCE_ATTRIBUTES:
        if source := attribute(name):
            return _undelimited(unquote(source), display)
    if number and alt:
        return _undelimited(alt.removesuffix(r"\\"), display or alt.endswith(r"\\"))
    for name in ("src", "data-src"):  # before a lazy image is loaded, the second
        if tex := _address_tex(attribute(name)):
            return _undelimited(tex, display)
    if alt.startswith('{"') and (code := _editor_code(alt)):
        return _undelimited(code, display)
    if not alt or len(alt) > 5000 or PATH.search(alt):
        return None
    delimited = TEX_CLASS.search(classes) or undelimited(alt)[1] is not None
    known = delimited or (TEX_ALT.search(alt) and not _is_prose(alt))
    return _undelimited(alt, display) if known else None


def _address_tex(source: str) -> str:
    if match := QUERY_SERVICES.search(source):
        return _clean(unquote_plus(match[1]))
    if match := BARE_SERVICES.search(source):
        return _clean(unquote(match[1] or match[2]).replace("&space;", " ").replace("&plus;", "+"))
    return ""


def _editor_code(alt: str) -> str:
    """Return the TeX that an editor of formulas keeps as JSON in the alternative text."""
    try:
        code = json.loads(alt).get("code")
    except (ValueError, RecursionError):
        return ""
    return code if isinstance(code, str) else ""


def _clean(tex: str) -> str:
    """TeX without the settings of the rendering service."""
    return SETTINGS.sub("", tex).replace("&space;", " ").strip()


def _is_prose(alt: str) -> bool:
    """Whether a text is a sentence that only mentions TeX."""
    plain = re.sub(r"\\text\w*\{[^}]*\}|\\[A-Za-z]+", " ", alt)
    return len(re.findall(r"(?<![\\{])\b[A-Za-z]{3,}\b", plain)) > 4


def _undelimited(tex: str, display: bool) -> tuple[str, bool] | None:
    tex, delimited = undelimited(tex)
    tex = SETTINGS.sub("", tex).strip()
    return (tex, display or bool(delimited)) if tex else None
