"""Text from phrase books (`books/*.yaml`): small context-free grammars, alternatives drawn at random.

A book maps symbols to alternatives; a symbol with one text instead of a list has one. In an alternative
`<symbol>` is expanded in turn, `<3..40>` is a random integer, `<2.5..9>` a random number with one decimal,
and `<@symbol>` is drawn once and then stays the same on the whole page (a person, a town). `<symbol*2..4>` is
that many alternatives, no one twice on a page, as running text; `<symbol^2..4>` as blocks of their own,
between empty lines. `<symbol^3:mark>` puts the symbol `mark` before each, and `<?symbol>` is nothing where
the book has no such symbol. Formulas are TeX between ⟦ ⟧. `{slots}` are filled by the maker of that symbol.

A book also knows the symbols of the books in its `include`, and those of `shared` or, for a Chinese genre
(its name ends in `_zh`), `shared_zh`.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from pipeline.core.stage import InputError

T = TypeVar("T")
Phrases = dict[str, list[str] | str]

FOLDER = Path(__file__).parent
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader takes 0.03 s, the other one 0.5 s
NO_OTHER_KEYS = ConfigDict(extra="forbid")  # of dataclasses read by `load_yaml`
REFERENCE = re.compile(
    r"<(?:(?P<low>\d+(?:\.\d+)?)\.\.(?P<high>\d+)|(?P<optional>\??)(?P<fixed>@?)(?P<name>[a-z_]+)"
    r"(?:(?P<join>[*^])(?P<least>\d+)(?:\.\.(?P<most>\d+))?)?(?::(?P<mark>[a-z_]+))?)>"
)


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
    """The phrases of one genre; `file` names file and book in errors."""

    file: str
    phrases: Phrases

    def __contains__(self, symbol: str) -> bool:
        return symbol in self.phrases

    def __getitem__(self, symbol: str) -> list[str]:
        if symbol not in self.phrases:
            raise InputError(f"{self.file}: symbol {symbol!r} is missing")
        options = self.phrases[symbol]
        return [options] if isinstance(options, str) else options


@cache
def books() -> dict[str, Book]:
    """Read all phrase books by genre, completed by those that they include."""
    files: dict[str, tuple[str, Phrases]] = {}
    for path in sorted((FOLDER / "books").glob("*.yaml")):
        for name, phrases in load_yaml(f"books/{path.name}", dict[str, Phrases]).items():
            files[name] = f"books/{path.name}: {name}", phrases

    def complete(name: str) -> Phrases:
        file, phrases = files[name]
        found: Phrases = {}
        for other in phrases.get("include", ()):
            if other not in files:
                raise InputError(f"{file}: there is no phrase book {other!r}")
            found |= complete(other)
        return found | phrases

    return {
        name: Book(file, complete("shared_zh" if name.endswith("_zh") else "shared") | complete(name))
        for name, (file, _) in files.items()
    }


class Writer:
    """Expands the symbols of the phrase book of one genre for one page.

    Args:
        makers: by symbol, the functions that draw the values of its slots; `{number}` counts its uses.
    """

    def __init__(self, rng: random.Random, genre: str, makers: Mapping[str, "Maker"]) -> None:
        self.rng, self.genre, self.makers = rng, genre, makers
        self.language = "zh" if genre.endswith("_zh") else "en"
        self.book = books()[genre]
        self.fixed: dict[str, str] = {}
        self.decks: dict[str, list[Any]] = {}
        self.uses: Counter[str] = Counter()

    def __call__(self, symbol: str) -> str:
        """Draw an alternative of `symbol`, expanded; raises InputError for an unknown symbol."""
        text = self.expand(self.rng.choice(self.book[symbol]))
        if symbol not in self.makers:
            return text
        self.uses[symbol] += 1
        return text.format(number=self.uses[symbol], **self.makers[symbol](self))

    def deal(self, name: str, options: Sequence[T]) -> T:
        """Draw one of the options of `name` that the page has not had, as long as there is one."""
        deck = self.decks.setdefault(name, [])
        if not deck:
            deck += self.rng.sample(options, len(options))
        return deck.pop()

    def expand(self, text: str) -> str:
        """Replace all references in `text`."""
        return REFERENCE.sub(self._value, text)

    def _value(self, reference: re.Match[str]) -> str:
        name, low = reference["name"], reference["low"]
        if low:
            if "." in low:
                return f"{self.rng.uniform(float(low), float(reference['high'])):.1f}"
            return str(self.rng.randint(int(low), int(reference["high"])))
        if reference["optional"] and name not in self.book:
            return ""
        if reference["fixed"]:
            if name not in self.fixed:
                self.fixed[name] = self(name)
            return self.fixed[name]
        return self._several(reference) if reference["join"] or reference["mark"] else self(name)

    def _several(self, reference: re.Match[str]) -> str:
        """Draw alternatives of a symbol, as running text or as blocks."""
        name, least = reference["name"], int(reference["least"] or 1)
        count = self.rng.randint(least, int(reference["most"] or least))
        if name in self.makers:
            texts = [self(name) for _ in range(count)]
        else:
            options = self.book[name]
            texts = [self.expand(self.deal(name, options)) for _ in range(min(count, len(options)))]
        if reference["join"] == "*":
            texts = [text[:1].upper() + text[1:] for text in texts]
        if reference["mark"]:
            texts = [self(reference["mark"]) + text for text in texts]
        return ("\n\n" if reference["join"] == "^" else " " if self.language == "en" else "").join(texts)


Maker = Callable[[Writer], Mapping[str, int | str]]
