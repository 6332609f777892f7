"""The classifier's view of a text: one normaliser, shared by training and prediction.

Words, single CJK characters, TeX commands and the signs of mathematics are tokens; numbers become `0`, so that no
page is recognised by its figures. `VERSION` changes with any change of behaviour and is recorded with each model.
"""

import re
import unicodedata

VERSION = 1
CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
TOKEN = re.compile(rf"\\[a-z]+|[{CJK}]|\d+(?:[.,]\d+)*|[^\W\d_{CJK}]+|[-+=<>^_{{}}$|±×÷≤≥∑∫√∞∈→]")


def normalise(text: str) -> str:
    """`text` as tokens separated by single spaces, on one line, as fastText reads it."""
    tokens = TOKEN.findall(unicodedata.normalize("NFKC", text).lower())
    return " ".join("0" if token[0].isdigit() else token for token in tokens)
