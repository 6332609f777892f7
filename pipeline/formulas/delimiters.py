"""TeX between delimiters in a page's text: which delimiters the page uses, and one form for all of them.

The page's own configuration decides (MathJax 2 `tex2jax`, MathJax 3 and 4 `tex`, KaTeX auto-render), beside
what needs none: `\\(..\\)`, `\\[..\\]`, `$$..$$`, environments, and the forms of WordPress and Git hosts.
The result has `$..$` for formulas in a line and `$$..$$` for displayed ones. A single `$` counts only where
the page says so, and never as the sign of a currency.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

ENVIRONMENTS = (
    "equation|align|aligned|alignat|alignedat|flalign|gather|gathered|multline|eqnarray|math|displaymath|split|array|"
    "[pbvBV]?matrix|smallmatrix|cases|dcases|subequations|CD|IEEEeqnarray|tikzcd"
)
DEFAULTS = {
    r"\(": (r"\)", False),
    r"\[": (r"\]", True),
    "$$": ("$$", True),
    "$latex ": ("$", False),
    "$`": ("`$", False),
    "```math": ("```", True),
    "[itex]": ("[/itex]", False),
    "[latex]": ("[/latex]", False),
    "[tex]": ("[/tex]", True),
}
LISTS = ("inlineMath", "displayMath", "delimiters")
LIST_START = re.compile(r"[\"']?\s*:\s*")
STRING = r"(?:\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`((?:[^`\\]|\\.)*)`)"
PAIR = re.compile(rf"\[\s*{STRING}\s*,\s*{STRING}\s*\]")
LEFT, RIGHT = (re.compile(rf"[\"']?{side}[\"']?\s*:\s*{STRING}") for side in ("left", "right"))
SHOWN = re.compile(r"[\"']?display[\"']?\s*:\s*(true|!0)")
OBJECT = re.compile(r"\{[^{}]*\}")
MAX_CONFIG = 1500  # characters of a list of delimiters
MAX_LISTS = 20  # of a kind; no page has more in earnest
MAX_FORMULA = 20_000
MAX_WASTE = 2_000_000  # characters looked through in vain; then the rest of a page is left as it is
PRICE = re.compile(r"[\d.,]+(?:[KMB]|bn)?[-–—/,;.)]*\s+[^\W\d_]{2,}")
TEX_SIGN = re.compile(r"[\\^_=<>{}]")
WHOLE = re.compile(r"\s*(\$\$|\$`|\$|\\\(|\\\[)(.*?)(\$\$|`\$|\$|\\\)|\\\])\s*", re.DOTALL)
DISPLAY_OPENERS = ("$$", r"\[")
Pairs = dict[str, tuple[str, bool]]


@dataclass(frozen=True)
class Delimiters:
    """Opening delimiters of a page with (closing one, whether displayed)."""

    pairs: Pairs
    pattern: re.Pattern[str]

    @property
    def first_characters(self) -> str:
        """With which characters delimiters begin: hide these, and no delimiter is found."""
        return "".join(sorted({opening[0] for opening in self.pairs} | {"\\"}))


def page_delimiters(html: str) -> Delimiters:
    """The delimiters that a page declares, and the usual ones."""
    pairs = dict(DEFAULTS)
    for name in LISTS:
        start = html.find(name)
        for _ in range(MAX_LISTS):
            if start < 0:
                break
            if match := LIST_START.match(html, start + len(name)):
                pairs |= _read_list(name, html[match.end() : match.end() + MAX_CONFIG])
            start = html.find(name, start + len(name))
    return _delimiters(tuple(pairs.items()))


@lru_cache(maxsize=1024)
def _delimiters(items: tuple[tuple[str, tuple[str, bool]], ...]) -> Delimiters:
    pairs = dict(items)
    openings = sorted(pairs, key=len, reverse=True)
    pattern = "|".join([r"\\begin\{(?:" + ENVIRONMENTS + r")\*?\}", *map(re.escape, openings), r"\\[\\$]"])
    return Delimiters(pairs, re.compile(pattern))


def _read_list(name: str, script: str) -> Pairs:
    """The pairs of one list in a page's configuration, which `script` begins with."""
    end = _end_of_list(script)
    if name == "delimiters":
        return dict(_read_objects(script[:end]))
    found = {}
    for match in PAIR.finditer(script[:end]):
        strings = [_unquote(part) for part in match.groups() if part is not None]
        if len(strings) == 2 and all(strings):
            found[strings[0]] = (strings[1], name == "displayMath")
    return found


def _read_objects(script: str) -> Iterator[tuple[str, tuple[str, bool]]]:
    for entry in OBJECT.finditer(script):
        left, right = LEFT.search(entry[0]), RIGHT.search(entry[0])
        if left and right:
            opening, closing = (_unquote(next(filter(None, match.groups()), "")) for match in (left, right))
            if opening and closing and not opening.startswith("\\begin"):
                yield opening, (closing, SHOWN.search(entry[0]) is not None)


def _end_of_list(script: str) -> int:
    """Where the bracket closes that `script` begins with; brackets in strings do not count."""
    depth, position = 0, 0
    for match in re.finditer(rf"{STRING}|[\[\]{{}}]", script):
        token = match[0]
        if token in "[{":
            depth += 1
        elif token in "]}":
            depth -= 1
            if depth <= 0:
                return match.end()
        position = match.end()
    return position


def _unquote(string: str) -> str:
    """A JavaScript string literal's value."""
    return re.sub(r"\\(.)", r"\1", string)


def convert(text: str, delimiters: Delimiters) -> str:
    """Text with `$..$` and `$$..$$` around each formula that stands between delimiters of the page."""
    return replace_formulas(text, delimiters, lambda tex, display: f"$${tex}$$" if display else f"${tex}$")


def replace_formulas(text: str, delimiters: Delimiters, form: Callable[[str, bool], str]) -> str:
    """Text with `form(TeX, displayed)` in place of each formula that stands between delimiters."""
    pieces, done, position, waste = [], 0, 0, 0
    while waste < MAX_WASTE and (match := delimiters.pattern.search(text, position)):
        position = match.end()
        found = _formula(text, match, delimiters.pairs)
        if found is None:
            waste += (
                min(MAX_FORMULA, len(text) - position)
                if len(match[0]) > 2 or match[0] in delimiters.pairs
                else 0
            )
        else:
            tex, display, position = found
            pieces += [text[done : match.start()], form(tex, display)]
            done = position
    return "".join([*pieces, text[done:]])


def _formula(text: str, match: re.Match[str], pairs: Pairs) -> tuple[str, bool, int] | None:
    """(TeX, displayed, end) of the formula that an opening delimiter begins, or None if it begins none."""
    opening = match[0]
    if opening.startswith("\\begin"):
        end = _closing(text, match.end(), "\\end" + opening[6:])
        return (text[match.start() : end], True, end) if end else None
    if opening not in pairs:  # an escaped dollar sign, or a line break of TeX
        return None
    closing, display = pairs[opening]
    end = _closing(text, match.end(), closing)
    if not end:
        return None
    tex = text[match.end() : end - len(closing)].strip()
    if not tex or (opening == "$" and _is_currency(tex, text[end : end + 1])):
        return None
    return tex, display, end


def _closing(text: str, start: int, closing: str) -> int:
    """Where the formula from `start` on ends, behind its closing delimiter; 0 if it does not.

    Delimiters in braces do not count, and no formula goes beyond its paragraph or table cell.
    """
    depth = 0
    for token in _closing_pattern(closing).finditer(text, start, start + MAX_FORMULA):
        if token[0] == closing and depth <= 0:
            return token.end()
        if token[0] in ("\n\n", "\t\t"):
            return 0
        depth += (token[0] == "{") - (token[0] == "}")
    return 0


@lru_cache(maxsize=1024)
def _closing_pattern(closing: str) -> re.Pattern[str]:
    return re.compile(re.escape(closing) + r"|\\.|[{}]|\n\n|\t\t", re.DOTALL)


def _is_currency(tex: str, following: str) -> bool:
    """Whether what stands between two dollar signs is a price and the words up to the next price."""
    if r"\(" in tex or r"\[" in tex or "\ue000" in tex:
        return True
    return (following.isdigit() or PRICE.match(tex) is not None) and not TEX_SIGN.search(tex)


def undelimited(text: str) -> tuple[str, bool | None]:
    """(TeX, whether displayed) of an element's text that is one formula; None: no delimiters tell."""
    if (match := WHOLE.fullmatch(text)) and not re.search(r"(?<!\\)\$", match[2]):
        return match[2].strip(), match[1] in DISPLAY_OPENERS
    return text.strip(), None
