"""Rules of grading that a benchmark may have instead of the grader's own.

Published numbers are comparable only under the rules that produced them. `strict` is the grader itself.
`official` and `official-few-shot` are the paper's program (`official`), whose rules differ by benchmark.
`bbh` is exact match after "answer is", as BIG-Bench Hard is scored.
"""

from dataclasses import dataclass

from mathverdict.answers import Verdict
from mathverdict.extraction import PROGRAM_OUTPUT

from pipeline.config.evaluate import Rules
from pipeline.evaluate import paper_grader
from pipeline.evaluate.benchmarks import Item

STRICT: Rules = "strict"


@dataclass(frozen=True)
class Profile:
    """Rules of grading, for the questions of a benchmark."""

    rules: Rules
    benchmark: str = ""


def last_output(text: str) -> str | None:
    """Return the last result in a tool-integrated response; None if there is none or it is an error."""
    outputs = PROGRAM_OUTPUT.findall(text)
    if not outputs or not outputs[-1].strip() or outputs[-1].startswith("Runtime errors:"):
        return None
    return outputs[-1].strip().splitlines()[-1]


def _match_exactly(item: Item, answer: str | None) -> Verdict:
    """Return the verdict of exact match."""
    if not answer:
        return Verdict("wrong", None, "no answer")
    if answer.strip() == item.answer.strip():
        return Verdict("right", answer, "exact")
    return Verdict("wrong", answer, "not exact")


def _read_after_phrase(response: str) -> str | None:
    """Return the rest of the line after the last "answer is ", without a full stop."""
    _, phrase, rest = response.rpartition("answer is ")
    return rest.strip().partition("\n")[0].rstrip(".") if phrase else None


def grade_answer(profile: Profile, item: Item, answer: str | None) -> Verdict:
    """Return the verdict on a final answer."""
    if profile.rules == STRICT or answer is None:
        return item.compare(answer)
    if profile.rules == "bbh":
        return _match_exactly(item, answer)
    few_shot = profile.rules == "official-few-shot"
    return paper_grader.grade(profile.benchmark, few_shot, item, answer, output=True)


def grade_response(profile: Profile, item: Item, response: str) -> Verdict:
    """Return the verdict on a whole response."""
    if profile.rules == STRICT:
        return item.grade(response)
    if profile.rules == "bbh":
        return _match_exactly(item, _read_after_phrase(response))
    return paper_grader.grade(profile.benchmark, profile.rules == "official-few-shot", item, response)
