"""Whether a text shows any sign of mathematics: the filter before deduplication of `crawl.order: math_first`.

MegaMath (Zhou et al. 2025) has a fastText model there, which must be trained first. This one counts formulas,
symbols and words, so that it exists before the loop has run and needs no model. Word problems of schools
have none of these: a question for a quantity after numbers counts instead. The filter is for recall: what
only looks like mathematics is left to the loop. Words and thresholds were chosen on pages of half of the
hosts of the labelled real pages and on half of the word problems.
"""

import re
import tomllib
from pathlib import Path

from webformulas.delimiters import FORMULA

SIGNS, LENGTH = 2, 1500  # least signs of a page, and the most characters for each
LISTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
WORDS = frozenset(LISTS["words"].split())
SYMBOL = re.compile("[∀∃∈∉∋∏∑√∛∠∧∨∩∪∫∬∮∴∵≃≅≈≠≡≤≥≦≧≪≫⊂⊃⊆⊇⊕⊗⊢⊥⌊⌋⌈⌉⟨⟩ℕℝℤℚℂℵ¬∂∇∅⇔↦⟶⟹⟺\U0001d434-\U0001d7ff]")
CJK_WORD = re.compile("|".join(LISTS["cjk_words"].split()))
# After one letter, which no address has, or a bracket. It begins with `=`, for speed.
EQUATION = re.compile(r"=(?:(?<=[^\w?&;/.]\w=)|(?<=[^\w?&;/.]\w =)|(?<=[)\]}]=)|(?<=[)\]}] =)) ?[\w(\[{\\-]")
ASKED = re.compile("|".join(LISTS["asked"].splitlines()))
NUMBER = re.compile(LISTS["numbers"])
SENTENCE_END = re.compile(r"[.!。！\n](?!\d)")
NUMBERS, REACH, QUESTION = 2, 300, 150  # least numbers, so many characters before the mark, in which it asks
WORTH = 2  # signs that such a question is worth
TEX = re.compile(r"[\\^_=<>]")
WORD = re.compile("[a-zà-ɏЀ-ӿ]+")


def has_mathematics(text: str) -> bool:
    """Whether a text holds a formula in TeX, or enough signs of mathematics for its length."""
    if "$" in text and any(TEX.search(formula[0]) for formula in FORMULA.finditer(text)):
        return True
    return signs(text) >= max(SIGNS, len(text) / LENGTH)


def signs(text: str) -> int:
    """How many words and symbols of mathematics, equations and, each for two, asked quantities a text has."""
    lowered = text.lower()
    found = sum(map(WORDS.__contains__, WORD.findall(lowered))) + WORTH * asked_quantities(lowered)
    found += len(EQUATION.findall(text))
    return found if text.isascii() else found + len(SYMBOL.findall(text)) + len(CJK_WORD.findall(text))


def asked_quantities(lowered: str) -> int:
    """Count the questions for a quantity in a paragraph with numbers, such as word problems end with."""
    found = 0
    for before in lowered.replace("？", "?").split("?")[:-1]:
        paragraph = before[-REACH:].rpartition("\n\n")[2]
        if ASKED.search(SENTENCE_END.split(paragraph)[-1][-QUESTION:]):
            found += len(NUMBER.findall(paragraph)) >= NUMBERS
    return found
