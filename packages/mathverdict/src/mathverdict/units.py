"""Units: which of them a question asks for, and which are the same."""

import re
from fractions import Fraction
from functools import lru_cache

from .vocabulary import GENERIC_UNITS, LETTERS, UNIT_POWERS, UNIT_QUESTIONS, UNITS

Unit = tuple[str, Fraction]  # kind and size
_PARTS = re.compile(rf"\^-?\d+|/|{LETTERS}|[€°¢$]")
_HAN = "[\u3040-\u9fff]"
_ASKED = re.compile(
    r"(?:\b(?:how many|number of|nearest|in|to|combien d[e']|wie viele?|cuánt[oa]s|сколько|كم|몇)\s+"
    r"|(?P<pieces>多少|几|何))"
    r"\s*(?:square\s+|cubic\s+|平方|立方)?"
    rf"(?P<unit>{LETTERS})"
)
# Chinese and Japanese write no spaces: a unit stands behind an amount
_BEHIND = re.compile(rf"(?:[\d.]|[一二两三四五六七八九十百千万半几多少每何])({_HAN}{{1,9}})")


def singular(word: str) -> str:
    return word[:-1] if len(word) > 2 and word.endswith("s") and word.isascii() and word != "units" else word


def unit_words(unit: str) -> list[str]:
    """Return the words of a unit in the form in which the tables have them."""
    unit = unit.casefold().replace(".", "").replace("平方", "平方 ").replace("立方", "立方 ")
    return [singular(word) for word in _PARTS.findall(unit)]


def _longest(word: str) -> str | None:
    """Return the longest unit with which a word without spaces begins."""
    return next((word[:end] for end in range(len(word), 0, -1) if word[:end] in UNITS), None)


@lru_cache(maxsize=4096)
def _of_question(question: str) -> tuple[frozenset[Unit], frozenset[Unit]]:
    """Return the units that a question names, and those whose number it asks for."""
    text = question.casefold()
    names = {
        match[1]
        for match in re.finditer(r"\d\s*(?:\\,|~|\\(?:text|mathrm)\s*\{\s*~?)?\s*([a-zа-я]{1,2})\b", text)
    }
    names |= {singular(word) for word in re.findall(r"[^\W\d_]{3,}|\b[ckmd]m\b|\b[km]g\b|[€°¢$]", text)}
    names |= {
        unit
        for match in _BEHIND.finditer(text)
        if (unit := _longest(match[1].replace("平方", "").replace("立方", "")))
    }
    asked = {
        _longest(match["unit"]) if match["pieces"] else singular(match["unit"])
        for match in _ASKED.finditer(text)
    }
    return (
        frozenset(UNITS[name] for name in names if name in UNITS),
        frozenset(UNITS[name] for name in asked if name in UNITS),
    )


def fits(unit: str, question: str) -> bool:
    """Whether a question asks for a unit of the table, names it, or asks for its kind without a unit."""
    kind, size = UNITS[unit]
    named_units, asked = _of_question(question)
    for units in (asked, named_units):
        sizes = {other for name, other in units if name == kind}
        if sizes:
            return size in sizes
    return UNIT_QUESTIONS[kind] is not None and UNIT_QUESTIONS[kind].search(question.casefold()) is not None


def measure(unit: str) -> tuple[tuple[str, int], Fraction] | None:
    """((kind, power), size in the kind's base unit) of a known unit such as "square feet" or "cm^2"."""
    power = 1
    names = []
    for word in unit_words(unit):
        if word in UNIT_POWERS:
            power = UNIT_POWERS[word]
        elif word in ("^2", "^3"):
            power = int(word[1])
        elif word not in ("of", "the", "and"):
            names.append(word)
    if len(names) != 1 or names[0] not in UNITS:
        return None
    kind, size = UNITS[names[0]]
    return (kind, power), size**power


def agree(first: str, second: str) -> bool:
    """Whether two units are the same, or one is left out or unknown."""
    if not first or not second or unit_words(first) == unit_words(second):
        return True
    one, other = measure(first), measure(second)
    if one is not None and other is not None:
        return one == other
    left, right = set(unit_words(first)) - GENERIC_UNITS, set(unit_words(second)) - GENERIC_UNITS
    return not left or not right or bool(left & right)
