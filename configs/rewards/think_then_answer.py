"""The format reward of R1-Zero: an output thinks first, then answers, each once and between its tags."""

import re

FORM = re.compile(r"\s*<think>(?P<thought>.*?)</think>\s*<answer>(?P<answer>.*?)</answer>\s*", re.DOTALL)
TAG = re.compile(r"</?(?:think|answer)>")


def think_then_answer(item, text):
    """1 for `<think>...</think> <answer>...</answer>` with words in both and no tag more, else 0."""
    found = FORM.fullmatch(text)
    return float(found is not None and all(map(str.strip, found.groups())) and len(TAG.findall(text)) == 4)
