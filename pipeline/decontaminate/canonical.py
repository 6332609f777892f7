"""Grams in a canonical form: one formula in several notations has the same grams.

Each of these are the same: `\\dfrac{1}{2}`, `\\frac{1}{2}`, `1/2`; `\\left( x \\right)`, `(x)`;
`\\sqrt{x}`, `√x`; `2\\,\\mathrm{cm}`, `2 cm`; `\\pi`, `π`; `3 \\times 4`, `3 \\cdot 4`, `3 × 4`, `3 * 4`.
Commands of layout, font and space are dropped; so are operators, which many leave out. Functions become
words. Greek letters, relations and other symbols are grams in either form. An answer's `\\boxed` stays:
without it, worked sums of few numbers would be in every exercise.
"""

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.crawl.grams import Characters, Grams, Hashes, grams

NOTATIONS = tomllib.loads(Path(__file__).with_name("notations.toml").read_text(encoding="utf-8"))
SYMBOLS = NOTATIONS["symbols"]
CHARACTERS = Characters("".join(SYMBOLS))
DRAWINGS = "|".join(NOTATIONS["drawings"])
# Quote marks, bullets and a label at the start of a line: "> 12. ", "(3) ", "b) ", "Line 7: ", "①".
LINE_MARK = re.compile(
    r"^(?:[\s>|#*+\-•·‣▪●○◦–—]|&gt;)*"
    r"(?:(?:line\s*|l)?[(\[（【]?\d{1,6}(?:[.:]\d{1,3})*[)\]）】.:：、,|]*(?=\s|[^\W\d]|$)"
    r"|[(\[（【]?(?:[a-z]|[ivx]{1,5})[)\]）】.:：、]+(?=\s|$)|o(?=\s)"
    r"|[(\[（【]?[一二三四五六七八九十]{1,3}[)\]）】.:：、]+|[①-⑳])?"
    r"(?:[\s>|*+\-•·]|&gt;)*",
    re.IGNORECASE | re.MULTILINE,
)
TAG = re.compile(rf"(\\begin\s?{{|\\end\s?{{|[\[<]/?)({DRAWINGS})(?![\w-])[^][<>]{{0,999}}?[]>}}]")


def _table() -> tuple[Hashes, Hashes]:
    """Return hashes of commands, sorted, and what each stands for: the hash of another gram, or 0."""
    names = dict.fromkeys(NOTATIONS["dropped"], "") | {name: name for name in NOTATIONS["functions"]}
    names |= NOTATIONS["words"]
    names |= {name: symbol for symbol, commands in SYMBOLS.items() for name in commands}
    found = {}
    for name, other in names.items():
        (command,) = grams(f"\\{name}", CHARACTERS).hashes.tolist()
        found[command] = grams(other, CHARACTERS).hashes.tolist()[0] if other else 0
    commands = sorted(found)
    return np.array(commands, np.uint64), np.array([found[command] for command in commands], np.uint64)


COMMANDS, STANDS_FOR = _table()


def canonical(text: str) -> Grams:
    """Return the canonical grams of a text, in order; their places are those of the text."""
    found = grams(text, CHARACTERS)
    commands = np.flatnonzero(found.is_tex)
    if not len(commands):
        return found
    values = found.hashes[commands]
    places = np.minimum(np.searchsorted(COMMANDS, values), len(COMMANDS) - 1)
    known = COMMANDS[places] == values
    hashes = found.hashes
    hashes[commands[known]] = STANDS_FOR[places[known]]
    left = np.ones(len(hashes), bool)
    left[commands[known]] = STANDS_FOR[places[known]] != 0
    return chosen(found, left)


def chosen(found: Grams, which: NDArray[np.bool_]) -> Grams:
    """Return some of the grams of a text (T,)."""
    columns = {name: getattr(found, name)[which] for name in ("hashes", "starts", "ends", "is_tex")}
    return replace(found, **columns)


def without_line_marks(found: Grams) -> Grams:
    """Return the grams without line numbers, labels, bullets and quote marks at the start of lines."""
    left = np.ones(len(found), bool)
    for mark in LINE_MARK.finditer(found.text):
        left[slice(*np.searchsorted(found.starts, mark.span()))] = False
    return chosen(found, left)


def drawn(found: Grams) -> NDArray[np.bool_]:
    """Which grams (T,) of a text are drawing code, its tags among them."""
    inside, name, start = np.zeros(len(found), bool), "", 0
    for tag in TAG.finditer(found.text):
        head, own = tag.groups()
        if "/" not in head and "end" not in head:
            name, start = own, tag.start()
        elif own == name:
            low, high = np.searchsorted(found.starts, (start, tag.end()))
            inside[low:high], name = True, ""
    return inside
