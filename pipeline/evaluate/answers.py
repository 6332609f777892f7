r"""The grader: take the final answer from a response and compare it with the reference.

One grader serves the metric and the RL reward, so that the two can never disagree. Order of work, cheapest
first: identical strings and plain integers (microseconds), exact comparison of numbers, choices and words
(`literals`), symbolic comparison in a process that is killed at its time limit (`symbolic`). Nothing a model
wrote is ever evaluated as code.

Departures from the paper's released grader (sections 8.4-8.6), which accepts 100 times and 1/100 of the
reference, ignores bracket types and allows an absolute error of 1e-3: here a verdict is exact, and
`undecided` where no rule applies. Undecided counts as not right everywhere; the reason says which rule
decided.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pipeline.evaluate import literals, symbolic

BOX = "\\boxed"
MAX_ANSWER_CHARACTERS = 2000
NEEDS_SYMBOLS = "needs symbolic comparison"
_PHRASE = re.compile(
    r"(?:answer(?:\s+is|\s+are|s\s+are|\s*:)|答案(?:是|为|:|：)|####)\s*[:：]?[ \t]*(?=\S)", re.IGNORECASE
)
_LAST_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:/\d+)?%?")
_INTEGER = re.compile(r"-?\d{1,30}\Z")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome for one answer: verdict, what was taken from the response, the rule that decided."""

    verdict: Literal["right", "wrong", "undecided"]
    extracted: str | None
    reason: str

    @property
    def right(self) -> bool:
        """Whether the answer counts: undecided does not."""
        return self.verdict == "right"


def _balanced(text: str, start: int) -> int:
    """Index of the brace that closes the one at `start`, or -1."""
    depth, position = 0, start
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return position
        position += 1
    return -1


def _last_box(text: str) -> str | None:
    """Content of the last complete `\\boxed{...}`; empty boxes and boxes cut off do not count."""
    position = text.rfind(BOX)
    while position >= 0:
        start = position + len(BOX)
        while start < len(text) and text[start] == " ":
            start += 1
        if start < len(text) and text[start] == "{":
            end = _balanced(text, start)
            if end > 0 and (content := text[start + 1 : end].strip()):
                return content
        position = text.rfind(BOX, 0, position)
    return None


def _after_phrase(text: str) -> str | None:
    """What follows the last "answer is" (or its Chinese form, or GSM8K's ####) on that line."""
    found = list(_PHRASE.finditer(text))
    if not found:
        return None
    line = text[found[-1].end() :].split("\n", 1)[0].split(". I hope", 1)[0]
    line = line.strip().strip("*").strip()
    if line.startswith("$") and (end := line.find("$", 1)) > 0:
        line = line[1:end]
    elif line.startswith("\\(") and (end := line.find("\\)")) > 0:
        line = line[2:end]
    return line.rstrip(".。*").strip() or None


def extract(response: str, *, boxed_only: bool = False) -> str | None:
    """The final answer in a response, or None.

    First rule that applies: the last complete box; the text after the last "answer is"; the last number. With
    `boxed_only` (RL) a response without a box has no answer. What stands in an unclosed <think> is never an
    answer.
    """
    if "<think>" in response:
        if "</think>" not in response:
            return None
        response = response.rpartition("</think>")[2]
    answer = _last_box(response)
    if answer is None and not boxed_only:
        answer = _after_phrase(response)
        if answer is None and (numbers := _LAST_NUMBER.findall(response)):
            answer = numbers[-1]
    return answer


def compare(
    reference: str,
    answer: str,
    *,
    question: str | None = None,
    choices: Mapping[str, str] | None = None,
    symbols: bool = True,
) -> Verdict:
    """Compare two final answers; `choices` maps letters to the texts of a multiple-choice question.

    With `symbols` False the symbolic process is not asked, and what only it could decide is undecided.
    """
    if answer == reference:
        return Verdict("right", answer, "identical")
    if _INTEGER.match(answer) and _INTEGER.match(reference):
        return Verdict("right" if int(answer) == int(reference) else "wrong", answer, "integers")
    if len(answer) > MAX_ANSWER_CHARACTERS:
        return Verdict("undecided", answer[:200], f"answer longer than {MAX_ANSWER_CHARACTERS} characters")
    outcome, reason = literals.compare(reference, answer, question, choices)
    if outcome == "unknown":
        if not symbols:
            outcome, reason = "undecided", NEEDS_SYMBOLS
        else:
            outcome, reason = symbolic.compare(literals.clean(reference), literals.clean(answer))
    return Verdict(outcome, answer, reason)


def grade(
    reference: str,
    response: str,
    *,
    question: str | None = None,
    choices: Mapping[str, str] | None = None,
    boxed_only: bool = False,
) -> Verdict:
    """Extract the final answer from `response` and compare it with `reference`; no answer is wrong."""
    answer = extract(response, boxed_only=boxed_only)
    if answer is None:
        return Verdict("wrong", None, "no box" if boxed_only else "no answer")
    return compare(reference, answer, question=question, choices=choices)
