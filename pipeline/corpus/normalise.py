"""The classifier's view of a text: one normaliser, shared by training and prediction.

Words, single CJK characters and TeX commands are tokens. Numbers and punctuation are left out: they tell
one site's layout from another's more than mathematics from other text (with them, a classifier trained on
one textbook found fewer pages of other sites). Single letters stay, because formulas are made of them.
`VERSION` changes with any change of behaviour and is recorded with each model.
"""

import re
import unicodedata

VERSION = 2
CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
TOKEN = re.compile(rf"\\?[^\W\d_{CJK}]+|[{CJK}]")


def normalise(text: str) -> str:
    """`text` as tokens separated by single spaces, on one line, as fastText reads it."""
    return " ".join(TOKEN.findall(unicodedata.normalize("NFKC", text).lower()))
