"""Steps of a solution: where they end in its text and in its tokens.

A step includes the whitespace after it, so that the joined steps are the text, and a reward read at a step's
last token has seen the end of the step. A token that extends into the next step belongs to the next one,
unless it also holds words of this step.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

END = re.compile(r"\n\s*")


def split_steps(text: str) -> list[str]:
    """Return the steps of a text, its lines: none blank, and joined they are the text."""
    steps, start = [], 0
    for match in END.finditer(text):
        if text[start : match.end()].strip():
            steps.append(text[start : match.end()])
            start = match.end()
    if text[start:].strip():
        steps.append(text[start:])
    elif steps:
        steps[-1] += text[start:]
    return steps


def locate_steps(tokenizer: Any, tokens: Sequence[int]) -> list[tuple[str, int]]:
    """Return (text, index of its last token) of each step of an output, the indices rising.

    Special tokens, such as EOS, belong to no step. Steps that end in the same token become one step.
    """

    def text_of(count: int) -> str:
        return tokenizer.decode(tokens[:count], skip_special_tokens=True, clean_up_tokenization_spaces=False)

    special = set(tokenizer.all_special_ids)
    found: list[tuple[str, int]] = []
    position = 0
    for step in split_steps(text_of(len(tokens))):
        words, position = position + len(step.rstrip()), position + len(step)
        # Part of a character decodes to one character too, so the longest prefix holds whole ones.
        count = bisect_right(range(len(tokens) + 1), position, key=lambda n: len(text_of(n))) - 1
        count += len(text_of(count)) < words
        while tokens[count - 1] in special:
            count -= 1
        if found and found[-1][1] == count - 1:
            step = found.pop()[0] + step
        found.append((step, count - 1))
    return found
