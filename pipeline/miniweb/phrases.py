"""Text from phrase books (`books/*.yaml`): small context-free grammars, alternatives drawn at random.

A book maps symbols to alternatives. In an alternative `<symbol>` is expanded in turn, `<3..40>` is a random
integer, `<2.5..9>` a random number with one decimal, and `<@symbol>` is drawn once and then stays the same
on the whole page (a person, a town). A symbol with one text instead of a list is a constant. Formulas are
TeX between the brackets ⟦ ⟧; the markup of the site decides how they are written. `{slots}` are filled by
the code that asks for the symbol.

A book also knows the symbols of the books in its `include`, and those of `shared` or, for a Chinese genre
(its name ends in `_zh`), `shared_zh`.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from pipeline.protocol.stage import InputError

T = TypeVar("T")
Phrases = dict[str, list[str] | str]

FOLDER = Path(__file__).parent
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader takes 0.03 s, the other one 0.5 s
NO_OTHER_KEYS = ConfigDict(extra="forbid")  # of dataclasses read by `load_yaml`
REFERENCE = re.compile(r"<(@?[a-z_]+|\d+\.\.\d+|\d+\.\d+\.\.\d+)>")


def load_yaml(path: str, kind: type[T]) -> T:
    """Return the YAML file at `path`, below this package, as `kind`. Raises InputError with file and key."""
    try:
        content = yaml.load((FOLDER / path).read_bytes(), Loader=LOADER)
        return TypeAdapter(kind).validate_python(content)
    except yaml.YAMLError as error:
        raise InputError(f"{path}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


@dataclass(frozen=True)
class Book:
    """The phrases of one genre; `place` names file and book in errors."""

    place: str
    phrases: Phrases

    def __contains__(self, symbol: str) -> bool:
        return symbol in self.phrases

    def __getitem__(self, symbol: str) -> list[str] | str:
        if symbol not in self.phrases:
            raise InputError(f"{self.place}: symbol {symbol!r} is missing")
        return self.phrases[symbol]

    def check(self, text: str, place: str) -> None:
        """Raise InputError, naming `place`, where `text` refers to a symbol that the book lacks."""
        for reference in REFERENCE.findall(text):
            if not reference[0].isdigit() and reference.removeprefix("@") not in self.phrases:
                raise InputError(f"{place}: symbol {reference.removeprefix('@')!r} is missing")


@cache
def books() -> dict[str, Book]:
    """Read all phrase books by genre, completed by what they include."""
    own: dict[str, tuple[str, Phrases]] = {}
    for path in sorted((FOLDER / "books").glob("*.yaml")):
        for name, phrases in load_yaml(f"books/{path.name}", dict[str, Phrases]).items():
            own[name] = f"books/{path.name}: {name}", phrases

    def complete(name: str) -> Phrases:
        place, phrases = own[name]
        found: Phrases = {}
        for other in phrases.get("include", ()):
            if other not in own:
                raise InputError(f"{place}: there is no phrase book {other!r}")
            found |= complete(other)
        return found | phrases

    found = {
        name: Book(place, complete("shared_zh" if name.endswith("_zh") else "shared") | complete(name))
        for name, (place, _) in own.items()
    }
    for book in found.values():
        for value in book.phrases.values():
            for text in [value] if isinstance(value, str) else value:
                book.check(text, book.place)
    return found


class Writer:
    """Expands the symbols of the phrase book of one genre for one page."""

    def __init__(self, rng: random.Random, genre: str) -> None:
        self.rng, self.genre = rng, genre
        self.language = "zh" if genre.endswith("_zh") else "en"
        self.book = books()[genre]
        self.fixed: dict[str, str] = {}

    def __call__(self, symbol: str) -> str:
        """Draw an alternative of `symbol`, expanded; raises InputError for an unknown symbol."""
        options = self.book[symbol]
        return self.expand(options if isinstance(options, str) else self.rng.choice(options))

    def several(self, symbol: str, count: int) -> list[str]:
        """Draw `count` different alternatives of `symbol` (at most all there are), expanded."""
        options = self.book[symbol]
        return [self.expand(text) for text in self.rng.sample(options, min(count, len(options)))]

    def running(self, symbol: str, count: int) -> str:
        """Return `several` sentences as one text."""
        return self.join(self.several(symbol, count))

    def join(self, sentences: Sequence[str]) -> str:
        return (" " if self.language == "en" else "").join(sentences)

    def expand(self, text: str) -> str:
        """Replace all references in `text`."""
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
