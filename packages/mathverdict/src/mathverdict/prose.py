"""Compare answers in words: equal words, a sentence that states a value, a short answer to a long reference.

Only what needs no understanding of the text is decided; the rest is undecided with the reason "prose".
"""

import re
from collections.abc import Callable

from .notation import number_word
from .remarks import FOREIGN
from .tree import Decision
from .vocabulary import ARTICLES, LETTERS, LONG_WORD, SYNONYMS, WRAPPED

MAX_SENTENCE = 2000
_WORD = re.compile(rf"{LETTERS}(?:['-]{LETTERS})*|\d+(?:\.\d+)?|√")
_HEDGE = re.compile(
    r"\b(?:anything|but|least|most|more|less|fewer|greater|over|under|above"
    r"|below|between|wrong|incorrect|false"
    r"|plus|minus|half|twice|double|triple|maybe|possibly|probably|except|neither|nor|unless|unsure|almost|nearly|cannot"
    r"|can't|can not|could not|impossible|undetermined|depends?|requires?|unknown|either"
    r"|without|unclear|insufficient|not|never|no)\b|不能|无法|不",
    re.IGNORECASE,
)
_MAYBE = re.compile(r"\b(?:perhaps|approach(?:es)?|(?:could|might|may) be\s+\S+\s*\.?$)", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.,^{])-?\$?\d+(?:,\d{3})*(?:\.\d+)?(?:/\d+)?(?![\w^])")
_CLAIM = (
    re.compile(r"=\s*([^=]{1,80}?)\s*\.?\s*$"),
    re.compile(
        r"\b(?:is|are|be|equals|of|to|charge|was)\s+(?:equal to\s+|exactly\s+)?(\S.{0,60}?)\s*\.?\s*$"
    ),
)


_WORDS_ONLY = re.compile(rf"{LETTERS}(?:(?:['-]|[\s,]+){LETTERS})*")
_LONG_WORD = re.compile(rf"{LONG_WORD}|[√∅]")
_SIGN = re.compile(rf"\\?{LETTERS}|\d+|[^\w\s]|_")


def _signs(text: str) -> list[str]:
    """All tokens of a text, with signs and brackets."""
    found = [sign for sign in _SIGN.findall(WRAPPED.sub(r" \1 ", text)) if sign not in ("$", ".")]
    return [sign.casefold() if len(sign) > 1 and sign[0] != "\\" else sign for sign in found]


def _plain(text: str) -> str:
    return re.sub(r"[{}$\\]", " ", WRAPPED.sub(r" \1 ", text)).casefold()


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without articles."""
    return [word for word in _WORD.findall(_plain(text)) if word not in ARTICLES]


def is_words(text: str) -> bool:
    """Whether a text is only words: no numerals, signs, operators, brackets or single letters alone."""
    plain = WRAPPED.sub(r" \1 ", text).strip(" .$")
    return _WORDS_ONLY.fullmatch(plain) is not None and _LONG_WORD.search(plain) is not None


def same_words(first: str, second: str) -> bool:
    """Whether two texts are the same words or known synonyms; with any mathematics in them, sign for sign."""
    one, other = words(first), words(second)
    if not is_words(first) or not is_words(second):
        return bool(one) and _signs(first) == _signs(second)
    return one == other or _canonical(one) == _canonical(other) or "".join(one) == "".join(other)


def _canonical(found: list[str]) -> str:
    joined = "-".join(found)
    return SYNONYMS.get(joined, number_word(" ".join(found)) or joined)


def has_sentence(text: str) -> bool:
    """Whether a text is a sentence and not only a name, a unit or a value."""
    plain = _plain(re.sub(r"\\[A-Za-z]+", " ", text))
    return len(re.findall(r"[^\W\d_]{2,}", plain)) >= 3 or len(re.findall(r"[\u4e00-\u9fff]", plain)) >= 5


def claims(text: str) -> list[str]:
    """Values that a sentence may state: what follows its last = or verb, and its only number."""
    if not text.isascii() or any(map(FOREIGN.match, words(text))):  # no English
        return []
    text = text[-MAX_SENTENCE:]
    last = re.split(r"(?<=[a-z\d)])[.!?。；]\s+(?=[A-Z\u4e00-\u9fff])", text.strip())[-1]
    if _HEDGE.search(last) or _MAYBE.search(last):
        return []
    found = [match[1] for pattern in _CLAIM if (match := pattern.search(last))]
    numbers = _NUMBER.findall(last)
    return found[:1] + (numbers if len(numbers) == 1 and len(numbers[0]) < 30 else [])


def compare_prose(gold: str, given: str, same: Callable[[str, str], bool], *, strict: bool) -> Decision:
    """Compare two answers of which at least one is in words; `same` compares values found in them.

    With `strict`, only the same words are right.
    """
    if same_words(gold, given):
        return "right", "words"
    if strict:
        return "undecided", "prose"
    if has_sentence(given) and not has_sentence(gold):
        for claim in claims(given):
            if same(gold, claim):
                return "right", "value that the sentence states"
        return "undecided", "prose"
    if has_sentence(gold):
        return _against_sentence(gold, given)
    return "wrong", "words"


def _against_sentence(gold: str, given: str) -> Decision:
    """Accept the first or last words of a reference in words, or its numbers in order without new words."""
    expected, found = words(gold), words(given)
    if not found or _HEDGE.search(given) or _HEDGE.search(gold):
        return "undecided", "prose"
    ours, theirs = ([word for word in side if word[0].isdigit()] for side in (expected, found))
    if theirs:
        extra = [word for word in found if not word[0].isdigit() and word not in expected]
        known = ours == theirs and len(ours) > 1 and not extra
        return ("right", "numbers of the sentence") if known else ("undecided", "prose")
    at_an_end = len(found) <= 2 and found in (expected[: len(found)], expected[-len(found) :])
    if at_an_end and number_word(" ".join(found)) is None:
        return "right", "word of the sentence"
    return "undecided", "prose"
