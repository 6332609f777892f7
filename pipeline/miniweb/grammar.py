"""Text from phrase books: small context-free grammars whose alternatives are drawn at random.

A phrase book maps a symbol to alternatives. In an alternative `<symbol>` is expanded in turn, `<3..40>` is a
random integer, `<2.5..9>` a random number with one decimal, and `<@symbol>` is drawn once and then stays the
same in the whole page (a person, a town). Formulas are TeX between the brackets ⟦ ⟧; the markup of the site
decides how they are written.
"""

import random
import re
from collections.abc import Mapping, Sequence

Phrases = Mapping[str, Sequence[str]]

REFERENCE = re.compile(r"<(@?[a-z_]+|\d+\.\.\d+|\d+\.\d+\.\.\d+)>")


class Writer:
    """Expands the symbols of one phrase book for one page."""

    def __init__(self, rng: random.Random, phrases: Phrases) -> None:
        self.rng = rng
        self.phrases = phrases
        self.fixed: dict[str, str] = {}

    def __call__(self, symbol: str) -> str:
        """One alternative of `symbol`, expanded."""
        return self.expand(self.rng.choice(self.phrases[symbol]))

    def several(self, symbol: str, count: int) -> list[str]:
        """`count` different alternatives of `symbol` (at most all there are), expanded."""
        options = self.phrases[symbol]
        return [self.expand(text) for text in self.rng.sample(options, min(count, len(options)))]

    def expand(self, text: str) -> str:
        """`text` with all references replaced; raises KeyError for an unknown symbol."""
        return REFERENCE.sub(lambda match: self._value(match.group(1)), text)

    def _value(self, reference: str) -> str:
        if reference[0].isdigit():
            low, high = re.fullmatch(r"(\d+(?:\.\d+)?)\.\.(\d+)", reference).groups()
            if "." in low:
                return f"{self.rng.uniform(float(low), float(high)):.1f}"
            return str(self.rng.randint(int(low), int(high)))
        if not reference.startswith("@"):
            return self(reference)
        name = reference[1:]
        if name not in self.fixed:
            self.fixed[name] = self(name)
        return self.fixed[name]
