"""Short test questions, for the exact-match rule of decontamination (3 to 9 grams, paper section 2.1)."""

import random

from pipeline.miniweb.problems import MAX_CHANGE, MAX_START, Operation, Problem, is_test_pair
from pipeline.miniweb.scenarios import LANGUAGES

# grams are words, numbers and single Chinese characters: 6 in English, 8 in Chinese
QUESTIONS = {"en": "{who}, {things}: {left} {word} {right}?", "zh": "{who}，{things}：{left}{word}{right}？"}
WORDS = {"en": {"+": "plus", "-": "minus"}, "zh": {"+": "加", "-": "减"}}


def drill_problems(seed: int, count: int, chinese_share: float) -> list[Problem]:
    """`count` different one-step questions about pairs (who, things) of the test split; no other text has
    their form.
    """
    rng = random.Random(f"{seed}/drill")
    found: dict[str, Problem] = {}
    while len(found) < count:
        lang = "zh" if len(found) < round(count * chinese_share) else "en"
        who, things = rng.choice(LANGUAGES[lang].names), rng.choice(LANGUAGES[lang].things)
        if not is_test_pair(who, things):
            continue
        sign = rng.choice(("+", "-"))
        left = rng.randint(2, MAX_START)
        right = rng.randint(1, min(MAX_CHANGE, left) if sign == "-" else MAX_CHANGE)
        text = QUESTIONS[lang].format(who=who, things=things, left=left, word=WORDS[lang][sign], right=right)
        operation = Operation(left, sign, right)
        found.setdefault(
            text, Problem(text, str(operation.result), (operation,), f"{lang}-drill-1", lang, "drill")
        )
    return list(found.values())
