"""Words in a page's source that tell whether it has formulas, and in which kinds of markup.

A search of the whole source costs a hundredth of a page's extraction, so each pattern finds all words that
begin alike. A literal prefix makes a pattern as fast as a search for a string.
"""

import re
from collections.abc import Iterator

import numpy as np

TEX = re.compile(
    r"tex(?:(?<=[lk]atex)|(?<=data-tex)|=|\.(?:cgi|render)|html|-(?:inline|block)|(?<=class=\"tex)\")"
)
MATH = re.compile(
    r"ath(?:Jax|(?<=:oMath)|(?<=math)"
    r"(?:(?:(?<=[<:]math)|(?<=tex-math))(?!-)|[ /?\"-]|ml=|url|quill|(?<=d-math)>))"
)
# Tags, but for links and MathML, with what TeX in a value has; and names of attributes that say TeX.
TAGGED = re.compile(
    r"<[b-ln-z](?:[^<>\\^%{&$]++|&(?!quot)|%(?!(?:25)?5[CcEe]|7B)|\{(?!\")|\$(?<![\"']\$))*+[\\^%{&$][^<>]*"
)
ATTRIBUTE = re.compile(r"([\w:-]+)=(\"[^\"]*\"|'[^']*')")
VALUE = re.compile(
    r"\\[A-Za-z]{2}|[\w)\]}]\^[\w{\\(]|%(?:25)?5[CcEe]|[\"']\s*(?:\$[^$]+\$|\\[(\[])|data:%7B|"
    r"(?:[tT]ex|[fF]ormula|[eE]quation|[eE]xpression)(?:&quot;|\"):"
)
NAMED = re.compile(r"data-(?:[\w-]*-)?(?:(?:la|ka)?tex|math|formula|equation|expr|eq)(?:-[\w-]*)?(?==)")
NO_FORMULA = re.compile(r"(?:on.*|style|class|id|href|srcset|content|d|pattern|action)$")
NO_PROOF = frozenset(("mathquill", "math>"))


class Source:
    """The source of a page, which is asked for many words.

    `holds` takes a third of the time of `in`: four bytes of a word are compared with those at all places at
    once. `letters` are the source in UTF-8, given where they are known.
    """

    def __init__(self, html: str, letters: bytes | None = None) -> None:
        self.html = html
        self.letters = html.encode("utf-8", "replace") if letters is None else letters

    def with_html(self, html: str) -> "Source":
        """Return this source with another text, in which the same ASCII words are."""
        return Source(html, self.letters)

    def holds(self, word: str, rare: int = 0) -> bool:
        """Whether a word of at least four ASCII characters is in the source.

        The four characters from `rare` on should seldom be in a page.
        """
        letters = word.encode()
        sought = np.frombuffer(letters, np.uint32, 1, rare)
        return any((fours == sought).any() for fours in _fours(self.letters)) and letters in self.letters

    def places(self, word: str) -> list[int]:
        """Where in `letters` four ASCII characters are, given in lower case, in any case; and some others."""
        sought = np.frombuffer(word.encode(), np.uint32)
        lower = np.frombuffer(self.letters, np.uint8) | 32
        found: list[int] = []
        for by, fours in enumerate(_fours(lower.data)):
            if (hits := fours == sought).any():
                found += (4 * np.flatnonzero(hits) + by).tolist()
        return sorted(found)

    def tags(self) -> tuple[int, np.ndarray]:
        """How many tags (rather, characters `<`) there are, and at each place whether a closing one is."""
        letters = np.frombuffer(self.letters, np.uint8)
        tags = letters == ord("<")
        return np.count_nonzero(tags), tags[:-1] & (letters[1:] == ord("/"))


def _fours(letters: bytes | memoryview) -> Iterator[np.ndarray]:
    """Bytes as numbers of four: those that begin at places 0, 4, 8, ..., then at 1, 5, 9, ..., up to 3."""
    for by in range(4):
        yield np.frombuffer(letters, np.uint32, max(0, len(letters) - by) // 4, min(by, len(letters)))


def formula_words(source: Source) -> set[str]:
    """Words of formula markup in a page's source, selectors of attributes that may hold TeX among them.

    `mathJax` stands for MathJax.
    """
    words = {*TEX.findall(source.html), *(f"m{word}" for word in MATH.findall(source.html))}
    words |= {"mjx-"} if source.holds("mjx-") else set()
    words.update(f"[{name}]" for name in NAMED.findall(source.html))
    for tag in filter(VALUE.search, TAGGED.findall(source.html)):
        for name, value in ATTRIBUTE.findall(tag):
            if VALUE.search(value) and not NO_FORMULA.match(name):
                words.add(f"[{name.lower().replace(':', chr(92) + ':')}]")
    return words


def has_formula_markup(words: set[str]) -> bool:
    """Whether a page with these words may have formulas."""
    return not words <= NO_PROOF
