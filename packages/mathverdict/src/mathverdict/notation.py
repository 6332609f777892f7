r"""Unify spelling: full-width characters, unicode mathematics, LaTeX spacing, number words.

`clean` maps a string to LaTeX or plain ASCII of the same meaning, which the parser reads.
"""

import re
import unicodedata
from functools import lru_cache

from .numerals import in_digits
from .vocabulary import COMMANDS, FOREIGN_NUMBERS, NUMBER_PARTS, NUMBER_WORDS, SCALES, WRAPPED, load

_TABLES = load("notation.toml")
_CHARACTERS = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
_CHARACTERS |= dict.fromkeys(range(0x20), " ")
_CHARACTERS |= {ord(sign): new for new, signs in _TABLES["signs"].items() for sign in signs}
_SCRIPTS = {
    "^": (re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿˣᵏ]+"), str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿˣᵏ", "0123456789+-nxk")),
    "_": (re.compile("[₀₁₂₃₄₅₆₇₈₉ₙₖ]+"), str.maketrans("₀₁₂₃₄₅₆₇₈₉ₙₖ", "0123456789nk")),
}
_VULGAR = re.compile("[¼½¾⅐-⅞]")
_LETTERS = re.compile("[\U0001d400-\U0001d7ff]")  # of mathematics: 𝑥
_CIRCLED = re.compile("[①-⑳](?:[\\s,和]*[①-⑳])*")

_REWRITES = tuple(
    (re.compile(pattern.replace("COMMANDS", "|".join(sorted(COMMANDS)))), replacement)
    for pattern, replacement in _TABLES["rewrites"]["list"]
)
_BOLD = r"\\(?:mathbf|boldsymbol|bm|pmb|bold|underline)(?![A-Za-z])\s*"
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
    """Return an English number or fraction in words in digits, e.g. "one hundred and five" or
    "three-eighths"; in other languages one word.
    """
    match = WRAPPED.fullmatch(text.strip())
    text = (match[1] if match else text).casefold()
    if text in FOREIGN_NUMBERS:
        return str(FOREIGN_NUMBERS[text])
    words = text.replace("-", " ").split()
    if len(words) > 1 and (part := NUMBER_PARTS.get(words[-1].removesuffix("s"))):
        top = 1 if words[:-1] in (["a"], ["an"]) else _counted([word for word in words[:-1] if word != "and"])
        return f"{top}/{part}" if top else None
    found = _counted([word for word in words if word != "and"])
    return None if found is None else str(found)


def number_first(text: str) -> str:
    """Return words that begin with a number in digits: six dollars as 6 dollars, one half as 1/2."""
    words = text.split()
    for count in range(min(len(words), 8), 0, -1):
        if number := number_word(" ".join(words[:count])):
            return " ".join([number, *words[count:]])
    return text


def _counted(words: list[str]) -> int | None:
    """Return the value of a whole number in words, or None."""
    total = current = 0
    for word in words:
        value = NUMBER_WORDS.get(word)
        if value is None:
            if word not in SCALES or not current:
                return None
            total, current = (
                (total, current * 100) if word == "hundred" else (total + current * SCALES[word], 0)
            )
        elif current % (10 if value < 10 and current % 100 != 10 else 100):
            return None
        else:
            current += value
    return total + current if words else None


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
    """Return the text without bold type, except of the unit vector i and of names that also stand in plain
    type.
    """
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
    """Return the text without clauses such as "for all real x", which only name variables and their sets."""
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
        text = unicodedata.normalize("NFC", text)
        for mark, (pattern, table) in _SCRIPTS.items():
            text = pattern.sub(
                lambda match, mark=mark, table=table: f"{mark}{{{match[0].translate(table)}}}", text
            )
        text = _VULGAR.sub(_vulgar, text)
        text = _LETTERS.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)
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
