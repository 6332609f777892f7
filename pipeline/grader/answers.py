r"""The grader: extract the final answer of a response and compare it with the reference.

The metric and the RL reward use this one grader, so they cannot disagree. It tries the cheapest test first:
identical strings and integers, then equal spelling (`notation`), then expression trees compared by type
(`equivalence`): exact rationals, sets of numbers, lists, equations, 60 digits at fixed points. It never
evaluates model output as code and bounds every step, so it needs no time limit.

Departures from the paper's released grader (sections 8.4-8.6), which accepts 100 times and 1/100 of the
reference, ignores bracket types and allows an absolute error of 1e-3: verdicts are exact, and `undecided`
where no rule applies, which counts as not right everywhere. `configs/profiles.yaml` has the paper's rules.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from pipeline.grader.asked import Asked, asked
from pipeline.grader.equivalence import equivalent
from pipeline.grader.extraction import boxes, chosen_letter, extract, reference_answer
from pipeline.grader.notation import clean, number_word
from pipeline.grader.parser import parse
from pipeline.grader.prose import compare_prose, has_sentence, same_words
from pipeline.grader.tree import Decision, Expression, count, walk
from pipeline.grader.values import value

MAX_ANSWER_CHARACTERS = 3000
_INTEGER = re.compile(r"-?\d{1,30}\Z")
_LETTER = re.compile(
    r"[\s({\[*]*(?:\\text(?:bf)?\s*\{\s*\(?|Option |Choice |选项?)?\s*([A-Fa-f])\s*\)?\s*\}?"
    r"[\s)}\]*]*(?:[.:：、)）,，\s].*)?\Z",
    re.DOTALL,
)
_GOLD_LETTER = re.compile(r"[\s({\[]*(?:\\text(?:bf)?\s*\{\s*\(?)?\s*([A-F])\s*\)?\s*\}?[\s)}\].]*\Z")
_NAMED = re.compile(r"(?:\A|answer is\s+)\(?([A-F])\)?[ .:)]+[A-Z]?[a-z]{2,}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one answer, the answer extracted from the response, and the rule that decided."""

    verdict: Literal["right", "wrong", "undecided"]
    extracted: str | None
    reason: str

    @property
    def right(self) -> bool:
        """Whether the answer counts: undecided does not."""
        return self.verdict == "right"


def _letter(text: str) -> str | None:
    """The letter of a choice written as "B", "(b)", "\\text{B}" or "B. 12"."""
    match = _LETTER.match(text)
    return match[1].upper() if match else None


def _chosen(answer: str, choices: Mapping[str, str]) -> str | None:
    """The letter of the chosen option: the one given, or that of the only choice with the same value."""
    letter = _letter(answer)
    if letter is not None and letter in choices:
        return letter
    same = [name for name, text in choices.items() if decide(text, answer, Asked())[0] == "right"]
    return same[0] if len(same) == 1 else None


def _compare_choices(reference: str, answer: str, choices: Mapping[str, str]) -> Decision:
    expected = reference.strip() if reference.strip() in choices else _letter(reference)
    given = _chosen(answer, choices)
    if given is None:
        return "wrong", "not one of the choices"
    return ("right" if given == expected else "wrong"), "choice"


def _by_letter(reference: str, answer: str, wanted: Asked) -> Decision | None:
    """Compare letters if the reference is one, or if the answer is one and the question has choices."""
    choices = dict(wanted.choices)
    expected, given = _GOLD_LETTER.match(reference), _GOLD_LETTER.match(answer)
    if expected is not None:
        letter = _letter(answer)
        if letter is None and choices:
            letter = _chosen(answer, choices)
        if letter is not None:
            return ("right" if letter == expected[1] else "wrong"), "letter"
    elif given is not None and (named := _NAMED.search(reference)):
        return ("right" if named[1] == given[1] else "wrong"), "letter"
    elif given is not None and given[1] in choices:
        return decide(reference, choices[given[1]], Asked())[0], "text of the choice"
    return None


def decide(reference: str, answer: str, wanted: Asked) -> Decision:
    """Compare two final answers to a question that asks for the form `wanted`."""
    reference, answer = clean(reference), clean(answer)
    if not answer:
        return "wrong", "empty"
    if reference.replace(" ", "") == answer.replace(" ", ""):
        return "right", "same after normalisation"
    if (outcome := _by_letter(reference, answer, wanted)) is not None:
        return outcome
    outcome = _by_trees(reference, answer, wanted, wanted.listed)
    if outcome[0] != "right" and not wanted.listed and re.search(r"\d,\d{3}(?!\d)", reference + " " + answer):
        separate = _by_trees(reference, answer, wanted, True)
        outcome = separate if separate[0] == "right" else outcome
    return outcome


def _tree(text: str, separate: bool) -> Expression | str:
    tree = parse(number_word(text) or text, separate)
    if isinstance(tree, str) or not count(tree, "text") or not has_sentence(text):
        return tree
    return "a sentence"


def _by_trees(reference: str, answer: str, wanted: Asked, separate: bool) -> Decision:
    gold, given = _tree(reference, separate), _tree(answer, separate)
    if isinstance(gold, Expression) and isinstance(given, Expression):
        try:
            outcome = equivalent(gold, given, wanted)
        except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
            # mpmath raises these for undefined operations; one answer must not end a run
            return "undecided", f"comparison failed: {type(error).__name__}"
        words = outcome[0] != "right" and same_words(reference, answer) and _is_words(reference)
        return ("right", "words") if words else outcome

    def same(first: str, second: str) -> bool:
        sides = [_tree(clean(text), separate) for text in (first, second)]
        return not any(isinstance(side, str) for side in sides) and equivalent(*sides, wanted)[0] == "right"

    outcome = compare_prose(reference, answer, same)
    if outcome == ("wrong", "words") and (isinstance(gold, str) or not _is_words(answer)):
        unread, reason = ("reference", gold) if isinstance(gold, str) else ("answer", given)
        return "undecided", f"{unread} not understood: {reason}"
    return outcome


def _is_words(text: str) -> bool:
    return re.fullmatch(r"(?:\\text|[\sA-Za-z{}.'-]|[^\x00-\x7f])+", text) is not None


def compare(
    reference: str,
    answer: str | None,
    *,
    question: str | None = None,
    choices: Mapping[str, str] | None = None,
) -> Verdict:
    """Compare two final answers; `choices` maps letters to the texts of a multiple-choice question."""
    if answer is None:
        return Verdict("wrong", None, "no answer")
    reference = reference_answer(reference)
    if answer == reference:
        return Verdict("right", answer, "identical")
    if not choices and _INTEGER.match(answer) and _INTEGER.match(reference):
        return Verdict("right" if int(answer) == int(reference) else "wrong", answer, "integers")
    if len(answer) > MAX_ANSWER_CHARACTERS:
        return Verdict("undecided", answer[:200], f"answer longer than {MAX_ANSWER_CHARACTERS} characters")
    return _compared(reference, answer, question, tuple(choices.items()) if choices else ())


@lru_cache(maxsize=16384)  # samples of one question repeat their answers
def _compared(
    reference: str, answer: str, question: str | None, choices: tuple[tuple[str, str], ...]
) -> Verdict:
    if choices:
        outcome = _compare_choices(reference, answer, dict(choices))
    else:
        outcome = decide(reference, answer, asked(question))
    return Verdict(outcome[0], answer, outcome[1])


def final_answer(
    reference: str, response: str, choices: Mapping[str, str] | None = None, *, boxed_only: bool = False
) -> str | None:
    """The final answer in a response; if the reference is a choice, also a letter standing alone."""
    answer = extract(response, boxed_only=boxed_only)
    by_letter = bool(choices) or _is_choice(reference)
    if not by_letter or boxed_only or boxes(response) or (answer is not None and _letter(answer)):
        return answer
    letter = chosen_letter(response)
    if letter is None or (answer is not None and choices and _chosen(answer, choices)):
        return answer
    return letter


@lru_cache(maxsize=16384)
def numeric_value(answer: str) -> float | None:
    """The answer as a float if it is a single real value, else None."""
    tree = _tree(clean(answer), False)
    if isinstance(tree, str) or any(
        part.kind in ("text", "relation", "list", "percent", "base", "pm") for part in walk(tree)
    ):
        return None
    found = value(tree)
    try:
        return float(found) if found is not None and math.isfinite(found) else None
    except (TypeError, OverflowError, ValueError):
        return None


def _is_choice(reference: str) -> bool:
    return _GOLD_LETTER.match(reference) is not None


def grade(
    reference: str,
    response: str,
    *,
    question: str | None = None,
    choices: Mapping[str, str] | None = None,
    boxed_only: bool = False,
) -> Verdict:
    """Extract the final answer from `response` and compare it with `reference`; no answer is wrong."""
    answer = final_answer(reference, response, choices, boxed_only=boxed_only)
    if answer is None and boxed_only:
        return Verdict("wrong", None, "no box")
    return compare(reference, answer, question=question, choices=choices)
