r"""Right answers in unusual writing, with random values: as textbooks of other countries and programs write.

`spellings.toml` has the forms by kind of reference. The functions here draw values and fill them in.
"""

import random
import tomllib
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

FORMS = tomllib.loads(Path(__file__).with_name("spellings.toml").read_text())
_ONES = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_PARTS = {2: "half", 3: "third", 4: "quarter", 5: "fifth", 8: "eighth", 10: "tenth"}
_TENS = {20: "twenty", 30: "thirty", 40: "forty", 50: "fifty", 60: "sixty", 80: "eighty", 90: "ninety"}


class Spelling(NamedTuple):
    """A right answer: the kind of its reference, the form, a question, the reference and the answer."""

    kind: str
    form: str
    question: str
    reference: str
    answer: str


def _fraction(draw: random.Random) -> dict[str, str]:
    bottom = draw.choice([3, 6, 7, 9, 11])
    value = Fraction(
        draw.choice(
            [top for top in range(bottom + 1, 4 * bottom) if Fraction(top, bottom).denominator == bottom]
        ),
        bottom,
    )
    whole, rest = divmod(value.numerator, bottom)
    return {"A": str(value.numerator), "B": str(bottom), "W": str(whole), "R": str(rest)}


def _small_fraction(draw: random.Random) -> dict[str, str]:
    bottom = draw.choice(list(_PARTS))
    top = draw.choice([top for top in range(1, bottom) if Fraction(top, bottom).denominator == bottom])
    words = f"{_ONES[top - 1]} {_PARTS[bottom]}{'s' if top > 1 else ''}"
    if bottom == 2:
        words = "one half"
    return {"A": str(top), "B": str(bottom), "X": words, "Y": words.replace(" ", "-")}


def _repeating(draw: random.Random) -> dict[str, str]:
    whole, digit = draw.randint(1, 9), draw.choice([1, 2, 3, 4, 5, 6, 7, 8])
    value = whole + Fraction(digit, 9)
    return {"A": str(value.numerator), "B": str(value.denominator), "W": str(whole), "D": str(digit)}


def _decimal(draw: random.Random) -> dict[str, str]:
    whole, digits = draw.randint(1, 99), draw.choice(["5", "25", "75", "2", "4"])
    return {"W": str(whole), "D": digits, "E": f"{whole}{digits}", "N": str(len(digits))}


def _large(draw: random.Random) -> dict[str, str]:
    value = draw.randint(1, 9) * 10**6 + draw.randint(100, 999) * 10**3 + draw.randint(100, 999)
    text = str(value)
    return {"V": text, "A": text[:1], "B": text[1:4], "C": text[4:]}


def _interval(draw: random.Random) -> dict[str, str]:
    low = draw.randint(-9, 5)
    return {"A": str(low), "B": str(low + draw.randint(1, 9))}


def _matrix(draw: random.Random) -> dict[str, str]:
    a, b, c, d = draw.sample(range(-9, 10), 4)
    return {"A": str(a), "B": str(b), "C": str(c), "D": str(d)}


def _two(draw: random.Random) -> dict[str, str]:
    a, b = sorted(draw.sample(range(-9, 10), 2))
    return {"A": str(a), "B": str(b)}


def _based(draw: random.Random) -> dict[str, str]:
    base = draw.choice([5, 6, 7, 8, 9])
    digits = str(draw.randint(1, 4)) + "".join(str(draw.randint(0, 4)) for _ in range(2))
    return {"D": digits, "B": str(base), "W": _ONES[base - 1]}


def _word(draw: random.Random) -> dict[str, str]:
    ten, one = draw.choice(list(_TENS)), draw.randint(1, 9)
    hundreds = draw.randint(1, 9)
    return {
        "V": str(ten + one), "X": f"{_TENS[ten]}-{_ONES[one - 1]}", "H": str(100 * hundreds + ten + one),
        "Y": f"{_ONES[hundreds - 1]} hundred {_TENS[ten]}-{_ONES[one - 1]}",
        "Z": f"{_ONES[hundreds - 1]} hundred and {_TENS[ten]}-{_ONES[one - 1]}",
    }  # fmt: skip


def _choice(draw: random.Random) -> dict[str, str]:
    values = draw.sample(range(2, 99), 5)
    letter = draw.choice("ABCDE")
    listed = " ".join(f"({name}) {value}" for name, value in zip("ABCDE", values, strict=True))
    return {"L": letter, "V": str(values["ABCDE".index(letter)]), "Q": listed}


DRAWS: dict[str, Callable[[random.Random], dict[str, str]]] = {
    **{"fraction": _fraction, "part": _small_fraction, "repeating": _repeating, "number word": _word},
    **dict.fromkeys(("decimal", "comma", "money"), _decimal),
    **dict.fromkeys(("interval", "half line", "two half lines"), _interval),
    **dict.fromkeys(("matrix", "vector"), _matrix),
    **dict.fromkeys(("roots", "point", "ratio"), _two),
    **{"large": _large, "base": _based, "choice": _choice},
}


def _values(kind: str, draw: random.Random) -> dict[str, str]:
    """Draw the values of a kind: by its function, or each from the list that its table has under `draw`."""
    if kind in DRAWS:
        return DRAWS[kind](draw)
    return {name: draw.choice(values.split()) for name, values in FORMS[kind].get("draw", {}).items()}


def spellings(seed: int, times: int) -> Iterator[Spelling]:
    """Each form `times` times, with fresh values."""
    draw = random.Random(seed)
    for kind, table in FORMS.items():
        for form in table["forms"]:
            for _ in range(times):
                values = _values(kind, draw)

                def fill(text: str, values: dict[str, str] = values) -> str:
                    for name, value in values.items():
                        text = text.replace(f"<{name}>", value)
                    return text.replace("+ -", "- ").replace("+-", "-")

                yield Spelling(kind, form, fill(table["question"]), fill(table["reference"]), fill(form))
