"""Arithmetic word problems with worked solutions: what the demo's web explains, models learn, benchmarks ask.

A problem is a story of one to three additions and subtractions of small numbers (wording: `scenarios.py`).
Solutions come in styles of different reliability for a small model: step by step (`cot`), one joined sum
(`brief`), the bare result (`direct`), a program, or one sum that a program computes (`tool`). That is what
gives reinforcement learning its room, as in the paper's section 5.2.2: a model that saw all styles can
already solve a problem, and GRPO teaches it to prefer the style that does.

Splits: `train` and `test` share story frames but no question: they are cut by a hash of the pair
(who, things), so that nothing has to be remembered to keep them apart. `heldout` uses story frames that
appear in no training text, about the pairs of `test`.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import Literal

from pipeline.miniweb.scenarios import LANGUAGES, Language, Scenario

Style = Literal["cot", "brief", "direct", "program", "tool"]
STYLES: tuple[Style, ...] = ("cot", "brief", "direct", "program", "tool")
SPLITS = ("train", "test", "heldout")

MAX_START = 12
MIN_CHANGE, MAX_CHANGE = 2, 9  # from 2: plurals stay right
MAX_TOTAL = 20
CHANGE_WEIGHTS = {1: 1, 2: 2, 3: 3}  # number of changes in a story -> weight: longer ones leave more to learn
TEST_SHARE = 0.2  # of the (who, things) pairs
COMPARE_SHARE = 0.1  # of problems that compare two people instead of telling a chain of events


@dataclass(frozen=True)
class Operation:
    """One step: `left` plus or minus `right`."""

    left: int
    sign: Literal["+", "-"]
    right: int

    @property
    def result(self) -> int:
        return self.left + self.right if self.sign == "+" else self.left - self.right

    def __str__(self) -> str:
        return f"{self.left}{self.sign}{self.right}={self.result}"


@dataclass(frozen=True)
class Problem:
    """A question, its answer (digits) and the operations that lead there; `template` names the frame."""

    question: str
    answer: str
    operations: tuple[Operation, ...]
    template: str
    lang: str
    split: str

    @property
    def steps(self) -> list[str]:
        """The solution's equations in order, e.g. ["5+3=8", "8-2=6"]: mathematics only, for any markup."""
        return [str(operation) for operation in self.operations]

    @property
    def conclusion(self) -> str:
        """The sentence that states the answer, without markup."""
        return LANGUAGES[self.lang].conclusion.format(answer=self.answer)


def is_test_pair(who: str, things: str) -> bool:
    """Whether only benchmarks ask about this pair: a property of the words, not of a seed."""
    digest = hashlib.sha256(f"{who}/{things}".encode()).digest()
    return digest[0] < 256 * TEST_SHARE


def make_problem(rng: random.Random, split: str, lang: str) -> Problem:
    """Draw a problem of `split` (train, test, heldout) in `lang` (en, zh); `rng` alone decides."""
    if split not in SPLITS or lang not in LANGUAGES:
        raise ValueError(f"no problems of split {split!r} in language {lang!r}")
    language = LANGUAGES[lang]
    who, things = rng.choice(language.names), rng.choice(language.things)
    while is_test_pair(who, things) != (split != "train"):
        who, things = rng.choice(language.names), rng.choice(language.things)
    other = rng.choice([name for name in language.names if name != who])
    if split != "heldout" and rng.random() < COMPARE_SHARE:
        template, parts, operations = "compare", *_comparison(rng, language)
    else:
        scenario = rng.choice(language.held_out_scenarios if split == "heldout" else language.scenarios)
        template, parts, operations = scenario.name, *_chain(rng, scenario)
    sentences = [text.format(who=who, things=things, other=other, n=n) for text, n in parts]
    answer = str(operations[-1].result)
    template = f"{lang}-{template}-{len(operations)}"
    return Problem(language.joiner.join(sentences), answer, operations, template, lang, split)


Story = tuple[list[tuple[str, int]], tuple[Operation, ...]]  # sentences with their numbers; operations


def _chain(rng: random.Random, scenario: Scenario) -> Story:
    """A start followed by one to three gains and losses."""
    total = rng.randint(MIN_CHANGE, MAX_START)
    parts, operations = [(scenario.opener, total)], []
    events = {"+": list(scenario.gains), "-": list(scenario.losses)}
    (changes,) = rng.choices(list(CHANGE_WEIGHTS), list(CHANGE_WEIGHTS.values()))
    for _ in range(changes):
        signs = [sign for sign in "+-" if events[sign] and _room(total, sign) >= MIN_CHANGE]
        sign = rng.choice(signs)
        change = rng.randint(MIN_CHANGE, min(MAX_CHANGE, _room(total, sign)))
        parts.append((events[sign].pop(rng.randrange(len(events[sign]))), change))
        operations.append(Operation(total, sign, change))
        total = operations[-1].result
    return [*parts, (scenario.ask, 0)], tuple(operations)


def _room(total: int, sign: str) -> int:
    """The largest change by which `total` stays between 0 and MAX_TOTAL."""
    return MAX_TOTAL - total if sign == "+" else total


def _comparison(rng: random.Random, language: Language) -> Story:
    """Two people's shares, the second given by its difference from the first; the answer is their sum."""
    have, more, fewer, ask = language.compare
    first = rng.randint(MIN_CHANGE, MAX_TOTAL // 2 - MIN_CHANGE)
    sign = rng.choice("+-")
    difference = rng.randint(MIN_CHANGE, min(MAX_CHANGE, MAX_TOTAL - 2 * first if sign == "+" else first))
    second = Operation(first, sign, difference)
    return (
        [(have, first), (more if sign == "+" else fewer, difference), (ask, 0)],
        (second, Operation(first, "+", second.result)),
    )


def joined_sum(problem: Problem) -> str:
    """All operations as one equation, e.g. "5+3-2=6"."""
    first, *rest = problem.operations
    if problem.template.split("-")[1] == "compare":
        return f"{first.left}+{first.left}{first.sign}{first.right}={problem.answer}"
    changes = "".join(f"{operation.sign}{operation.right}" for operation in (first, *rest))
    return f"{first.left}{changes}={problem.answer}"


def program(problem: Problem) -> str:
    """A Python program that prints the answer, one statement per operation (the paper's PoT, section 3.1)."""
    lines = [f"x{i} = {o.left} {o.sign} {o.right}" for i, o in enumerate(problem.operations, start=1)]
    return "\n".join([*lines, f"print(x{len(lines)})"])


def render_solution(problem: Problem, style: Style, boxed: bool = True) -> str:
    """The solution in one style; `boxed` writes the answer as \\boxed{N}, as chat answers do.

    A `program` states no answer: running it prints it. `tool` runs one, reads its output and answers (the
    paper's tool-integrated reasoning, section 3.1).
    """
    if style == "program":
        return f"```python\n{program(problem)}\n```"
    answer = f"\\boxed{{{problem.answer}}}" if boxed else problem.answer
    conclusion = LANGUAGES[problem.lang].conclusion.format(answer=answer)
    total = joined_sum(problem)
    run = f"```python\nprint({total.partition('=')[0]})\n```\n```output\n{problem.answer}\n```"
    lines = {"cot": problem.steps, "brief": [total], "direct": [], "tool": [run]}[style]
    return "\n".join([*lines, conclusion])
