"""Unicode characters of MathML and their TeX commands, from `symbols.toml`."""

import re

from .tables import inverse, read_table

TABLE = read_table("symbols")
_PAIRS = TABLE["commands"].split()
SYMBOLS: dict[str, str] = (
    {character: "\\" + name for character, name in zip(_PAIRS[::2], _PAIRS[1::2], strict=True)}
    | {character: tex for tex, characters in TABLE["characters"].items() for character in characters}
    | dict.fromkeys(TABLE["invisible"], "")
)
FUNCTIONS = frozenset(TABLE["functions"].split())
LIMITS = frozenset([*TABLE["large_operators"], *TABLE["functions_with_limits"]])
INFIX = frozenset([*TABLE["infix"], ":=", "==", "!=", "<=", ">="])
OVER, UNDER = inverse(TABLE["over"]), inverse(TABLE["under"])
VARIANTS, ARROWS = inverse(TABLE["variants"]), inverse(TABLE["arrows"])
FENCES = {character: character for character in "()[]|"} | {"‖": r"\|", "∥": r"\|", "∣": "|"}
FENCES |= {character: SYMBOLS[character] for character in "{}⟨⟩〈〉⌊⌋⌈⌉"}
MATRICES = {
    ("(", ")"): "pmatrix", ("[", "]"): "bmatrix", ("|", "|"): "vmatrix", ("‖", "‖"): "Vmatrix",
    ("∥", "∥"): "Vmatrix", ("{", "}"): "Bmatrix", ("{", ""): "cases", ("∣", "∣"): "vmatrix",
}  # fmt: skip


def _alphabets() -> dict[str, str]:
    """Return letters of the mathematical alphabets as TeX, e.g. a double-struck R as `\\mathbb{R}`."""
    letters = [(word[0], name, word[1]) for name, words in TABLE["letters"].items() for word in words.split()]
    for run in TABLE["alphabets"]:
        for index, letter in enumerate(run["letters"]):
            letters += [
                (chr(start + index), name, letter)
                for name, starts in run["starts"].items()
                for start in starts
            ]
    table = {}
    for character, name, letter in letters:
        plain = SYMBOLS.get(letter, letter)
        table[character] = f"\\{name}{{{plain}}}" if name else plain
    return table | {"ℎ": "h", "ⅆ": "d", "ⅇ": "e", "ⅈ": "i"}


SYMBOLS |= {character: tex for character, tex in _alphabets().items() if character not in SYMBOLS}
NAMES = [*FUNCTIONS, *(name for table in (OVER, UNDER, VARIANTS, ARROWS) for name in table.values())]
COMMANDS = frozenset(  # make a text certainly TeX
    [*NAMES, *TABLE["structure"].split(), *re.findall(r"\\([A-Za-z]+)", " ".join(SYMBOLS.values()))]
)
