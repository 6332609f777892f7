"""Language of a text: by script for Chinese, Japanese and Korean, by Resiliparse's n-gram profiles otherwise.

Profiles alone fail on Chinese pages about mathematics, which hold more Latin letters (formulas, code) than
Chinese characters: of 179 such pages profiles recognised 58 %, the script all.
"""

import re

from resiliparse.parse.lang import detect_fast

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
KANA = "\u3040-\u30ff"
HANGUL = "\uac00-\ud7af"
CJK = f"{HAN}{KANA}{HANGUL}"
SCRIPTS = [re.compile(f"[{characters}]") for characters in (HAN, KANA, HANGUL)]
ANY_CJK = re.compile(f"[{CJK}]")
WORD = re.compile(rf"[^\W\d_{CJK}]{{2,}}")
CJK_SHARE = 0.1  # of a page's words and CJK characters: a page of a Latin script names a few in passing
SAMPLE = 20_000  # characters; enough to tell, and bounds the cost of a huge page


def detect_language(text: str) -> str:
    """Return the ISO 639-1 code; of CJK, `CJK_SHARE` of these characters and the words is enough."""
    sample = text[:SAMPLE]
    if not sample.isascii() and ANY_CJK.search(sample):
        han, kana, hangul = (len(script.findall(sample)) for script in SCRIPTS)
        characters = han + kana + hangul
        if characters and characters >= CJK_SHARE * (characters + len(WORD.findall(sample))):
            if hangul > han + kana:
                return "ko"
            return "ja" if kana > 0.1 * characters else "zh"
    return detect_fast(sample)[0]
