"""Prompts: few-shot for base models, the chat template for the others (paper sections 8.1-8.3).

A few-shot layout is a YAML file (`configs/prompts/`): `question`, `solution` and `answer` texts with
{question}, {solution} and {answer}, the `gap` between exemplars, the texts at which to `stop`, and
optionally its own `exemplars` or all of them as one text (`prefix`); users may give files of their own.
`configs/prompts/official/` has the paper's prompts byte for byte. The other layouts depart from it: their
exemplars are rows with worked solutions from the benchmark's training split, spread evenly over the file, or
written for the layout (Chinese, programs). The stage writes exemplars beside the answers.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from pipeline.core.overlays import read_yaml
from pipeline.core.section import REQUIRED, Section, key
from pipeline.core.stage import InputError
from pipeline.evaluate.benchmarks import Item
from pipeline.training.asking import message_tokens


class Exemplar(Section):
    """A worked question of a layout's own."""

    question: str = key(REQUIRED, "the question")
    solution: str = key(REQUIRED, "its worked solution")
    answer: str = key("", "its final answer")


class Layout(Section):
    """A few-shot layout file."""

    question: str = key(REQUIRED, "how a question is written, up to where its answer begins; {question}")
    prefix: str = key("", "all exemplars as one text, instead of single ones")
    prefixes: dict[str, str] = key({}, "the same for questions of each subject")
    choices: str = key(
        "", "how choices follow their question; {choices}; empty: one line, as (A) first (B) second"
    )
    choice: str = key("({letter}) {text}", "a choice; {letter}, {text}")
    between: str = key(" ", "text between choices")
    solution: str = key("", "how an exemplar's solution follows; {solution}")
    answer: str = key("", "added to a solution that does not end in its answer; {answer}")
    gap: str = key("\n\n", "text between exemplars")
    stop: list[str] = key([], "the answer ends before the first of these")
    exemplars: list[Exemplar] = key([], "question, solution and answer of each exemplar")

    @field_validator("question", "solution", "answer", "choices")
    @classmethod
    def _takes_only_its_own_field(cls, text: str, info: ValidationInfo) -> str:
        try:
            text.format(**{info.field_name: ""})
        except (KeyError, IndexError, AttributeError, ValueError) as error:
            message = "only {field} may stand in braces; write {{ and }} for braces"
            raise PydanticCustomError("layout", message, {"field": f"{{{info.field_name}}}"}) from error
        return text


def read_layout(path: Path) -> Layout:
    """Read a layout; errors name file and key."""
    try:
        return Layout.model_validate(read_yaml(path))
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{path}: key {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def choose_exemplars(layout: Layout, items: Sequence[Item], shots: int, place: str) -> list[Item]:
    """`shots` exemplars: those of the layout, or rows of `items` with a solution, spread evenly."""
    if layout.prefix or layout.prefixes:
        return []
    own = [
        Item(f"exemplar-{number}", row.question, row.answer, solution=row.solution)
        for number, row in enumerate(layout.exemplars)
    ]
    pool = own or [item for item in items if item.solution]
    if len(pool) < shots:
        raise InputError(f"{place}: {shots} shots wanted, {len(pool)} exemplars with worked solutions found")
    return [pool[index * len(pool) // shots] for index in range(shots)]


def _asked(layout: Layout, item: Item) -> str:
    if item.formal is not None:  # the informal problem and its proof as a comment (paper 2.3)
        informal = (
            f"### Problem\n\n{item.question.strip()}\n\n### Solution\n\n{(item.solution or '').strip()}"
        )
        return f"(*{informal} *)\n\nFormal:\n{item.formal.strip()}"
    if not layout.choices or not item.choices:
        return item.text
    choices = [
        layout.choice.format(letter=letter, text=text.strip()) for letter, text in item.choices.items()
    ]
    question = item.question.strip().rstrip("\\")  # a line break of LaTeX ends some questions
    return question + layout.choices.format(choices=layout.between.join(choices))


def few_shot_text(layout: Layout, exemplars: Sequence[Item], item: Item) -> str:
    """Exemplars, then the question, in the layout's form."""
    subject = item.labels.get("subject")
    if layout.prefixes and subject not in layout.prefixes:
        raise InputError(f"question {item.id!r}: the layout has no prefix for its subject, {subject!r}")
    if prefix := layout.prefixes.get(str(subject), layout.prefix):
        return prefix + layout.gap + layout.question.format(question=_asked(layout, item).strip())
    parts = []
    for exemplar in exemplars:
        solution = exemplar.solution.strip()
        text = layout.question.format(question=_asked(layout, exemplar)) + layout.solution.format(
            solution=solution
        )
        if "\\boxed" not in solution and exemplar.answer:
            text += layout.answer.format(answer=exemplar.answer)
        parts.append(text)
    return layout.gap.join([*parts, layout.question.format(question=_asked(layout, item))])


def few_shot_prompt(tokenizer: Any, layout: Layout, exemplars: Sequence[Item], item: Item) -> list[int]:
    """Tokens of a few-shot prompt, with the beginning-of-sequence token in front if the model has one."""
    tokens = tokenizer(few_shot_text(layout, exemplars, item))["input_ids"]
    while tokens and tokens[-1] == tokenizer.eos_token_id:
        tokens.pop()
    if tokenizer.bos_token_id is not None and tokens[:1] != [tokenizer.bos_token_id]:
        tokens.insert(0, tokenizer.bos_token_id)
    return tokens


def chat_prompt(tokenizer: Any, item: Item, suffix: str, model: str) -> list[int]:
    """Tokens of a zero-shot chat prompt: question, suffix on a line of its own, the model's chat template."""
    return message_tokens(tokenizer, f"{item.text}\n{suffix}" if suffix else item.text, model)
