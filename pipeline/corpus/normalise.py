"""The classifier's view of a text: one normaliser, shared by training and prediction.

Words, single CJK characters and TeX commands are tokens. Numbers and punctuation are dropped: they
distinguish the layouts of sites more than mathematics from other text (with them, a classifier trained on
one textbook found fewer pages of other sites). Single letters stay, because formulas consist of them. Marks
are added: one before each formula, whose relations and sums become words, and one for each line that ends
like program code. They keep out pages on algorithms, which hold formulas, too.
`VERSION` changes with any change of behaviour and is recorded with each model.
"""

import re
import unicodedata
from itertools import groupby

from webformulas.delimiters import FORMULA

VERSION = 3
CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
TOKEN = re.compile(rf"\\?[^\W\d_{CJK}]+|[{CJK}]")
ASCII_LETTERS = {  # other characters of ASCII part words; `str.translate` works on ASCII at C speed
    code: chr(code).lower() if chr(code).isalpha() or chr(code) == "\\" else " " for code in range(128)
}
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
    """Do what `_tokens` does for ASCII, three times as fast."""
    words = text.translate(ASCII_LETTERS).replace("\\", " \\") + " "
    return words.replace("\\ ", " ").split()  # without backslashes that begin no command
