"""Benchmarks: questions with reference answers, from files in bench format or the hub.

Adding a benchmark is one small file, `configs/benchmarks/NAME.yaml`, or an entry of that form under
`benchmarks:` in the configuration, whose keys override the file's. Bench format, one JSON object per line:
`id`, `question`, `answer`, and optionally `choices` ({letter: text}, or a list, then `answer` may be an
index), `solution`, `lang`, `split`, `subject`, `level`. `fields` maps other column names. A row without an
answer is an error and is never dropped: the denominator of a score must not shrink silently.

Two kinds of rows are judged by something else than a reference answer: those with `tests`, Python that fails
unless the program before it is right (`start` is the text that the program begins with), and those with a
`formal_statement` to be proved, perhaps with the `header` of its theory.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

from mathverdict.answers import Verdict, compare, grade
from mathverdict.extraction import extract

from pipeline.config.evaluate import BenchmarkNode
from pipeline.core.data.rows import HUB, read_rows, renamed
from pipeline.core.stage import InputError

NUMBER_THEORY = "numbertheory"  # in the name of a statement: it has a prompt of its own (paper 8.3)
GSM8K_END = "\n#### "  # as published, `answer` is a worked solution that ends in this and the answer
LETTER = re.compile(r"\(?[A-H]\)?")
GSM8K_MARKS = re.compile(r"<<[^<>]*>>")  # calculator marks


@dataclass(frozen=True)
class Item:
    """One question. `answer` is the reference; with `choices` it is a letter."""

    id: str
    question: str
    answer: str
    choices: dict[str, str] | None = None
    solution: str | None = None
    lang: str = "en"
    labels: dict[str, str | int] = field(default_factory=dict)  # subject, level
    start: str = ""
    tests: str | None = None
    formal: str | None = None
    header: str = ""

    @property
    def text(self) -> str:
        """The question as the model reads it, with its choices on one more line (paper section 8.3)."""
        if not self.choices:
            return self.question
        choices = " ".join(f"({letter}) {text}" for letter, text in self.choices.items())
        return f"{self.question.rstrip()}\n{choices}"

    def compare(self, answer: str | None, *, reward: bool = False) -> Verdict:
        """Return the grader's verdict on a final answer; None is wrong. `reward`: by stricter rules."""
        return compare(self.answer, answer, question=self.question, choices=self.choices, reward=reward)

    def grade(self, response: str, *, boxed_only: bool = False) -> Verdict:
        """Return the grader's verdict on a whole response."""
        return grade(
            self.answer, response, question=self.question, choices=self.choices, boxed_only=boxed_only
        )


def _choices(place: str, choices: Any, answer: Any) -> tuple[dict[str, str] | None, Any]:
    """Choices by letter, and the answer as a letter, from letters or from a list and an index."""
    if isinstance(choices, list):
        choices = {chr(ord("A") + number): str(text) for number, text in enumerate(choices)}
        if isinstance(answer, int) and 0 <= answer < len(choices):
            answer = list(choices)[answer]
    if choices is None or choices == {}:  # missing in some published rows; `without_choices` finds these
        return None, answer
    letters = "".join(re.split(r"[\s,，、]+", answer)) if isinstance(answer, str) else None
    if not isinstance(choices, dict) or letters is None or not set(letters) <= set(choices):
        raise InputError(f"{place}: `choices` must map letters to texts, and `answer` be of these letters")
    if not all(isinstance(text, str | int | float | None) for text in choices.values()):
        raise InputError(f"{place}: a choice is neither a text nor a number")
    # Copies of MMLU have NaN for the word "None"; the paper's code writes it "nan" too.
    return {letter: str(text) for letter, text in choices.items()}, letters


def without_choices(items: Sequence[Item]) -> list[Item]:
    """Get the questions whose answer is a letter but whose choices are missing, in a benchmark of choice."""
    if not any(item.choices for item in items):
        return []
    return [item for item in items if not item.choices and LETTER.fullmatch(item.answer)]


def _columns(name: str, row: dict[str, Any]) -> str:
    """Say how to read a field from a column of another name, if the row lacks it."""
    return "" if name in row else f"; the row has {', '.join(row)}: write `fields: {{{name}: COLUMN}}`"


def _item(place: str, row: dict[str, Any], name: str, number: int, language: str | None) -> Item:
    """Check one row; errors name the place and the field."""
    question, answer, choices = row.get("question"), row.get("answer"), row.get("choices")
    if not isinstance(question, str) or not question.strip():
        raise InputError(f"{place}: `question` is missing or empty{_columns('question', row)}")
    solution = row.get("solution_plain") or row.get("solution")
    if isinstance(answer, str) and GSM8K_END in answer:
        solution, _, answer = GSM8K_MARKS.sub("", answer).rpartition(GSM8K_END)
    judged = {key: row.get(key) for key in ("tests", "formal_statement")}
    if not all(text is None or (isinstance(text, str) and text.strip()) for text in judged.values()):
        raise InputError(f"{place}: `tests` and `formal_statement` must be texts")
    if any(judged.values()):
        answer = "-" if answer is None else answer
    elif answer is None and isinstance(solution, str):
        answer = extract(solution)
    choices, answer = _choices(place, choices, answer)
    if isinstance(answer, int | float) and not isinstance(answer, bool) and math.isfinite(answer):
        answer = str(answer)
    if answer is not None and not isinstance(answer, str | list):
        raise InputError(f"{place}: `answer` is {answer!r} ({type(answer).__name__}); write it as a text")
    if isinstance(answer, list) and answer and all(isinstance(part, str) for part in answer):
        answer = ", ".join(answer)  # several values, as OlympiadBench has them
    if not isinstance(answer, str) or not answer.strip():
        raise InputError(
            f"{place}: `answer` is missing or empty; every question needs one{_columns('answer', row)}"
        )
    identity, lang = row.get("id"), language or row.get("lang") or "en"
    if not isinstance(identity, str | int | None) or isinstance(identity, bool):
        raise InputError(f"{place}: `id` is neither a text nor an integer")
    if not isinstance(lang, str) or not isinstance(solution, str | None):
        raise InputError(f"{place}: `lang` and `solution` must be texts")
    labels = {label: row[label] for label in ("subject", "level") if row.get(label) is not None}
    if formal := judged["formal_statement"]:
        labels.setdefault("subject", NUMBER_THEORY if NUMBER_THEORY in formal else "other")
    if not all(isinstance(label, str | int | float) for label in labels.values()):
        raise InputError(f"{place}: `subject` and `level` must be texts or numbers")
    return Item(
        id=f"{name}-{number}" if identity is None else str(identity),
        question=question,
        answer=answer.strip(),
        choices=choices,
        solution=solution,
        lang=lang,
        labels=labels,
        start=str(row.get("start") or ""),
        tests=judged["tests"],
        formal=formal,
        header=str(row.get("header") or ""),
    )


def read_items(
    name: str, node: BenchmarkNode, sources: Sequence[str], first: int | None = None
) -> Iterator[Item]:
    """Yield the questions in the rows of `sources` that a benchmark asks; `first`: in so many of each.

    A row without an id is known by its number among all rows, as decontamination counts them too. Raises
    InputError, naming file and line, for a malformed row, a missing answer or an id that occurs twice.
    """
    places, numbers = dict[str, str](), count()
    for source in sources:
        parts = source.removeprefix(HUB).rpartition(":")[0].split("/") if source.startswith(HUB) else []
        subject = {"subject": parts[2]} if len(sources) > 1 and len(parts) == 3 else {}
        for place, row in islice(read_rows(source), first):
            row, number = subject | renamed(place, row, node.fields), next(numbers)
            split, language = row.get("split", node.split), row.get("lang", node.language)
            if node.split not in (None, split) or node.language not in (None, language):
                continue
            item = _item(place, row, name, number, node.language)
            if places.setdefault(item.id, place) != place:
                raise InputError(f"{place}: id {item.id!r} occurs twice, first in {places[item.id]}")
            yield item


def load(name: str, node: BenchmarkNode, sources: Iterable[str]) -> list[Item]:
    """All questions of a benchmark, in order, up to its limit. `sources` are paths or hub ids.

    Raises InputError, naming file and line, for a malformed row, a missing answer, an id that occurs twice,
    or no rows at all.
    """
    sources = list(sources)
    items = list(islice(read_items(name, node, sources), node.limit))
    if not items:
        raise InputError(f"benchmark {name}: no questions in {', '.join(sources) or 'no files'}")
    return items
