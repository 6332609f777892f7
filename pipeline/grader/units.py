"""Compare units: the same, convertible, or unknown words."""

import re
from fractions import Fraction

from pipeline.grader.vocabulary import GENERIC_UNITS, UNIT_POWERS, UNITS


def _words(unit: str) -> list[str]:
    unit = unit.casefold().replace(".", "").replace("平方", "平方 ").replace("立方", "立方 ")
    words = re.findall(r"\^-?\d+|/|[a-z]+|[^\x00-\x7f]+", unit)
    return [word[:-1] if len(word) > 2 and word.endswith("s") and word != "units" else word for word in words]


def known(unit: str, named: frozenset[str]) -> bool:
    """Whether every word of a unit is a known unit or one of the words `named`."""
    return all(
        word in UNITS
        or word in GENERIC_UNITS
        or word in UNIT_POWERS
        or not word.isalpha()
        or word in named
        or not word.isascii()
        for word in _words(unit)
    )


def named(text: str) -> frozenset[str]:
    """The words of a text in the form in which `known` looks for them."""
    return frozenset(_words(text))


def measure(unit: str) -> tuple[tuple[str, int], Fraction] | None:
    """((kind, power), size in the kind's base unit) of a known unit such as "square feet" or "cm^2"."""
    words = _words(unit)
    power = 1
    names = []
    for word in words:
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


def ratio(first: str, second: str) -> Fraction | None:
    """How many of `second` one of `first` is: 1 for the same or unknown units, None where they contradict."""
    if not first or not second or _words(first) == _words(second):
        return Fraction(1)
    one, other = measure(first), measure(second)
    if one is not None and other is not None:
        return one[1] / other[1] if one[0] == other[0] else None
    left, right = set(_words(first)) - GENERIC_UNITS, set(_words(second)) - GENERIC_UNITS
    return Fraction(1) if not left or not right or left & right else None
