"""Words in a page's source that tell whether it has formulas, and in which kinds of markup.

A search of the whole source costs a hundredth of a page's extraction, so each pattern finds all words that
begin alike. A literal prefix makes a pattern as fast as a search for a string.
"""

import re

PATTERNS = (
    re.compile(
        r"tex(?:(?<=[lk]atex)|(?<=data-tex)|=|\.(?:cgi|render)|html|-(?:inline|block)|(?<=class=\"tex)\")"
    ),
    re.compile(r"math(?:(?<=[<:]math)(?!-)|[ /?\"-]|url|quill|(?<=d-math)>)"),
)
STRINGS = ("athJax", "ql-formula", "cht=tx")
NO_PROOF = frozenset(("mathquill", "math>"))
HEAD = 30_000  # characters in which a page names its scripts


def formula_words(html: str) -> set[str]:
    """Words of formula markup in a page's source."""
    words = {word for pattern in PATTERNS for word in pattern.findall(html)}
    words.update(word for word in STRINGS if word in html)
    return words | {"ASCIIMath"} if html.find("ASCIIMath", 0, HEAD) >= 0 else words


def has_formula_markup(words: set[str]) -> bool:
    """Whether a page with these words may have formulas."""
    return not words <= NO_PROOF
