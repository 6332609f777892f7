"""What a shared run of grams proves: the difference between a leak and a stock phrase.

Pages without any benchmark text share runs of numbers, formulas, and phrases of short words with benchmarks
("is equal to the sum of the squares of the"). So a run of full length needs content: `WORDS` words of
`LETTERS` letters, or `CHARACTERS` CJK characters; and something specific to its item: a word that few
benchmark texts use, or a number. Without the specific part ("are the mean and standard deviation of the
random variable") it must be part of a run of `SURE` grams, the length from which GPT-3's authors call an
overlap a leak. A question that is there completely needs only one word. A short text must match completely
and needs a word and something specific; an answer alone, which many pages reach, needs several words.
Drawing code, which many questions have in common, only counts where a question must be there completely.
"""

from enum import IntFlag

import numpy as np
from numpy.typing import NDArray

from pipeline.crawl.grams import CJK_CHARACTER, Hashes

WORDS, LETTERS, CHARACTERS = 3, 4, 4
SURE = 13
RARE_SHARE, RARE_TEXTS = 1 / 2000, 10  # a word is specific if at most so many benchmark texts use it
ANSWER_WORDS, ANSWER_CHARACTERS, PLAIN_WORDS = 3, 6, 7


class Kind(IntFlag):
    """Properties of a gram that count as evidence."""

    LONG = 1  # a word of LETTERS letters or more
    WORD = 2  # a word of two letters or more
    CHARACTER = 4  # CJK
    NUMBER = 8  # of two digits or more, and not a round one
    FORMULA = 16  # a number, a TeX command or a single letter


def kind(word: str) -> Kind:
    """Return the properties of one gram."""
    if word[0].isdigit():
        round_one = word.strip("0") == "1"
        return Kind.FORMULA | (Kind.NUMBER if len(word) > 1 and not round_one else Kind(0))
    if CJK_CHARACTER.match(word):
        return Kind.CHARACTER
    if word[0] == "\\" or len(word) == 1:
        return Kind.FORMULA
    return Kind.WORD | (Kind.LONG if len(word) >= LETTERS else Kind(0))


def specific(grams: Hashes, kinds: NDArray[np.uint8], text_of: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which grams (T,) of all benchmark texts are specific to an item; `text_of` (T,) numbers the texts."""
    words, index = np.unique(grams, return_inverse=True)
    pairs = np.unique(index.astype(np.int64) * (int(text_of[-1]) + 1) + text_of)  # each word once per text
    texts = np.bincount(pairs // (int(text_of[-1]) + 1), minlength=len(words))
    limit = max(RARE_TEXTS, (int(text_of[-1]) + 1) * RARE_SHARE)
    rare = (texts <= limit)[index] & ((kinds & (Kind.LONG | Kind.CHARACTER)) > 0)
    return rare | ((kinds & Kind.NUMBER) > 0)


def windows(flags: NDArray[np.bool_], n: int) -> NDArray[np.int64]:
    """How many of each `n` neighbours (T,) are set: (T - n + 1,)."""
    total = np.concatenate([[0], np.cumsum(flags)])
    return total[n:] - total[:-n]


def full_runs(
    kinds: NDArray[np.uint8], is_specific: NDArray[np.bool_], n: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """(has a word, has content, proves a leak) for each run of `n` grams of a text: (T - n + 1,) each."""
    any_word = windows((kinds & (Kind.WORD | Kind.CHARACTER)) > 0, n) > 0
    characters = windows((kinds & Kind.CHARACTER) > 0, n)
    words = windows((kinds & Kind.LONG) > 0, n)
    content = WORDS * characters + CHARACTERS * words >= WORDS * CHARACTERS
    sure = content & ((characters >= CHARACTERS) | (windows(is_specific, n) > 0))
    return any_word, content, sure


def short_text(kinds: NDArray[np.uint8], is_specific: NDArray[np.bool_], is_question: bool) -> bool:
    """Whether a text shorter than a full run proves a leak where all of it is found."""
    characters = int(((kinds & Kind.CHARACTER) > 0).sum())
    words = int(((kinds & Kind.WORD) > 0).sum())
    has_specific = bool(is_specific.any())
    if not is_question:
        return has_specific and (words >= ANSWER_WORDS or characters >= ANSWER_CHARACTERS)
    if words + characters == 0 or (words + characters == 1 and len(kinds) == WORDS and not has_specific):
        return False
    formula = bool(((kinds & Kind.FORMULA) > 0).any())
    plain = words >= PLAIN_WORDS or characters >= CHARACTERS
    return formula or plain or has_specific
