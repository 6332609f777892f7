r"""Exact comparison without symbols: numbers, fractions, percent, units, choices and words.

Everything here is exact rational arithmetic on short strings with bounded exponents: no parser of
expressions, nothing that can take long. What these rules cannot decide is "unknown" and goes to the symbolic
comparison.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

Outcome = tuple[str, str]
MAX_DIGITS = 400
MAX_EXPONENT = 300

_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_CHARACTERS = _FULL_WIDTH | {
    ord(old): new
    for old, new in {
        "−": "-",
        "–": "-",
        "﹣": "-",
        "　": " ",
        "\u00a0": " ",
        "，": ",",
        "；": ";",
        "⁄": "/",
        "×": "\\times ",
    }.items()
}
_REPLACEMENTS = (
    # double-escaped commands
    (re.compile(r"\\\\(?=(?:frac|sqrt|pi|text|left|right|cdot|times|infty)\b)"), r"\\"),
    (re.compile(r",\s*\\!"), ","),
    (re.compile(r"\\[dtc]frac(?![a-z])"), r"\\frac"),
    (re.compile(r"\\(?:left|right|displaystyle|,|!|;|:|quad|qquad)(?![a-z])"), " "),
    (re.compile(r"\\(?:mbox|textbf|textrm|textit|mathrm|operatorname)(?=\s*\{)"), r"\\text"),
    (re.compile(r"\\frac\s*(\d)\s*(\d)(?!\d)"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\sqrt\s*(\d)"), r"\\sqrt{\1}"),
    (re.compile(r"(?:\^\s*\{?\s*\\circ\s*\}?|\\degree|°)"), r"\\text{ degrees}"),
    (re.compile(r"\s+"), " "),
)
_DECIMAL = r"(?:\d{1,3}(?:(?:,|\{,\})\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)"
_FRACTION = re.compile(
    rf"(?P<sign>[+-]?)\s*(?:(?P<whole>\d+)\s*\\frac|(?P<mixed>\d+)\s+(?=\d+\s*/)|\\frac|(?=[+-]?[\d.]))"
    rf"(?:\s*\{{\s*(?P<top>[+-]?{_DECIMAL})\s*\}}\s*\{{\s*(?P<bottom>[+-]?{_DECIMAL})\s*\}}"
    rf"|(?P<plain_top>{_DECIMAL})(?:\s*/\s*(?P<plain_bottom>[+-]?{_DECIMAL}))?)"
    r"(?:\s*\\times\s*10\s*\^\s*(?:\{\s*(?P<exponent>[+-]?\d{1,4})\s*\}|(?P<exponent_digit>\d)))?"
)
_CURRENCY = re.compile(r"^([+-]?)\s*(?:\\\$|[$€£¥￥]|USD|US\$)\s*(?=[\d.+-])")
_UNIT_TEXT = re.compile(
    r"^\s*(?:\\text\s*\{([^{}\d]*)\}|((?:[A-Za-z]{2,}|m)(?:[ -][A-Za-z]{2,}){0,2})|([\u4e00-\u9fff]{1,4}))"
    r"(?:\s*\^\s*\{?[23]\}?)?[.。]?$"
)
_FUNCTIONS = frozenset(
    {"pi", "sqrt", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "mod", "base"}
)
_CONNECTIVES = frozenset({"or", "and", "to", "times", "plus", "minus", "over", "not", "no", "none", "cannot"})
_NOT_UNITS = _FUNCTIONS | _CONNECTIVES | {"infinity", "inf"}
_CHOICE = re.compile(
    r"(?:\\text\s*\{\s*)?[(\[]?\s*([A-Za-z])\s*[)\]]?\s*\}?(?:[.:)、]\s*(?P<rest>.*))?$", re.DOTALL
)
_WORDS = re.compile(r"[A-Za-z][A-Za-z' -]*$")


@dataclass(frozen=True, slots=True)
class Number:
    """An exact value as written; `percent`: a percent sign followed, which is not applied to `value`."""

    value: Fraction
    percent: bool
    unit: str


@lru_cache(maxsize=4096)
def clean(text: str) -> str:
    """One spelling for what means the same: dashes, full-width signs, \\dfrac, spacing, enclosing $...$."""
    text = text.translate(_CHARACTERS).strip()
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    text = text.strip().rstrip(".。").strip()
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        inner = text[len(opening) : -len(closing)]
        if (
            len(text) > len(opening) + len(closing)
            and text.startswith(opening)
            and text.endswith(closing)
            and "$" not in inner
        ):
            text = inner.strip()
    return text.strip()


def _decimal(text: str) -> Fraction:
    return Fraction(text.replace("{,}", "").replace(",", "").rstrip(".") or "0")


def _value(match: re.Match[str]) -> Fraction | None:
    """The number a match of `_FRACTION` spells; None for a zero denominator or an exponent out of bounds."""
    top, bottom = match["top"] or match["plain_top"], match["bottom"] or match["plain_bottom"] or "1"
    denominator = _decimal(bottom)
    exponent = int(match["exponent"] or match["exponent_digit"] or 0)
    if denominator == 0 or abs(exponent) > MAX_EXPONENT:
        return None
    value = _decimal(top) / denominator + int(match["whole"] or match["mixed"] or 0)
    return (-value if match["sign"] == "-" else value) * Fraction(10) ** exponent


@lru_cache(maxsize=4096)
def number(text: str) -> Number | None:
    """Read cleaned text as one number with optional currency, percent sign and unit; None if it is none."""
    if len(text) > MAX_DIGITS:
        return None
    text = _CURRENCY.sub(r"\1", text)
    match = _FRACTION.match(text)
    if match is None or (value := _value(match)) is None:
        return None
    rest = text[match.end() :].strip()
    percent = False
    for sign in ("\\%", "%", "percent", "\\text{ percent}", "\\text{percent}"):
        if rest.startswith(sign):
            percent, rest = True, rest[len(sign) :].strip()
            break
    if not rest:
        return Number(value, percent, "")
    unit = _UNIT_TEXT.match(rest)
    name = "".join(filter(None, unit.groups())).strip().casefold() if unit else ""
    if unit is None or not _NOT_UNITS.isdisjoint(re.split(r"[\s-]+", name)):
        return None
    return Number(value, percent, name)


def _compare_numbers(reference: Number, answer: Number, question: str | None) -> Outcome:
    scale = {True: Fraction(1, 100), False: Fraction(1)}
    if reference.value * scale[reference.percent] == answer.value * scale[answer.percent]:
        if reference.unit and answer.unit and reference.unit.rstrip("s") != answer.unit.rstrip("s"):
            return "undecided", "units differ"
        return "right", "numbers"
    if reference.value == answer.value and reference.percent != answer.percent:
        asked = question is None or re.search(r"percent|%|百分", question) is not None
        if reference.percent or asked:
            return "right", "percent asked for"
    return "wrong", "numbers"


def choice(text: str) -> str | None:
    """The letter of a choice such as "B", "(b)", "\\text{B}" or "B. 12"."""
    match = _CHOICE.match(text)
    return match[1].upper() if match else None


def _compare_choices(reference: str, answer: str, choices: Mapping[str, str]) -> Outcome:
    letter = choice(answer)
    if letter is None or letter not in choices:
        same = [name for name, text in choices.items() if compare(text, answer, None, None)[0] == "right"]
        letter = same[0] if len(same) == 1 else None
    if letter is None:
        return "wrong", "not one of the choices"
    return ("right" if letter == (choice(clean(reference)) or reference) else "wrong"), "choice"


def words(text: str) -> str | None:
    """Cleaned text as plain words in lower case, or None if anything but words stands in it."""
    inner = re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text).strip().rstrip(".")
    return " ".join(inner.casefold().split()) if _WORDS.match(inner) and len(inner) > 1 else None


def compare(reference: str, answer: str, question: str | None, choices: Mapping[str, str] | None) -> Outcome:
    """(right | wrong | undecided | unknown, reason); unknown asks for the symbolic comparison."""
    reference, answer = clean(reference), clean(answer)
    if choices:
        return _compare_choices(reference, answer, choices)
    if not answer:
        return "wrong", "empty"
    if reference.replace(" ", "") == answer.replace(" ", ""):
        return "right", "same after normalisation"
    expected, given = number(reference), number(answer)
    if expected is not None and given is not None:
        return _compare_numbers(expected, given, question)
    if len(reference) == 1 and reference.isalpha() and (letter := choice(answer)):
        return ("right" if letter == reference.upper() else "wrong"), "letter"
    expected_words, given_words = words(reference), words(answer)
    if expected_words is not None and given_words is not None:
        if expected_words == given_words:
            return "right", "words"
        return ("undecided", "prose") if " " in given_words else ("wrong", "words")
    if len(re.findall(r"[A-Za-z]{3,}", re.sub(r"\\[A-Za-z]+", "", answer))) >= 4 or re.search(
        r"\bor\b|或", answer
    ):
        return "undecided", "prose"
    return "unknown", ""
