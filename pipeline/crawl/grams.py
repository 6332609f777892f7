"""Texts as grams: the words that near-duplicate detection and decontamination compare, as 64-bit hashes.

A gram is a lower-cased word, a number, a single CJK character or a TeX command. Compatibility forms
(full-width digits, ligatures, mathematical letters), accents and invisible characters make no difference;
punctuation does not count. The paper counts in grams without saying of what (section 2.1).

All characters of a text are looked up at once in tables that fill as new characters occur; a gram's hash is
a polynomial of its characters. A compiled loop finds the grams, and also gives their positions.
"""

import re
import unicodedata
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.crawl.compiled import njit
from pipeline.crawl.language import CJK

Hashes = NDArray[np.uint64]
BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that its powers are units modulo 2^64
MIX_1, MIX_2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)  # finaliser of MurmurHash3
TEX = np.uint64(0xD6E8FEB86659FD93)  # what a backslash before a word adds to its hash
LONGEST = 64  # powers repeat after so many characters
CJK_CHARACTER = re.compile(f"[{CJK}]")
INVISIBLE = ("Mn", "Mc", "Cf", "Me")  # marks on letters (accents, vowel signs), and format characters
SEPARATOR, LETTER, DIGIT, CHARACTER, IGNORED, BACKSLASH, SEVERAL, UNKNOWN = range(8)
CODES = 0x110000


def fold(character: str) -> str:
    """Return the comparable form of a character: none, one or (ligatures and the like) several characters."""
    if CJK_CHARACTER.match(character):
        return unicodedata.normalize("NFKC", character)
    parts = unicodedata.normalize("NFKD", character).lower()
    return "".join(part for part in parts if unicodedata.category(part) not in INVISIBLE)


def _kind(folded: str, symbols: str = "") -> int:
    if len(folded) == 1 and folded in symbols:
        return CHARACTER
    if not folded:
        return IGNORED
    if not any(character.isalnum() for character in folded):
        return BACKSLASH if folded == "\\" else SEPARATOR
    if len(folded) > 1:
        return SEVERAL
    if CJK_CHARACTER.match(folded):
        return CHARACTER
    return DIGIT if folded.isdecimal() else LETTER


class Characters:
    """Kind (SEPARATOR, ...) and folded code of every character seen so far; each of `symbols` is a gram."""

    def __init__(self, symbols: str = "") -> None:
        self._symbols = symbols
        self.kinds = np.full(CODES, UNKNOWN, np.uint8)
        self.folded = np.zeros(CODES, np.uint32)

    def learn(self, codes: NDArray[np.uint32]) -> None:
        for code in np.unique(codes).tolist():
            folded = fold(chr(code))
            self.kinds[code] = _kind(folded, self._symbols)
            self.folded[code] = ord(folded[0]) if folded else 0

    def kinds_of(self, codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
        kinds = self.kinds[codes]
        if (unknown := kinds == UNKNOWN).any():
            self.learn(codes[unknown])
            kinds = self.kinds[codes]
        return kinds


CHARACTERS = Characters()
with np.errstate(over="ignore"):
    POWERS = np.cumprod(np.full(LONGEST, BASE, np.uint64))


@dataclass(frozen=True)
class Grams:
    """Grams of a text, each (T,): hashes, starts and ends in characters, which are TeX commands."""

    text: str
    hashes: Hashes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    is_tex: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.hashes)

    def words(self, first: int = 0, last: int | None = None) -> list[str]:
        """Spell out the grams, folded."""
        found = []
        for start, end in zip(self.starts[first:last].tolist(), self.ends[first:last].tolist(), strict=True):
            found.append("".join(fold(character) for character in self.text[start:end]))
        return found


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _spread(text: str, kinds: NDArray[np.uint8]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Codes of a text with ligatures and the like expanded, and the position of each in `text`."""
    several = np.flatnonzero(kinds == SEVERAL).tolist()
    parts = {place: fold(text[place]) for place in several}
    sizes = np.ones(len(text), np.int64)
    sizes[several] = [len(part) for part in parts.values()]
    spread = "".join(parts.get(place, character) for place, character in enumerate(text))
    return _codes(spread), np.repeat(np.arange(len(text)), sizes)


def grams(text: str, characters: Characters = CHARACTERS) -> Grams:
    """All grams of a text, in order."""
    codes = _codes(text)
    kinds = characters.kinds_of(codes)
    places = None
    if (kinds == SEVERAL).any():
        codes, places = _spread(text, kinds)
        kinds = characters.kinds_of(codes)
    hashes, starts, ends, is_tex = _scanned(codes, kinds, characters.folded)
    if places is not None:
        starts, ends = places[starts], places[ends]
    return Grams(text, mixed(hashes), starts, ends + 1, is_tex)


@njit(cache=True)
def _scanned(
    codes: NDArray[np.uint32], kinds: NDArray[np.uint8], folded: NDArray[np.uint32]
) -> tuple[Hashes, NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Of the grams among characters (N,): sums before they are mixed, first and last places, which are TeX
    commands, each (T,). `folded`: forms of all codes.
    """
    hashes, is_tex = np.zeros(len(codes), np.uint64), np.zeros(len(codes), np.bool_)
    starts, ends = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
    number, size, before, place_before = -1, 0, SEPARATOR, 0
    for place in range(len(codes)):
        kind = kinds[place]
        if kind == IGNORED:
            continue
        if kind != SEPARATOR and kind != BACKSLASH:
            if kind != before or kind == CHARACTER:
                number, size = number + 1, 0
                starts[number] = place
                if before == BACKSLASH and kind == LETTER:
                    starts[number], is_tex[number], hashes[number] = place_before, True, TEX
            hashes[number] += POWERS[size & (LONGEST - 1)] * np.uint64(folded[codes[place]])
            ends[number] = place
            size += 1
        before, place_before = kind, place
    found = number + 1
    return hashes[:found].copy(), starts[:found].copy(), ends[:found].copy(), is_tex[:found].copy()


def mixed(values: Hashes) -> Hashes:
    """MurmurHash3's finaliser, in place: every bit of a result depends on all bits of its value."""
    values ^= values >> np.uint64(33)
    values *= MIX_1
    values ^= values >> np.uint64(33)
    values *= MIX_2
    values ^= values >> np.uint64(33)
    return values


def runs(hashes: Hashes, n: int) -> Hashes:
    """Polynomial hash of each run of `n` grams: (T - n + 1,), empty for fewer than `n` grams."""
    length = len(hashes) - n + 1
    if length <= 0:
        return np.empty(0, np.uint64)
    total = hashes[:length].copy()
    for shift in range(1, n):
        total *= BASE
        total += hashes[shift : shift + length]
    return total


def runs_at(hashes: Hashes, starts: NDArray[np.int64], n: int) -> Hashes:
    """`runs(hashes, n)` at the given starts (S,) only."""
    total = hashes[starts]
    for shift in range(1, n):
        total = total * BASE + hashes[starts + shift]
    return total
