"""Whether a text shows any sign of mathematics: the filter before deduplication of `crawl.order: math_first`.

MegaMath (Zhou et al. 2025) has a fastText model there, which must be trained first. This one counts formulas,
symbols and words, so that it exists before the loop has run and needs no model. It is for recall: what only
looks like mathematics is left to the loop. Words and thresholds were chosen on pages of half of the hosts of
the labelled real pages; `tests/benchmarks/mathematics.py` measures it on those of the other half.
"""

import re
import tomllib
from pathlib import Path

from pipeline.formulas.delimiters import FORMULA

SIGNS, LENGTH = 2, 1500  # least signs of a page, and the most characters for each
LISTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
WORDS = frozenset(LISTS["words"].split())
SYMBOL = re.compile("[∀∃∈∉∋∏∑√∛∠∧∨∩∪∫∬∮∴∵≃≅≈≠≡≤≥≦≧≪≫⊂⊃⊆⊇⊕⊗⊢⊥⌊⌋⌈⌉⟨⟩ℕℝℤℚℂℵ¬∂∇∅⇔↦⟶⟹⟺\U0001d434-\U0001d7ff]")
CJK_WORD = re.compile("|".join(LISTS["cjk_words"].split()))
# After one letter, which no address has, or a bracket. It begins with `=`, for speed.
EQUATION = re.compile(r"=(?:(?<=[^\w?&;/.]\w=)|(?<=[^\w?&;/.]\w =)|(?<=[)\]}]=)|(?<=[)\]}] =)) ?[\w(\[{\\-]")
TEX = re.compile(r"[\\^_=<>]")
WORD = re.compile("[a-zà-ɏЀ-ӿ]+")


def has_mathematics(text: str) -> bool:
    """Whether a text holds a formula in TeX, or enough signs of mathematics for its length."""
    if "$" in text and any(TEX.search(formula[0]) for formula in FORMULA.finditer(text)):
        return True
    return signs(text) >= max(SIGNS, len(text) / LENGTH)


def signs(text: str) -> int:
    """How many words and symbols of mathematics and equations a text has."""
    found = sum(map(WORDS.__contains__, WORD.findall(text.lower())))
    found += len(EQUATION.findall(text))
    return found if text.isascii() else found + len(SYMBOL.findall(text)) + len(CJK_WORD.findall(text))
