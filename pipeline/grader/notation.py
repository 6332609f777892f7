r"""Unify spelling: full-width characters, unicode mathematics, LaTeX spacing, number words.

`clean` maps a string to LaTeX or plain ASCII of the same meaning, which the parser reads.
"""

import re
import unicodedata
from functools import lru_cache

from pipeline.grader.numerals import in_digits
from pipeline.grader.vocabulary import COMMANDS, NUMBER_WORDS

_CHARACTERS = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
_CHARACTERS |= {code: " " for code in (*range(0x20), 0x7F, 0x200B, 0x200C, 0x200D, 0xFEFF)}
_SIGNS = {
    "−–—﹣‐‑": "-", "　\u00a0\u2009\u202f\u2002\u2003": " ", "，、": ",", "；": ";", "：∶": ":", "⁄∕": "/",
    "×✕": "\\times ", "·⋅∙•": "\\cdot ", "÷": "/", "√": "\\sqrt ", "∛": "\\sqrt[3] ", "∞": "\\infty ",
    "π": "\\pi ", "≤⩽≦": "\\le ", "≥⩾≧": "\\ge ", "≠": "\\ne ", "≈": "\\approx ", "≡": "\\equiv ",
    "∪": "\\cup ",
    "∩": "\\cap ", "∈": "\\in ", "±": "\\pm ", "∓": "\\mp ", "°º˚": "^\\circ ", "∅": "\\emptyset ",
    "ℝ": "\\mathbb{R}", "ℤ": "\\mathbb{Z}", "ℕ": "\\mathbb{N}", "ℚ": "\\mathbb{Q}", "ℂ": "\\mathbb{C}",
    "→": "\\to ", "∠": "\\angle ", "∑": "\\sum ", "∏": "\\prod ", "′’‘": "'", "“”": '"', "⌊": "\\lfloor ",
    "⌋": "\\rfloor ", "⌈": "\\lceil ", "⌉": "\\rceil ", "…": "\\dots ", "⟨〈": "\\langle ",
    "⟩〉": "\\rangle ",
    "【": "[", "】": "]", "∨": " or ", "∧": " and ", "∣": "|", "∥": "\\parallel ",
    "⊥": "\\perp ", "△": "\\triangle ",
    "¥￥€£": "\\$", "∖": "\\setminus ",
}  # fmt: skip
_CHARACTERS |= {ord(sign): new for signs, new in _SIGNS.items() for sign in signs}
_GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron"
_CHARACTERS |= {0x3B1 + place: f"\\{name} " for place, name in enumerate(_GREEK.split())}
_CHARACTERS |= {
    0x3C1 + place: f"\\{name} "
    for place, name in enumerate(["rho", "varsigma", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega"])
}
_CHARACTERS |= {
    ord(sign): f"\\{name} " for sign, name in zip("ΔΩΣΦ", ("Delta", "Omega", "Sigma", "Phi"), strict=True)
}

_SCRIPTS = {
    "^": (re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿˣᵏ]+"), str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿˣᵏ", "0123456789+-nxk")),
    "_": (re.compile("[₀₁₂₃₄₅₆₇₈₉ₙₖ]+"), str.maketrans("₀₁₂₃₄₅₆₇₈₉ₙₖ", "0123456789nk")),
}
_VULGAR = re.compile("[¼½¾⅐-⅞]")
_CIRCLED = re.compile("[①-⑳](?:[\\s,和]*[①-⑳])*")

_REWRITES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (rf"\\\\(?=(?:{'|'.join(sorted(COMMANDS))})(?![A-Za-z]))", r"\\"),
        (r"\\(?:left|right|middle)\s*\.", " "),
        (r"\\(?:left|right|middle|[bB]igg?[lrm]?|displaystyle|textstyle|limits|nolimits)(?![A-Za-z])", ""),
        (r"(?<=\d)\s*(?:\{\s*,\s*\}|,\s*\\!|\\,|\\!,?|,\\ |\\;)\s*(?=\d{3}(?!\d))", ""),
        (r"(?<![\d.,])(\d{1,3}) (?=\d{3}(?: \d{3})*(?![\d/,]| \d))", r"\1"),
        (r"(?<!\\)\\[,!;:> ]|\\q?quad(?!ratic)|\\(?:hfill|enspace|thinspace|hline)(?![A-Za-z])", " "),
        (r"\\(?:phantom|label|tag)\s*\{[^{}]*\}", " "),
        (r"~", " "),
        (r"(?i)\b(negative|minus) infinity\b", r"-\\infty "),
        (r"(?<=[\d}])\s*(k?m/s|km/h|ft/s|cm/s)(?![A-Za-z])", r"\\text{ \1}"),
        (r"\^\s*\{?\s*\\prime\s*\}?", "'"),
        (r"\\textcircled\s*\{\s*(\d+)\s*\}(?=\s*[,、]?\s*\\textcircled)", r"\1, "),
        (r"\\textcircled\s*\{\s*(\d+)\s*\}", r"\1"),
        (r"(?i)(?<=:\d\d)\s*([ap])\.?\s?m\b\.?", lambda match: f"\\text{{ {match[1].lower()}m}}"),
        (r"(?<![A-Za-z])([ap])\.\s?m\.?(?![A-Za-z])", r"\1m"),
        (r"\\(?:dfrac|tfrac|cfrac)(?![A-Za-z])", r"\\frac"),
        (r"\\(?:dbinom|tbinom)(?![A-Za-z])", r"\\binom"),
        (r"\\(?:boxed|fbox|mathstrut|ensuremath)(?![A-Za-z])", ""),
        (r"\\(?:lbrace|\{)", r"\\{"),
        (r"\\(?:rbrace|\})", r"\\}"),
        (r"\\(?:lvert|rvert|vert|mid)(?![A-Za-z])", "|"),
        (r"\{\s*\\bf\s+([^{}]*)\}", r" \1 "),
        (r"\{\s*\\rm\s+([^{}]*)\}", r"\\text{ \1}"),
        (r"(?:\\(?:blacksquare|square|Box|qed)|[∎■□])\s*\$?\.?\s*$", " "),
        (
            r"^\s*(?:\\text\s*\{)?\s*(?:the set of )?[Aa]ll (?:the )?reals?(?: numbers?)?\s*\}?\s*$",
            r"\\mathbb{R}",
        ),
        (r"\\degrees?(?![A-Za-z])|\^\s*\{\s*\\(?:text|mathrm)\s*\{\s*(?:\\circ|o)\s*\}\s*\}", r"^\\circ "),
        (r"\^\s*\{\s*\\circ\s*\}", r"^\\circ "),
        (r"\\%|\\text\s*\{\s*\\?%\s*\}", "%"),
        (r"(?<![A-Za-z])(?:percentage points?|percents?|per cent|pct\.?)(?![A-Za-z])", "%"),
        (r"\^\s*\{?\s*\\?(?:text|mathrm|textrm|mbox)?\s*\{?\s*(?:th|st|nd|rd)\s*\}?\s*\}?(?![A-Za-z])", ""),
        (r"(?<=\d)(?:th|st|nd|rd)(?![A-Za-z])", ""),
        (r"\\\(|\\\)|(?<!\\)\\\[(?![\d.]+\s*(?:pt|em|ex))|(?<!\\)\\\]|\$\$|(?<!\\)\$", " "),
        (r"^\s*(?:\*\*|__)|(?:\*\*|__)\s*\.?$", " "),
        (r"\\\\\s*$|\\$", ""),
    )
)  # fmt: skip
_BOLD = r"\\(?:mathbf|boldsymbol|bm|pmb|bold)(?![A-Za-z])\s*"
_BALANCED = r"(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*"
_FONT = re.compile(_BOLD)
_BOLD_ANSWER = re.compile(rf"{_BOLD}\{{({_BALANCED})\}}\.?")
_BOLD_NUMBER = re.compile(rf"{_BOLD}(?:\{{\s*(-?[\d.,]*\d)\s*\}}|(\d))")
_BOLD_NAME = re.compile(rf"{_BOLD}(?:\{{\s*([A-Za-z]+|\\[A-Za-z]+)\s*\}}|([A-Za-z]))")
_NAME = re.compile(r"\\?[A-Za-z]+")
_QUALIFIER = re.compile(r"\b(?:for (?:all|any|every|each|some)|where|in which)\b([^,;]*)")
_INERT = re.compile(
    r"(?:[\s{}()$.]|\\(?:text|in|mathbb|mathrm|mathbf)(?![A-Za-z])|(?<![A-Za-z])[A-Za-z](?![A-Za-z])|\b(?:is|are|be|an|the"
    r"|any|all|some|of|integers?|reals?|complex|numbers?|values?|constants?|natural|whole|arbitrary)\b)*"
)
_INTEGERS = re.compile(
    r"[,(]?\s*(?:\\text\s*\{\s*(?:with|and|for)?\s*\})?\s*\(?\s*(?<![A-Za-z\\])[a-z](?:\s*,\s*[a-z])*\s*\\in\s*"
    r"(?:\\mathbb\s*\{?\s*[ZN]\s*\}?|[ZN])(?:\^?[+*])?\s*\)?\s*[.)]*\s*$"
)

_COMPOUND = re.compile(
    r"(?P<hours>\d{1,6})\s*(?:小时|hours?|hrs?)\s*(?:and\s+)?(?P<minutes>\d{1,2})\s*(?P<minutes_unit>分钟?|minutes?|mins?)"
    r"|(?P<yuan>\d{1,9})\s*元\s*(?P<jiao>\d)\s*角"
)
_RESIDUES = re.compile(
    r"\A(?:(?P<name>[a-z])\s*\\equiv\s*)?"
    r"(?P<rests>\d+(?:\s*(?:,|,? ?(?:\\text\s*\{)?\s*(?:or|and)\s*\}?)\s*\d+)+)"
    r"\s*\(?(?:\\text\s*\{)?\s*\\?(?:p?mod|modulo)\s*\}?\s*\{?(?P<modulus>\d+)\}?\s*\)?\Z"
)


def number_word(text: str) -> str | None:
    """An English number word up to ninety-nine in digits, or None."""
    tens, _, ones = text.casefold().strip().replace("-", " ").partition(" ")
    if not ones:
        found = NUMBER_WORDS.get(tens)
        return None if found is None else str(found)
    low = NUMBER_WORDS.get(ones.strip(), 0)
    high = NUMBER_WORDS.get(tens, 0)
    return str(high + low) if high >= 20 and 0 < low < 10 else None


def _together(match: re.Match[str]) -> str:
    """3小时20分 as 200 分钟, 3 hours 20 minutes as 200 minutes, 5元5角 as 5.5 元."""
    if match["yuan"]:
        return f"{int(match['yuan']) + int(match['jiao']) / 10:g} 元"
    minutes = 60 * int(match["hours"]) + int(match["minutes"])
    return f"{minutes} {'minutes' if match['minutes_unit'].isascii() else '分钟'}"


def _residues(match: re.Match[str]) -> str:
    """2 or 3 modulo 4 as 4k+2 or 4k+3."""
    name = f"{match['name']} = " if match["name"] else ""
    return name + " or ".join(f"{match['modulus']}k+{rest}" for rest in re.findall(r"\d+", match["rests"]))


def _unbold(text: str) -> str:
    """The text without bold type, except of the unit vector i and of names that also stand in plain type."""
    if not _FONT.search(text):
        return text
    if match := _BOLD_ANSWER.fullmatch(text):
        return match[1].strip()
    text = _BOLD_NUMBER.sub(r"\1\2", text)
    kept = {"i", *_NAME.findall(_BOLD_NAME.sub(" ", text))}
    return _BOLD_NAME.sub(
        lambda match: match[0] if (name := match[1] or match[2]) in kept else f" {name} ", text
    )


def _vulgar(match: re.Match[str]) -> str:
    top, _, bottom = unicodedata.normalize("NFKC", match[0]).partition("⁄")
    return f"\\frac{{{top}}}{{{bottom}}}"


def _without_qualifiers(text: str) -> str:
    """The text without clauses such as "for all real x", which only name variables and their sets."""
    position = 0
    while match := _QUALIFIER.search(text, position):
        position = match.end()
        if not match.start() or not _INERT.fullmatch(match[1]):
            continue
        position = 0
        before = text[: match.start()].rstrip()
        for opening in ("\\text {", "\\text{", ",", "("):
            before = before.removesuffix(opening).rstrip()
        text = before + text[match.end() :]
    return text


@lru_cache(maxsize=16384)
def clean(text: str) -> str:
    r"""Unified spelling: ASCII, \frac for \dfrac, no spacing commands, no $, no final full stop."""
    text = _CIRCLED.sub(
        lambda match: ", ".join(str(ord(sign) - 0x245F) for sign in match[0] if "①" <= sign <= "⑳"), text
    )
    if not text.isascii():
        for mark, (pattern, table) in _SCRIPTS.items():
            text = pattern.sub(
                lambda match, mark=mark, table=table: f"{mark}{{{match[0].translate(table)}}}", text
            )
        text = _VULGAR.sub(_vulgar, text)
    text = " ".join(text.translate(_CHARACTERS).split())  # long runs of spaces slow the patterns down
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = _unbold(text.replace("\\$", "$").strip())
    text = _RESIDUES.sub(_residues, " ".join(text.split()))
    text = _without_qualifiers(text)
    if (
        "\\in" in text
        and (match := _INTEGERS.search(text, max(0, text.rfind("\\in") - 60)))
        and match.start()
    ):
        text = text[: match.start()]
    text = _COMPOUND.sub(_together, text.strip(" ,;").rstrip("。"))
    text = re.sub(r"(?<!\.)\.\s*(\})?$", r"\1", text).strip(" ,;:")
    if not text.isascii():
        text = in_digits(text)
    return text
