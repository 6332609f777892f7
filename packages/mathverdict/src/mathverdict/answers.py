r"""The grader: extract the final answer of a response and compare it with the reference.

The metric and the RL reward use this one grader, so they cannot disagree. It tries the cheapest test first:
identical strings and integers, then equal spelling (`notation`), then expression trees compared by type
(`equivalence`): exact rationals, sets of numbers, lists, equations, 60 digits at fixed points. It never
evaluates model output as code and bounds every step, so it needs no time limit.

Departures from the paper's released grader (sections 8.4-8.6), which accepts 100 times and 1/100 of the
reference, ignores bracket types and allows an absolute error of 1e-3: verdicts are exact, and `undecided`
where no rule applies, which counts as not right everywhere. `pipeline/evaluate/paper_grader.py` has the
paper's rules.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from typing import Any, Literal, NamedTuple

from .asked import Asked, asked
from .boxes import MAX_BOXES, boxes, reward_boxes
from .equivalence import equivalent
from .extraction import chosen_letter, extract, reference_answer
from .forms import is_worked_out
from .notation import clean, number_first
from .parser import parse
from .prose import compare_prose, has_sentence, is_words, same_words
from .remarks import bare, is_unit
from .tree import Decision, Expression, count, walk
from .values import Exhausted, budget, value
from .vocabulary import LONG_WORD, WRAPPED

MAX_ANSWER_CHARACTERS = 3000
MAX_DIFFERENT_BOXES = 8  # of one response
MAX_VERDICT_STEPS = 60_000  # about half a second
_INTEGER = re.compile(r"-?\d{1,30}\Z")
_LETTER = re.compile(
    r"[\s({\[*]*(?:\\(?:text|math)(?:bf|rm)?\s*\{\s*\(?|[Oo]ption |[Cc]hoice |选项?)?\s*\(?\s*([A-Fa-f])"
    r"(?P<end>[\s)}\]*.:：、）]*)(?P<rest>.*)\Z",
    re.DOTALL,
)
_SAYS = re.compile(rf"(?<![\\A-Za-z])(?:{LONG_WORD})|\\(?:text|mathrm|mbox)(?![A-Za-z])")  # words
_SPACES = re.compile(r"(?<![0-9A-Za-z]) +| +(?![0-9A-Za-z])")
_DECIMAL_COMMA = re.compile(r"(?<![\d,.])(\d{1,3}(?:[. ]\d{3})+|\d+)(?:,(\d+))?(?![\d,])")
_GROUPED = re.compile(r"\d,\d{3}(?!\d)")
_MARKED = re.compile(r"[.:：、]")
_OTHER = re.compile(
    r"(?<![A-Za-z])(?:[A-F]|or|and|nor|not|neither|maybe|wrong|false|incorrect|other)(?![A-Za-z])|n't|不"
)
_GOLD_LETTER = re.compile(r"[\s({\[]*(?:\\text(?:bf)?\s*\{\s*\(?)?\s*([A-F])\s*\)?\s*\}?[\s)}\].]*\Z")
_NAMED = re.compile(r"(?:\A|answer is\s+)\(?([A-F])\)?[ .:)]+[A-Z]?[a-z]{2,}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one answer, the answer extracted from the response, and the rule that decided; `failed`
    where the grader itself did.
    """

    verdict: Literal["right", "wrong", "undecided", "failed"]
    extracted: str | None
    reason: str

    @property
    def right(self) -> bool:
        """Whether the answer counts: one that is not decided, or not judged, does not."""
        return self.verdict == "right"


def _letter(text: str, choices: Mapping[str, str]) -> str | None:
    """Return the letter of a choice written as "B", "(b)", "\\text{B}" or "B. 12"; not of "B or C" or "A
    number".

    A text behind the letter must be the text of its choice where the choices are known.
    """
    match = _LETTER.match(text)
    if match is None:
        return None
    letter, rest = match[1].upper(), match["rest"].strip()
    if not rest:
        return letter
    if letter in choices:
        said = clean(rest)
        same = (
            said == clean(choices[letter]) or decide(choices[letter], said, Asked(strict=True))[0] == "right"
        )
        return letter if same else None
    marked = _MARKED.search(match["end"]) and re.match(r"[\w$\\-]", rest) and not _OTHER.search(rest)
    return letter if marked else None


def _chosen(answer: str, choices: Mapping[str, str]) -> str | None:
    """Get the letter of the chosen option: the one given, or that of the only choice with the same value."""
    letter = _letter(answer, choices)
    if letter is not None and letter in choices:
        return letter
    same = [name for name, text in choices.items() if decide(text, answer, Asked())[0] == "right"]
    return same[0] if len(same) == 1 else None


def _compare_choices(reference: str, answer: str, choices: Mapping[str, str]) -> Decision:
    expected = reference.strip() if reference.strip() in choices else _letter(reference, choices)
    given = _chosen(answer, choices)
    if given is None:
        return "wrong", "not one of the choices"
    return ("right" if given == expected else "wrong"), "choice"


def _by_letter(reference: str, answer: str, wanted: Asked) -> Decision | None:
    """Compare letters if the reference is one, or if the answer is one and the question has choices."""
    choices = dict(wanted.choices)
    expected, given = _GOLD_LETTER.match(reference), _GOLD_LETTER.match(answer)
    if expected is not None:
        letter = _letter(answer, choices)
        if letter is None and choices:
            letter = _chosen(answer, choices)
        match = _LETTER.match(answer)
        if letter is not None and wanted.strict and not choices and match["rest"].strip():
            return "undecided", "a choice whose text the question does not have"
        if letter is not None:
            return ("right" if letter == expected[1] else "wrong"), "letter"
    elif given is not None and (named := _NAMED.search(reference)):
        return ("right" if named[1] == given[1] else "wrong"), "letter"
    elif given is not None and given[1] in choices:
        return decide(reference, choices[given[1]], Asked())[0], "text of the choice"
    return None


class Reading(NamedTuple):
    """One way to read an answer: its words, and what they mean or why that is not known."""

    text: str
    meaning: Expression | str


def readings(text: str, wanted: Asked, *, beside: bool) -> Iterator[Reading]:
    """Read a cleaned answer: as it stands, then with commas between values.

    With `beside`, also without words beside its value, then with decimal commas.
    """
    yield from _by_commas(text, wanted)
    if beside:
        pointed = _DECIMAL_COMMA.sub(_pointed, text) if wanted.comma else text
        forms = {bare(text, wanted.text), pointed, bare(pointed, wanted.text)} - {None, text}
        for form in sorted(forms):
            yield from _by_commas(form, wanted)


def _by_commas(text: str, wanted: Asked) -> Iterator[Reading]:
    yield Reading(text, _meaning(text, wanted.listed))
    if not wanted.listed and _GROUPED.search(text):
        yield Reading(text, _meaning(text, True))


def decide(reference: str, answer: str, wanted: Asked) -> Decision:
    """Compare two final answers to a question that asks for the form `wanted`: right if readings agree."""
    reference, answer = clean(reference), clean(answer)
    if not answer:
        return "wrong", "empty"
    if _SPACES.sub("", reference) == _SPACES.sub("", answer):
        return "right", "same after normalisation"
    if (outcome := _by_letter(reference, answer, wanted)) is not None:
        return outcome
    golds = list(readings(reference, wanted, beside=False))
    outcomes = []
    for given in readings(answer, wanted, beside=not _SAYS.search(reference)):
        for gold in golds:
            outcomes.append(_by_meaning(gold, given, wanted))
            if outcomes[-1][0] == "right":
                return outcomes[-1]
    return next((outcome for outcome in outcomes if outcome[0] == "wrong"), outcomes[0])


def _pointed(match: re.Match[str]) -> str:
    """1.500,5 as 1500.5."""
    return re.sub(r"\D", "", match[1]) + (f".{match[2]}" if match[2] else "")


def _meaning(text: str, separate: bool) -> Expression | str:
    words = WRAPPED.sub(r"\1", text)
    tree = parse(number_first(words) if is_words(text) else text, separate)
    if isinstance(tree, str) or not count(tree, "text") or not has_sentence(text):
        return tree
    return "a sentence"


def _units_fit(gold: Expression, given: Expression, question: str) -> bool:
    """Whether the words after the values of an answer are units that the question or the reference has."""
    ours, theirs = ({part.value for part in walk(side) if part.kind == "quantity"} for side in (gold, given))
    context = " ".join([question, *ours]).strip()
    return all(is_unit(unit, context) for unit in theirs - ours)


def _by_meaning(gold: Reading, given: Reading, wanted: Asked) -> Decision:
    """Compare two readings: by their meanings if both are known, else by their words."""
    if isinstance(gold.meaning, Expression) and isinstance(given.meaning, Expression):
        return _by_trees(gold, given, wanted)
    if gold.meaning == Expression("set") and same_words(given.text, "none"):
        return "right", "words"

    def same(first: str, second: str) -> bool:
        sides = [_meaning(clean(text), wanted.listed) for text in (first, second)]
        return not any(isinstance(side, str) for side in sides) and equivalent(*sides, wanted)[0] == "right"

    outcome = compare_prose(gold.text, given.text, same, strict=wanted.strict)
    unread = next((side for side in (gold, given) if isinstance(side.meaning, str)), given)
    if outcome == ("wrong", "words") and (unread is gold or not is_words(given.text)):
        name = "reference" if unread is gold else "answer"
        return "undecided", f"{name} not understood: {unread.meaning}"
    return outcome


def _by_trees(gold: Reading, given: Reading, wanted: Asked) -> Decision:
    if not _units_fit(gold.meaning, given.meaning, wanted.text):
        return "undecided", "a unit that the question does not name"
    try:
        outcome = equivalent(gold.meaning, given.meaning, wanted)
    except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
        # mpmath raises these for undefined operations; one answer must not end a run
        return "undecided", f"comparison failed: {type(error).__name__}"
    words = outcome[0] != "right" and count(gold.meaning, "text") and is_words(gold.text)
    return (
        ("right", "words")
        if words and is_words(given.text) and same_words(gold.text, given.text)
        else outcome
    )


def _guarded(judge: Callable[..., Verdict]) -> Callable[..., Verdict]:
    """`judge` with a step budget; what fails is said to, because one answer must not end a run."""

    @wraps(judge)
    def guarded(*args: str | None, **kwargs: Any) -> Verdict:
        try:
            with budget(MAX_VERDICT_STEPS):
                return judge(*args, **kwargs)
        except Exhausted:
            return Verdict("undecided", None, f"more than {MAX_VERDICT_STEPS:,} steps")
        except Exception as error:
            return Verdict("failed", None, f"the grader failed: {type(error).__name__}")

    return guarded


@_guarded
def compare(
    reference: str,
    answer: str | None,
    *,
    question: str | None = None,
    choices: Mapping[str, str] | None = None,
    reward: bool = False,
) -> Verdict:
    """Compare two final answers; `choices` maps letters to the texts of a multiple-choice question.

    `reward` adds the rules of `Asked.strict`.
    """
    if answer is None:
        return Verdict("wrong", None, "no answer")
    reference = reference_answer(reference)
    if answer == reference:
        return Verdict("right", answer, "identical")
    if not choices and _INTEGER.match(answer) and _INTEGER.match(reference):
        return Verdict("right" if int(answer) == int(reference) else "wrong", answer, "integers")
    if len(answer) > MAX_ANSWER_CHARACTERS:
        return Verdict("undecided", answer[:200], f"answer longer than {MAX_ANSWER_CHARACTERS} characters")
    return _compared(reference, answer, question, tuple(choices.items()) if choices else (), reward)


@lru_cache(maxsize=16384)  # samples of one question repeat their answers
def _compared(
    reference: str, answer: str, question: str | None, choices: tuple[tuple[str, str], ...], reward: bool
) -> Verdict:
    try:
        if choices:
            outcome = _compare_choices(reference, answer, dict(choices))
        else:
            outcome = decide(reference, answer, replace(asked(question), strict=reward))
            if reward and outcome[0] == "right" and question and _copied(reference, answer, question):
                outcome = "undecided", "not worked out: a formula of the question, or no numeral"
    except (RecursionError, Exhausted) as error:
        outcome = "undecided", f"too long a comparison: {type(error).__name__}"
    return Verdict(outcome[0], answer, outcome[1])


def _copied(reference: str, answer: str, question: str) -> bool:
    """Whether a right answer hands the question back instead of working it out."""
    expected, given = clean(reference), clean(answer)
    given = bare(given, question) or given
    if _SPACES.sub("", expected) == _SPACES.sub("", given):
        return False
    trees = _meaning(expected, False), _meaning(given, False)
    if trees[0] == trees[1]:
        return False
    if not any(isinstance(tree, str) for tree in trees):
        return not is_worked_out(*trees, question)
    return _SPACES.sub("", given) in _asked_text(question)


@lru_cache(maxsize=4096)
def _asked_text(question: str) -> str:
    return _SPACES.sub("", clean(question))


def final_answer(reference: str, response: str, choices: Mapping[str, str] | None = None) -> str | None:
    """Return the final answer in a response; if the reference is a choice, also a letter standing alone."""
    answer = extract(response)
    by_letter = bool(choices) or _GOLD_LETTER.match(reference) is not None
    if not by_letter or boxes(response) or (answer is not None and _letter(answer, choices or {})):
        return answer
    letter = chosen_letter(response)
    if letter is None or (answer is not None and choices and _chosen(answer, choices)):
        return answer
    return letter


@lru_cache(maxsize=65536)  # the same wrong answers come again and again
def numeric_value(answer: str) -> float | None:
    """Return the answer as a float if it is a single real value, else None."""
    try:
        tree = _meaning(clean(answer), False)
        if isinstance(tree, str) or any(
            part.kind in ("text", "relation", "list", "percent", "base", "pm") for part in walk(tree)
        ):
            return None
        found = value(tree)
        return float(found) if found is not None and math.isfinite(found) else None
    except (TypeError, OverflowError, RecursionError, ValueError):
        return None


@_guarded
def grade(
    reference: str,
    response: str,
    *,
    question: str | None = None,
    choices: Mapping[str, str] | None = None,
    boxed_only: bool = False,
) -> Verdict:
    """Extract the final answer from `response` and compare it with `reference`; no answer is wrong.

    With `boxed_only`, the reward of RL: the last box is the answer, compared with `reward`; all boxes of the
    response must be right, and none may be denied or followed by "or".
    """
    if not boxed_only:
        answer = final_answer(reference, response, choices)
        return compare(reference, answer, question=question, choices=choices)
    found = reward_boxes(response)
    if not found:
        return Verdict("wrong", None, "no box")
    answer = found[-1].answer
    verdict = compare(reference, answer, question=question, choices=choices, reward=True)
    if not verdict.right:
        return verdict
    if len(found) == MAX_BOXES or any(box.remark for box in found):
        return Verdict("wrong", answer, "a box that its sentence denies or doubts")
    others = {box.answer for box in found} - {answer}
    if len(others) >= MAX_DIFFERENT_BOXES or not all(
        compare(reference, other, question=question, choices=choices).right for other in others
    ):
        return Verdict("wrong", answer, "several different boxes")
    return verdict
