"""The classifier's view of a text: one normaliser, shared by training and prediction.

Words, single CJK characters and TeX commands are tokens. Numbers and punctuation are left out: they tell
one site's layout from another's more than mathematics from other text (with them, a classifier trained on
one textbook found fewer pages of other sites). Single letters stay, because formulas are made of them. Marks
are added: one before each formula, with its relations and sums as words of their own, and one for each line
that ends like program code. Pages on algorithms hold formulas too; with the marks fewer of them pass.
`VERSION` changes with any change of behaviour and is recorded with each model.
"""

import re
import unicodedata
from itertools import groupby

VERSION = 3
CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
TOKEN = re.compile(rf"\\?[^\W\d_{CJK}]+|[{CJK}]")
ASCII_LETTERS = {  # other characters of ASCII part words; `str.translate` works on ASCII at C speed
    code: chr(code).lower() if chr(code).isalpha() or chr(code) == "\\" else " " for code in range(128)
}
# A single dollar opens a formula only before, and closes one only after, something: not in "$5 or $10".
FORMULA = re.compile(r"\$\$([^$]{1,4000})\$\$|\$(?! )([^$\n]{1,2000})(?<! )\$(?!\d)")
IN_FORMULA = str.maketrans(
    {"=": " \\eq ", "<": " \\lt ", ">": " \\gt ", "+": " \\plus "} | dict.fromkeys(";{}", " ")
)
CODE_LINE = re.compile(r"[;{}][ \t\r]*$", re.MULTILINE)


def normalise(text: str) -> str:
    """`text` as tokens separated by single spaces, on one line, as fastText reads it."""
    tokens: list[str] = []
    for is_ascii, lines in groupby(_marked(text).split("\n"), str.isascii):  # no token goes beyond its line
        part = "\n".join(lines)
        tokens += _ascii_tokens(part) if is_ascii else _tokens(part)
    return " ".join(tokens)


def _marked(text: str) -> str:
    if "$" in text:
        text = FORMULA.sub(lambda match: f" \\formula {(match[1] or match[2]).translate(IN_FORMULA)} ", text)
    return CODE_LINE.sub(r" \\code ", text)


def _tokens(text: str) -> list[str]:
    return TOKEN.findall(unicodedata.normalize("NFKC", text).lower())


def _ascii_tokens(text: str) -> list[str]:
    """What `_tokens` finds in ASCII, in a third of its time."""
    words = text.translate(ASCII_LETTERS).replace("\\", " \\") + " "
    return words.replace("\\ ", " ").split()  # without backslashes that begin no command
