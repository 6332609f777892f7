"""TeX between delimiters in a page's text: find the page's delimiters, rewrite them as `$..$` and `$$..$$`.

The page's configuration is read (MathJax 2 `tex2jax`, MathJax 3 and 4 `tex`, KaTeX auto-render); delimiters
that need none are `\\(..\\)`, `\\[..\\]`, `$$..$$`, environments, and those of WordPress and Git hosts.
A single `$` counts if the page declares it and it is no currency sign, or if it can only enclose TeX.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from .signs import Source

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
    "[math]": ("[/math]", True),
    "[imath]": ("[/imath]", False),
    "[mathjaxinline]": ("[/mathjaxinline]", False),
    "[mathjax]": ("[/mathjax]", True),
}
DEFAULTS |= {
    opening.upper(): (closing.upper(), shown)
    for opening, (closing, shown) in DEFAULTS.items()
    if "]" in closing
}
UNDECLARED = {"$": ("$", False)}
LISTS = {"inlineMath": 3, "displayMath": 4, "delimiters": 1}  # and where rare letters begin in the names
LIST_START = re.compile(r"[\"']?\s*:\s*")
STRING = r"(?:\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`((?:[^`\\]|\\.)*)`)"
PAIR = re.compile(rf"\[\s*{STRING}\s*,\s*{STRING}\s*\]")
LEFT, RIGHT = (re.compile(rf"[\"']?{side}[\"']?\s*:\s*{STRING}") for side in ("left", "right"))
SHOWN = re.compile(r"[\"']?display[\"']?\s*:\s*(true|!0)")
OBJECT = re.compile(r"\{[^{}]*\}")
MAX_CONFIG = 1500  # characters of a list of delimiters
MAX_LISTS = 20  # lists of one kind that are read
MAX_FORMULA = 20_000
MAX_WASTE = 2_000_000  # characters searched without a match; then the rest of the page stays unchanged
PRICE = re.compile(r"[\d.,]+(?:[KMB]|bn)?[-–—/,;.)]*\s+[^\W\d_]{2,}")
TEX_SIGN = re.compile(r"[\\^_=<>{}]")
MARKS = r"\$\$display\$\$|\$inline\$|\$\$|\$`|`\$|\$|\\[()\[\]]"
WHOLE = re.compile(rf"\s*({MARKS})(.*?)({MARKS})\s*", re.DOTALL)
INNER = re.compile(r"(?<!\\)(?:\$|\\[()\[\]])")
# In a finished text. A dollar opens a formula only before, and closes one only after, something: not in "$5
# or $10".
FORMULA = re.compile(r"\$\$([^$]{1,4000})\$\$|\$(?! )([^$\n]{1,2000})(?<! )\$(?!\d)")
DISPLAY_OPENERS = ("$$", r"\[", "$$display$$")
GROUP = re.compile(r"\\(?:begin|end)group(?![A-Za-z])\s*")
SHOWN_ENVIRONMENT = re.compile(
    r"\\begin\{(equation|align|alignat|flalign|gather|multline|eqnarray|displaymath)(\*?)\}(.*)\\end\{\1\2\}",
    re.DOTALL,
)
BARE = ("equation", "displaymath")  # environments that say no more than two dollar signs
CERTAIN = re.compile(r"\\[A-Za-z]+|[_^][\w{\\]")  # TeX without a doubt
UNSURE_LENGTH = 500
LATEX_SETTINGS = re.compile(r"(?:&(?:bg|fg|s)=-?\w+)+$")  # of WordPress: colours and size
Pairs = dict[str, tuple[str, bool]]


@dataclass(frozen=True)
class Delimiters:
    """A page's opening delimiters with (closing delimiter, whether displayed), and their pattern."""

    pairs: Pairs
    pattern: re.Pattern[str]
    declared: bool  # whether single dollar signs are the page's own delimiters

    @property
    def first_characters(self) -> str:
        """First characters of all delimiters; text without them has no formula."""
        return "".join(sorted({opening[0] for opening in self.pairs} | {"\\"}))


def page_delimiters(source: Source) -> Delimiters:
    """Return the default delimiters and those that a page declares."""
    pairs, html = dict(DEFAULTS), source.html
    for name, rare in LISTS.items():
        start = html.find(name) if source.holds(name, rare) else -1
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
    declared = "$" in pairs
    pairs |= UNDECLARED
    openings = sorted(pairs, key=len, reverse=True)
    pattern = "|".join([r"\\begin\{(?:" + ENVIRONMENTS + r")\*?\}", *map(re.escape, openings), r"\\[\\$]"])
    return Delimiters(pairs, re.compile(pattern), declared)


def _read_list(name: str, script: str) -> Pairs:
    """Delimiters of the configuration list at the start of `script`."""
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
    """End of the bracketed list at the start of `script`; ignores brackets in strings."""
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
    """Return a JavaScript string literal's value."""
    return re.sub(r"\\(.)", r"\1", string)


def written(tex: str, display: bool) -> str:
    """Return a formula between `$` or `$$`; empty for one that shows nothing."""
    if "group" in tex:
        tex = GROUP.sub("", tex)
    tex = tex.strip()
    if tex.startswith("\\begin{") and (match := SHOWN_ENVIRONMENT.fullmatch(tex)):
        display = True
        tex = match[3].strip() if match[1] in BARE else tex
    if not tex:
        return ""
    return f"$${tex}$$" if display else f"${tex}$"


def convert(text: str, delimiters: Delimiters, expand: Callable[[str], str] = str) -> str:
    """Rewrite each delimited formula of a page's text as `$..$` or `$$..$$`; `expand` rewrites its TeX."""
    pieces, done, position, waste = [], 0, 0, 0
    while waste < MAX_WASTE and (match := delimiters.pattern.search(text, position)):
        position = match.end()
        found = _formula(text, match, delimiters)
        if found is not None:
            tex, display, position = found
            pieces += [text[done : match.start()], written(expand(tex), display)]
            done = position
        elif len(match[0]) > 2 or match[0] in delimiters.pairs:  # else no closing delimiter was searched
            waste += min(MAX_FORMULA, len(text) - position)
    return "".join([*pieces, text[done:]])


def _formula(text: str, match: re.Match[str], delimiters: Delimiters) -> tuple[str, bool, int] | None:
    """(TeX, displayed, end) of the formula after an opening delimiter; None if there is none."""
    opening, pairs = match[0], delimiters.pairs
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
    if opening == "$latex ":
        tex = LATEX_SETTINGS.sub("", tex)
    if not tex or (opening == "$" and _is_currency(tex, text[end : end + 1])):
        return None
    if opening == "$" and not delimiters.declared and not _is_certain(tex):
        return None
    return tex, display, end


def _is_certain(tex: str) -> bool:
    """Whether text between dollar signs that the page does not declare can only be TeX."""
    if len(tex) > UNSURE_LENGTH or not CERTAIN.search(tex) or PRICE.match(tex):
        return False
    plain = re.sub(r"\\(?:text|mathrm|mbox|operatorname)\w*\*?\{[^{}]*\}|\\[A-Za-z]+", " ", tex)
    return len(re.findall(r"\b[A-Za-z]{3,}\b", plain)) < 4


def _closing(text: str, start: int, closing: str) -> int:
    """Index after the closing delimiter of the formula at `start`; 0 if there is none.

    Ignores delimiters in braces. A formula ends within its paragraph or table cell.
    """
    depth = 0
    while closing != "$" and text[start : start + 1] in ("\n", " "):  # line breaks before the formula
        start += 1
    for token in _closing_pattern(closing).finditer(text, start, start + MAX_FORMULA):
        if token[0] == closing and depth <= 0:
            return token.end()
        if token[0] == "\t\t" or token[0] == "\n\n" and not _ends_formula(text, token.end(), closing):
            return 0
        depth += (token[0] == "{") - (token[0] == "}")
    return 0


def _ends_formula(text: str, position: int, closing: str) -> bool:
    """Whether an empty line is the last of a formula, or one of an environment."""
    return closing.startswith("\\end") or text[position : position + 20].lstrip().startswith(closing)


@lru_cache(maxsize=1024)
def _closing_pattern(closing: str) -> re.Pattern[str]:
    return re.compile(re.escape(closing) + r"|\\.|[{}]|\n\n|\t\t", re.DOTALL)


def _is_currency(tex: str, following: str) -> bool:
    """Whether text between two dollar signs is a price with words after it, or holds another formula."""
    if r"\(" in tex or re.search(r"(?<!\\)\\\[", tex) or "\ue000" in tex:
        return True
    return (following.isdigit() or PRICE.match(tex) is not None) and not TEX_SIGN.search(tex)


def undelimited(text: str) -> tuple[str, bool | None]:
    """(TeX, whether displayed) of text that is one formula; the second is None without delimiters.

    A document around the formula goes, as JATS has it, and what Doxygen puts between a delimiter's signs.
    """
    text = text.replace("\u200d", "")
    text = text.partition("\\begin{document}")[2].partition("\\end{document}")[0] or text
    if (match := WHOLE.fullmatch(text)) and not INNER.search(match[2]):
        return match[2].strip(), match[1] in DISPLAY_OPENERS
    return text.strip(), None
