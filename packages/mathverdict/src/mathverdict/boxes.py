r"""Boxes in a response with what stands around them: signs of the answer, words that take it back.

`-\boxed{4}` is -4, `\boxed{4}00` is 400 and `\boxed{4}\text{ cm}` has a unit; "not \boxed{4}" denies the box,
"\boxed{4} or 5" offers another answer, "maybe \boxed{4}" doubts it.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

from .remarks import first_words, last_words, scaling
from .vocabulary import WORDS, WRAPPED

BOX = "\\boxed"
MAX_RESPONSE = 200_000
MAX_BOXES = 101  # of one response that are read, the last ones
MAX_BESIDE = 100  # characters beside a box
_BOX = re.compile(r"\\{1,2}(?:boxed|fbox)\s*(?=\{)")
_BOX_BEGINS = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"\\boxed\s+([^\s{}$.,]+)")
_DELIMITER = re.compile(r"\$\$|(?<!\\)\$|\\[()\[\]]")
_CLOSES = {"$$": "$$", "$": "$", "\\(": "\\)", "\\[": "\\]"}
_ENDS_SIDE = re.compile(  # of an equation, or of a part of a formula
    r"=|\\(?:approx|equiv|to|[Rr]ightarrow|[Ll]ongrightarrow|implies|therefore|because|iff|q?quad|leq?|geq?|lt|gt|in"
    r"|colon|hfill|qed|blacksquare|square|[pb]?mod)(?![A-Za-z])|[:,;&<>≈≤≥→⇒∴]|\\\\|\n"
)
_NEUTRAL = re.compile(
    r"[\s{}()\[\]*$~|]|\\[,;:! ]|\\(?:left|right|displaystyle|[bB]igg?[lr]?|[lL]arge|LARGE|[hH]uge"
    r"|underline|mathbf|boldsymbol|bm|ensuremath|color\s*\{\w+\}|textcolor\s*\{\w+\})(?![A-Za-z])"
)
_GLUED_BEFORE = re.compile(r"(?:[-−﹣－+±/^√×÷]|\d[\d.,]*+)++\Z")
_GLUED_AFTER = re.compile(r"\d[\d.,]*|\\?%|°|\^\S+|\s*[-+/*]\s*(?=[\d\\(])\S+")
_NOT_EQUAL = re.compile(r"(?:≠|\\neq?|\\not\s*=|!=|\\neg|\\lnot)[\s{($\\\[*]*\Z")
_ASKS = re.compile(r"[\s$*)\\\]]*[?？]")
_SENTENCE = re.compile(r"[.!;。！；\n]")


@dataclass(frozen=True)
class Box:
    """A box of a response: its place, its content, and the formula around it, if there is one."""

    text: str
    start: int
    end: int
    content: str
    formula: tuple[int, int] | None

    @property
    def answer(self) -> str:
        """The content with the signs around it."""
        low, high = self.formula or (0, len(self.text))
        before, after = self._beside(low, high)
        left, right = (_signs if self.formula else _glued)(before, after)
        compound = re.search(r"[-+,;]|\bor\b|\band\b", self.content[1:]) and (
            left or re.match(r"[\^!*/]|\\cdot|\\times", right)
        )
        answer = f"{left}({self.content}){right}" if compound else left + self.content + right
        beside = scaling(*self._beside(0, len(self.text))) if not (left or right) else ("", "")
        return f"{beside[0]} {answer} {beside[1]}" if any(beside) else answer

    @property
    def remark(self) -> Literal["", "denied", "alternative", "doubted"]:
        """What the words next to the box in its sentence say about it."""
        return _remark(*self._beside(0, len(self.text)))

    def _beside(self, low: int, high: int) -> tuple[str, str]:
        before = self.text[max(low, self.start - MAX_BESIDE) : self.start]
        return before, self.text[self.end : min(high, self.end + MAX_BESIDE)]


def balanced(text: str, start: int) -> int:
    """Index of the brace that closes the one at `start`, or -1."""
    return _closing(text[start:]).get(0, -1 - start) + start


def _closing(text: str) -> dict[int, int]:
    """Return the index of the closing brace for that of every opening one that is closed, in one pass."""
    found, opened = {}, []
    for match in _BRACE.finditer(text):
        if match[0] == "{":
            opened.append(match.start())
        elif match[0] == "}" and opened:
            found[opened.pop()] = match.start()
    return found


def boxes(text: str) -> list[tuple[int, int, str]]:
    """(start, end, content) of every closed, non-empty, outermost box, in order."""
    if BOX not in text and "\\fbox" not in text:
        return []
    found, position, closing = [], 0, _closing(text)
    for match in _BOX.finditer(text):
        end = closing.get(match.end(), -1)
        if end < 0 or match.start() < position:
            continue
        content = text[match.end() + 1 : end].strip()
        if content:
            found.append((match.start(), end + 1, content))
        position = end + 1
    return found


def formulas(text: str) -> list[tuple[int, int]]:
    """(start, end) of the content of every formula $$...$$, $...$, \\(...\\) or \\[...\\], in one pass."""
    found = []
    start, wanted = 0, None
    marks = list(_DELIMITER.finditer(text))
    last = {mark[0]: mark.start() for mark in marks}
    for mark in marks:
        if wanted is None:
            closing = _CLOSES.get(mark[0])
            if closing and last.get(closing, -1) > mark.start():
                start, wanted = mark.end(), closing
        elif mark[0] == wanted:
            if mark.start() > start:
                found.append((start, mark.start()))
            wanted = None
    return found


def without_thinking(response: str) -> str | None:
    """Return the response after the thinking; None if the thinking does not end."""
    text = response[-MAX_RESPONSE:]
    if "<think>" in text or "</think>" in text:
        if "</think>" not in text or text.rfind("<think>") > text.rfind("</think>"):
            return None
        return text.rpartition("</think>")[2]
    return text


def read_boxes(text: str) -> list[Box]:
    """Every box of a text; a bare "\\boxed 5" only if there is no other."""
    found = boxes(text)[-MAX_BOXES:] or [
        (*match.span(), match[1]) for match in list(_BARE_BOX.finditer(text))[-1:]
    ]
    spans = formulas(text) if found and _DELIMITER.search(text) else []
    starts = [start for start, _ in spans]
    result = []
    for start, end, content in found:
        span = spans[bisect_right(starts, start) - 1] if starts else (0, 0)
        result.append(Box(text, start, end, content, span if span[0] <= start and end <= span[1] else None))
    return result


def reward_boxes(response: str) -> list[Box]:
    """Every box after the thinking, in order; none if the last one is empty or cut."""
    text = without_thinking(response)
    found = read_boxes(text) if text else []
    cut = found and _BOX_BEGINS.search(text, found[-1].end)
    return [] if cut else found


def _signs(before: str, after: str) -> tuple[str, str]:
    """Get what stands in the same side of the equation as a box: "-" and "^2" of "x = -\\boxed{3}^2 = -9"."""
    left = _ENDS_SIDE.split(WRAPPED.sub("=", before))[-1]
    right, box, _ = _ENDS_SIDE.split(after, maxsplit=1)[0].partition(BOX)
    right = WRAPPED.sub("", right) if box else right
    right = re.sub(r"[.](?!\d).*", "", right, flags=re.DOTALL)
    words = r"(?<![\\A-Za-z])[A-Za-z]{2}"  # a stray dollar sign: no formula
    left = left if _NEUTRAL.sub("", left) and not re.search(words, left) else ""
    plain = WRAPPED.sub("", right)
    return left, right if _NEUTRAL.sub("", right) and not re.search(words, plain) else ""


def _glued(before: str, after: str) -> tuple[str, str]:
    """Signs and digits that touch a box outside formulas: "-\\boxed{3}", "\\boxed{3}00"."""
    left, right = _GLUED_BEFORE.search(before.rstrip("*")), _GLUED_AFTER.match(after.lstrip("*"))
    return left[0] if left else "", right[0] if right else ""


def _remark(before: str, after: str) -> Literal["", "denied", "alternative", "doubted"]:
    """Return what the words next to a box in its sentence say about it."""
    if _NOT_EQUAL.search(before):
        return "denied"
    if "\\" in before or "\\" in after:
        before, after = (WRAPPED.sub(r" \1 ", side) for side in (before, after))
    if _ASKS.match(after):
        return "doubted"
    said = last_words(_SENTENCE.split(before)[-1])
    following = first_words(_SENTENCE.split(after, maxsplit=1)[0]) if after else set()
    if (said | following) & WORDS["denials"]:
        return "denied"
    return "alternative" if following & WORDS["alternatives"] else "doubted" if said or following else ""
