"""Words that the grader knows, from `vocabulary.toml`, and units with their sizes, from `words.toml`."""

import re
import tomllib
import unicodedata
from fractions import Fraction
from pathlib import Path
from typing import Any


def load(name: str) -> dict[str, Any]:
    """Read a table of words that lies beside this module."""
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return tomllib.loads(unicodedata.normalize("NFC", text))


COMBINING = "".join(chr(code) for code in range(0x300, 0x2000) if unicodedata.category(chr(code))[0] == "M")
LETTERS = rf"(?:[^\W\d_][{COMBINING}]*)+"  # with accents and vowel signs
LONG_WORD = rf"[^\W\d_](?:[^\W\d_]|[{COMBINING}])|[\u3040-\u9fff\uac00-\ud7af]"  # no letter alone
WRAPPED = re.compile(r"\\(?:text(?:bf|it|rm)?|mathrm|mbox|operatorname)\s*\{([^{}]*)\}")  # words in LaTeX


def _spellings(table: dict[str, str]) -> dict[str, str]:
    """Meanings by spelling; the words of `itself` mean themselves."""
    return {
        word: word if meaning == "itself" else meaning
        for meaning, words in table.items()
        for word in words.split()
    }


_TABLES = load("vocabulary.toml")
FUNCTIONS, CONSTANTS, RELATIONS, OPERATORS, SYNONYMS = (
    _spellings(_TABLES[name]) for name in ("functions", "constants", "relations", "operators", "synonyms")
)
_SETS = {name: frozenset(words.split()) for name, words in _TABLES["sets"].items()}
SHORT_WORDS, LEADING_WORDS, ARTICLES = (_SETS[name] for name in ("short_words", "leading_words", "articles"))
SILENT, GREEK, LINKS, LINKING = (_SETS[name] for name in ("silent", "greek", "links", "linking"))
ACCENTS, MARKS, COMMANDS = (_SETS[name] for name in ("accents", "marks", "commands"))

NUMBER_WORDS = {word: number for number, word in enumerate(_TABLES["numbers"]["ones"].split())}
NUMBER_WORDS |= {word: 20 + 10 * place for place, word in enumerate(_TABLES["numbers"]["tens"].split())}
SCALES, NUMBER_PARTS, PLACES = (_TABLES["numbers"][name] for name in ("scales", "parts", "places"))

_WORDS = load("words.toml")
_LANGUAGES = [table for table in _WORDS.values() if "stops" in table]
WORDS = {  # of all languages together, by the lists that words.toml explains
    name: frozenset(word.casefold() for table in _LANGUAGES for word in table[name].split())
    for name in _LANGUAGES[0]  # Chinese numerals need no list
}
_COUNTED = (*range(21), *range(30, 101, 10))
FOREIGN_NUMBERS = {
    word: number
    for table in _LANGUAGES
    for number, word in zip(_COUNTED, table.get("numbers", "").split(), strict=False)
    if word != "-"
}
ENGLISH_STOPS = frozenset(_WORDS["en"]["stops"].split())
DECIMAL_COMMA = frozenset(_WORDS["decimal_comma"]["words"].split())

UNITS: dict[str, tuple[str, Fraction]] = {}  # kind, and size in the kind's base unit
UNIT_QUESTIONS: dict[str, re.Pattern[str]] = {}  # of questions that ask for a kind of unit
for _kind, _sizes in _WORDS["units"].items():
    UNIT_QUESTIONS[_kind] = re.compile(_sizes.pop("asks") or r"\Z.")
    UNITS |= {
        name.casefold(): (_kind, Fraction(size)) for size, names in _sizes.items() for name in names.split()
    }
GENERIC_UNITS = _SETS["generic_units"]
UNIT_POWERS = {"square": 2, "sq": 2, "squared": 2, "平方": 2, "cubic": 3, "cubed": 3, "立方": 3}
