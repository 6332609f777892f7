"""Steps of a solution: where they end in its text and in its tokens.

A step keeps the whitespace that ends it, so that steps joined give the text again, and a reward read at a
step's last token has seen that the step is over.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

ENDS = {"line": re.compile(r"\n\s*"), "sentence": re.compile(r"(?:[.!?](?=\s)|[。！？]|\n)\s*")}


def split_steps(text: str, split: str) -> list[str]:
    """The steps of a text; `split` is line or sentence. Joined they are the text; none is blank."""
    steps, start = [], 0
    for match in ENDS[split].finditer(text):
        if text[start : match.end()].strip():
            steps.append(text[start : match.end()])
            start = match.end()
    if text[start:].strip():
        steps.append(text[start:])
    elif steps:
        steps[-1] += text[start:]
    return steps


def step_ends(tokenizer: Any, tokens: Sequence[int], split: str) -> list[int]:
    """Index of the last token of each step of an output; special tokens, such as EOS, belong to no step."""

    def length(count: int) -> int:
        return len(
            tokenizer.decode(tokens[:count], skip_special_tokens=True, clean_up_tokenization_spaces=False)
        )

    text = tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    ends, position = [], 0
    for step in split_steps(text, split):
        position += len(step)
        ends.append(bisect_left(range(len(tokens) + 1), position, key=length) - 1)
    return sorted(set(ends))
