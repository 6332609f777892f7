r"""Words beside a value: whether they add nothing to it, as in "18个苹果", "La réponse est 18", "18 (元)".

A word adds nothing if `words.toml` lists it as a counter, as what announces or what ends an answer, or if it
is a word of the question that cannot change a value. Every other word is taken to change it.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from .units import fits, singular
from .vocabulary import (
    CONSTANTS,
    ENGLISH_STOPS,
    FUNCTIONS,
    GENERIC_UNITS,
    GREEK,
    LETTERS,
    LINKING,
    LINKS,
    UNIT_POWERS,
    UNITS,
    WORDS,
    WRAPPED,
)

NOT_WORDS = {*FUNCTIONS, *CONSTANTS, *GREEK} - {"min", "max", "arg"}
MAX_WORDS, MAX_UNIT_WORDS = 24, 8  # beside a value, and as a unit or a label
MAX_PIECES = 40  # characters of a word that is read in pieces
_PIECES = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af々"  # scripts without spaces or with endings
_IN_PIECES = re.compile(f"[{_PIECES}]")
_SPACED = LETTERS.replace(r"\d_", rf"\d_{_PIECES}")  # letters of a script with spaces
_WORD = rf"(?<!\\)(?:[{_PIECES}]+|(?<![A-Za-z]){_SPACED}(?:['-]{_SPACED})*\.?)"
_ONE_WORD = re.compile(_WORD)
_TOKEN = re.compile(rf"(?P<beside>{_WORD}|\((?:{_WORD}\s?){{1,4}}+\)|[\s:,]+)|\\?[A-Za-z]+|.", re.DOTALL)
_UNIT_WORD = re.compile(rf"{_WORD}|[€°¢]")
_BETWEEN_UNITS = re.compile(r"[\s/,.()'~-]*")
_POWER = re.compile(rf"({_WORD})\s*\^\s*-?[123](?!\d)")
_DIGITS = re.compile("[一二两三四五六七八九十]")  # in a name: 三年级
_MONTH = re.compile(r"\bMay\b")  # no doubt
_OF = {"of", "de", "von", "di", "из", "от", "من"}
_SUMS = {"total", "insgesamt", "summe", "gesamt", "всего", "المجموع", "مجموع", "إجمالي"}


def _whole_words(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern of whole words; a star stands for any ending."""
    return re.compile("(?:" + "|".join(re.escape(word).replace(r"\*", ".*") for word in words) + r")\Z")


_IN_PARTS = frozenset(filter(_IN_PIECES.match, WORDS["stops"]))
_STOPS = _whole_words(WORDS["stops"] - _IN_PARTS)
_INSIDE = re.compile("|".join(map(re.escape, sorted(_IN_PARTS))))  # a stop anywhere in a word without spaces
FOREIGN = _whole_words(word for word in WORDS["stops"] - _IN_PARTS - ENGLISH_STOPS if len(word) > 1)
_SCALING = {name: _whole_words(WORDS[name]) for name in ("scales", "scaled")}
_SCALING_PIECES = {name: sorted(filter(_IN_PIECES.match, WORDS[name])) for name in _SCALING}
_BESIDE_BOX = r"(?:[\s$*~:]|\\[()\[\],;:! ]|\\(?:text|mathrm)\s*\{|[{}])*"
_LAST_WORDS = re.compile(rf"(?:{_WORD}[\s-]+){{0,3}}{_WORD}(?={_BESIDE_BOX}\Z)")
_FIRST_WORDS = re.compile(rf"{_BESIDE_BOX}((?:{_WORD}[\s-]+){{0,3}}{_WORD})")
_MANY = re.compile(rf"(?:{'|'.join(map(re.escape, WORDS['many']))})\s*\Z")
_TELLING = WORDS["denials"] | WORDS["alternatives"] | WORDS["doubts"]
_BESIDE = {True: WORDS["before"], False: WORDS["measure"] | WORDS["after"]}  # by whether it stands before


def bare(text: str, question: str) -> str | None:
    """Return a cleaned answer without the words beside its value; None if there are none, or one that changes
    it.
    """
    text = " ".join(WRAPPED.sub(r" \1 ", text).split())
    tokens = list(_TOKEN.finditer(text))
    places = [place for place, token in enumerate(tokens) if token["beside"] is None]
    if not places or len(places) == len(tokens):
        return None
    first, last = places[0], places[-1]
    start, end = tokens[first].start(), tokens[last].end()
    if (start == 0 and end == len(text)) or not re.search(r"\d|\\", text[start:end]):
        return None
    if re.search(r"(?<![A-Za-z])[A-Za-z]\Z", text[:start]) and text[start] not in " (":
        return None  # a factor
    fits = add_nothing(text[:start], question, before=True) and add_nothing(text[end:], question)
    return text[start:end].strip(" ,:") if fits else None


def add_nothing(phrase: str, question: str, *, before: bool = False) -> bool:
    """Whether the words of a phrase beside a value say nothing about it; `question` is "" if unknown."""
    words = [word.rstrip(".") for word in _ONE_WORD.findall(phrase)]
    if len(words) > MAX_WORDS:
        return False
    lower = [word.casefold() for word in words]
    if before and lower and lower[-1] in _OF and not _SUMS & set(lower):
        return False
    return all(_adds_nothing(word, place, question, before) for place, word in enumerate(words))


def stopped(phrase: str) -> bool:
    """Whether a phrase has a word that changes a value, or too many words for a unit or a label."""
    words = _ONE_WORD.findall(phrase.casefold())
    return len(words) > MAX_UNIT_WORDS or any(
        (_INSIDE.search if _IN_PIECES.match(word) else _STOPS.match)(word)
        for word in words
        if word not in UNITS
    )


def is_unit(unit: str, question: str) -> bool:
    """Whether what stands after a value can be its unit: words that add nothing, not a power alone, and no
    signs but powers of units.
    """
    unit = _POWER.sub(lambda match: match[1] if _has_powers(match[1]) else match[0], unit)
    words = _UNIT_WORD.findall(unit)
    if not words or unit[0] == "/" or not _BETWEEN_UNITS.fullmatch(_UNIT_WORD.sub(" ", unit)):
        return False
    powers = [word for word in words if word.casefold() in UNIT_POWERS]
    if powers and not any(map(_has_powers, words)):
        return False  # 3 squared
    return all(
        word.casefold() in GENERIC_UNITS
        or word in powers
        or _adds_nothing(word.rstrip("."), place, question, False)
        for place, word in enumerate(words)
    )


def _has_powers(word: str) -> bool:
    word = singular(word.casefold())
    return word in ("unit", "units") or UNITS.get(word, ("",))[0] in ("length", "time")


@lru_cache(maxsize=16384)
def _adds_nothing(word: str, place: int, question: str, before: bool) -> bool:
    if _IN_PIECES.match(word):
        return len(word) <= MAX_PIECES and _in_pieces(word, question.casefold(), before)
    written, word = word, word.casefold()
    if word in (_BESIDE[before]):
        return len(word) > 1 or place > 0 or not word.isascii()
    if not before and (unit := singular(word)) in UNITS:
        return not question or fits(unit, question)
    if word in WORDS["asked"]:
        return _counted(word, question.casefold())
    if written in NOT_WORDS or (written.isascii() and written.isupper() and len(word) <= 5):
        return False  # sin, pi, the triangle ABC
    if len(word) < 3 or _STOPS.match(word):
        return False
    return _stands_in(word, question)


def scaling(before: str, after: str) -> tuple[str, str]:
    """Return the words that touch a box and change its value: half of, thousand; "" where none does."""
    left, right = _LAST_WORDS.search(before), _FIRST_WORDS.match(after)
    return _scaling(left[0], True) if left else "", _scaling(right[1], False) if right else ""


def _scaling(phrase: str, before: bool) -> str:
    """Return the words of a phrase from the box to one that scales, if only articles are between."""
    which = "scales" if before else "scaled"
    words = _ONE_WORD.findall(phrase)
    for place, word in enumerate(words[::-1] if before else words):
        word = word.casefold().rstrip(".")
        if _IN_PIECES.match(word):
            touching = (
                piece
                for piece in _SCALING_PIECES[which]
                if (word.endswith if before else word.startswith)(piece)
            )
            piece = next(touching, "")
            return phrase if piece and not before else piece
        if _SCALING[which].match(word):
            return " ".join(words[-place - 1 :] if before else words[: place + 1])
        if word not in _OF and word not in LINKING:
            break
    return ""


def last_words(text: str) -> set[str]:
    """Return the words right before the end of a text that deny or doubt what follows: "not" of "is not"."""
    found = _telling(reversed(_ONE_WORD.findall(_MONTH.sub(" ", text).casefold())), str.endswith)
    return found | {"not"} if re.search(r"anything but\W*\Z", text, re.IGNORECASE) else found


def first_words(text: str) -> set[str]:
    """Return the words right at the beginning of a text that deny or doubt what precedes."""
    if re.match(r"[\s$*)\]\\,'\"]*(?:is |are |was )?(?:not|never) (?:an?|only|just)\b", text):
        return set()
    return _telling(iter(_ONE_WORD.findall(text.casefold())), str.startswith)


def _telling(words: Iterator[str], touches: Callable[[str, str], bool]) -> set[str]:
    """Get the first word that is no mere link, if it tells; of one in pieces the listed pieces at its end."""
    for word in words:
        if _IN_PIECES.match(word):
            inner = word.strip("是为はが")
            return {piece for piece in _TELLING if touches(word, piece) or touches(inner, piece)}
        if word.endswith("n't"):
            return {"not"}
        if word in _TELLING or (word not in WORDS["before"] and word not in LINKS):
            return {word} & _TELLING
    return set()


def _stands_in(word: str, question: str) -> bool:
    """Whether a word is one of the question's, perhaps with another ending."""
    stem = max(4, len(word) - 3)
    return any(
        word == other or (len(word) >= 4 and len(other) >= 4 and word[:stem] == other[:stem])
        for other in _words(question)
    )


@lru_cache(maxsize=4096)
def _words(question: str) -> frozenset[str]:
    return frozenset(word.rstrip(".") for word in _ONE_WORD.findall(question.casefold()))


def _counted(word: str, question: str) -> bool:
    """Whether the question asks how many of `word` there are."""
    places = (match.start() for match in re.finditer(re.escape(word), question))
    return any(_MANY.search(question[max(0, place - 20) : place]) for place in places)


def _in_pieces(word: str, question: str, before: bool) -> bool:
    """Whether a word without spaces consists of pieces that add nothing."""
    said = _BESIDE[before]
    stops = [stop for stop in _INSIDE.findall(word) if len(stop) > 1]
    if any(not any(stop in piece for piece in said) for stop in stops):  # no stop of two pieces
        return False
    reached = {0}
    for end in range(1, len(word) + 1):
        for start in range(max(0, end - 12), end):
            if start in reached and _is_piece(word, start, end, question, said, before):
                reached.add(end)
                break
    return len(word) in reached


def _is_piece(word: str, start: int, end: int, question: str, said: frozenset[str], before: bool) -> bool:
    """Whether `word[start:end]` is listed, asked for, or may name a thing."""
    piece = word[start:end]
    if piece in said or (piece in WORDS["asked"] and _counted(piece, question)):
        return True
    if not before and (unit := re.sub("^(?:平方|立方|제곱|세제곱)", "", piece)) in UNITS:
        return not question or fits(unit, question)
    if _INSIDE.search(_DIGITS.sub("", piece) if before and len(piece) > 2 else piece):
        return False
    if not question:  # a thing after its counter, as in 18个苹果
        return start > 0 and not before
    return piece in question and (len(piece) > 1 or (start > 0 and end == len(word) and not before))
