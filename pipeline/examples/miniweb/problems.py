"""Arithmetic word problems: what the demo's web explains, its models learn, its benchmarks ask.

A problem is a story of one to three additions and subtractions of small numbers; `stories.yaml` has the
wording. Its solutions have styles of different reliability for a small model: step by step (`cot`), the bare
result (`direct`), or one sum that a program computes (`tool`). The mix leaves room for reinforcement
learning, as in the paper's section 5.2.2: a model that saw all styles can already solve a problem, and GRPO
teaches it to prefer the style that does.

Splits: `train` and `test` share story frames but no question: a hash of the pair (who, things) decides, so
that nothing has to be remembered to keep them apart. `heldout` uses story frames that appear in no training
text, about the pairs of `test`.
"""

import hashlib
import random
from dataclasses import dataclass
from functools import cache
from typing import Literal

from pydantic.dataclasses import dataclass as checked

from pipeline.examples.miniweb.phrases import NO_OTHER_KEYS, load_yaml

SPLITS = ("train", "test", "heldout")
Style = Literal["cot", "direct", "tool"]

MAX_START = 12
MIN_CHANGE, MAX_CHANGE = 2, 9  # from 2: plurals stay right
MAX_TOTAL = 20
CHANGE_WEIGHTS = {1: 1, 2: 2, 3: 3}  # number of changes in a story -> weight: longer ones leave more to learn
TEST_SHARE = 0.2  # of the (who, things) pairs


@checked(frozen=True, config=NO_OTHER_KEYS)
class Scenario:
    """One story frame; every text may use {who}, {things}, {other} and (except `ask`) {n}."""

    name: str
    opener: str
    gains: tuple[str, ...]
    losses: tuple[str, ...]
    ask: str


@checked(frozen=True, config=NO_OTHER_KEYS)
class Language:
    """All wording of one language; `joiner` stands between sentences, `drill` has a question per sign."""

    joiner: str
    names: tuple[str, ...]
    things: tuple[str, ...]
    scenarios: tuple[Scenario, ...]
    held_out_scenarios: tuple[Scenario, ...]
    conclusion: str
    drill: dict[Literal["+", "-"], str]


@cache
def languages() -> dict[str, Language]:
    return load_yaml("stories.yaml", dict[str, Language])


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
    """A question and the operations that lead to its answer; `template` names the story frame."""

    question: str
    operations: tuple[Operation, ...]
    template: str
    lang: str
    split: str

    @property
    def answer(self) -> str:
        return str(self.operations[-1].result)

    @property
    def steps(self) -> list[str]:
        """The solution's equations in order, e.g. ["5+3=8", "8-2=6"]: mathematics only, for any markup."""
        return [str(operation) for operation in self.operations]

    @property
    def conclusion(self) -> str:
        """The sentence that states the answer, without markup."""
        return languages()[self.lang].conclusion.format(answer=self.answer)


def is_test_pair(who: str, things: str) -> bool:
    """Whether only benchmarks ask about this pair: a property of the words, not of a seed."""
    digest = hashlib.sha256(f"{who}/{things}".encode()).digest()
    return digest[0] < 256 * TEST_SHARE


def make_problem(rng: random.Random, split: str, lang: str) -> Problem:
    """Draw a problem of `split` (train, test, heldout) in `lang` (en, zh); `rng` alone decides."""
    if split not in SPLITS or lang not in languages():
        raise ValueError(f"no problems of split {split!r} in language {lang!r}")
    language = languages()[lang]
    who, things = rng.choice(language.names), rng.choice(language.things)
    while is_test_pair(who, things) != (split != "train"):
        who, things = rng.choice(language.names), rng.choice(language.things)
    other = rng.choice([name for name in language.names if name != who])
    scenario = rng.choice(language.held_out_scenarios if split == "heldout" else language.scenarios)
    parts, operations = _chain(rng, scenario)
    sentences = [text.format(who=who, things=things, other=other, n=n) for text, n in parts]
    template = f"{lang}-{scenario.name}-{len(operations)}"
    return Problem(language.joiner.join(sentences), operations, template, lang, split)


Story = tuple[list[tuple[str, int]], tuple[Operation, ...]]  # sentences with their numbers; operations


def _chain(rng: random.Random, scenario: Scenario) -> Story:
    """Return a start followed by one to three gains and losses."""
    total = rng.randint(MIN_CHANGE, MAX_START)
    parts, operations = [(scenario.opener, total)], []
    events = {"+": list(scenario.gains), "-": list(scenario.losses)}
    (changes,) = rng.choices(list(CHANGE_WEIGHTS), list(CHANGE_WEIGHTS.values()))
    for _ in range(changes):
        room = {"+": MAX_TOTAL - total, "-": total}  # the largest changes that stay between 0 and MAX_TOTAL
        sign = rng.choice([sign for sign in "+-" if events[sign] and room[sign] >= MIN_CHANGE])
        change = rng.randint(MIN_CHANGE, min(MAX_CHANGE, room[sign]))
        parts.append((events[sign].pop(rng.randrange(len(events[sign]))), change))
        operations.append(Operation(total, sign, change))
        total = operations[-1].result
    return [*parts, (scenario.ask, 0)], tuple(operations)


def distinct_problems(seed: int, split: str, count: int, chinese_share: float) -> list[Problem]:
    """Draw `count` problems with different questions, `chinese_share` of them in Chinese, in random order."""
    rng = random.Random(f"{seed}/{split}")
    found: dict[str, Problem] = {}
    for lang, wanted in (("zh", round(count * chinese_share)), ("en", count)):
        while len(found) < wanted:
            problem = make_problem(rng, split, lang)
            found.setdefault(problem.question, problem)
    problems = list(found.values())
    rng.shuffle(problems)
    return problems


def drill_problems(seed: int, count: int, chinese_share: float) -> list[Problem]:
    """Draw `count` different one-step questions about (who, things) pairs of the test split.

    They are short, for the exact-match rule of decontamination (3 to 9 grams, paper section 2.1): 6 grams in
    English, 8 in Chinese, where a gram is a word, a number or one character. No other text has their form.
    """
    rng = random.Random(f"{seed}/drill")
    found: dict[str, Problem] = {}
    while len(found) < count:
        lang = "zh" if len(found) < round(count * chinese_share) else "en"
        language = languages()[lang]
        who, things = rng.choice(language.names), rng.choice(language.things)
        if not is_test_pair(who, things):
            continue
        sign = rng.choice(("+", "-"))
        left = rng.randint(2, MAX_START)
        right = rng.randint(1, min(MAX_CHANGE, left) if sign == "-" else MAX_CHANGE)
        text = language.drill[sign].format(who=who, things=things, left=left, right=right)
        problem = Problem(text, (Operation(left, sign, right),), f"{lang}-drill-1", lang, "drill")
        found.setdefault(text, problem)
    return list(found.values())


def joined_sum(problem: Problem) -> str:
    """Write all operations as one equation, e.g. "5+3-2=6"."""
    changes = "".join(f"{operation.sign}{operation.right}" for operation in problem.operations)
    return f"{problem.operations[0].left}{changes}={problem.answer}"


def program(problem: Problem) -> str:
    """Return a Python program that prints the answer, a statement per operation (the paper's PoT, 3.1)."""
    lines = [f"x{i} = {o.left} {o.sign} {o.right}" for i, o in enumerate(problem.operations, start=1)]
    return "\n".join([*lines, f"print(x{len(lines)})"])


def render_solution(problem: Problem, style: Style) -> str:
    """Return the solution in one style, with the answer as \\boxed{N}.

    `tool` runs a program, reads its output and answers (the paper's tool-integrated reasoning, section 3.1).
    """
    conclusion = languages()[problem.lang].conclusion.format(answer=f"\\boxed{{{problem.answer}}}")
    total = joined_sum(problem)
    run = f"```python\nprint({total.partition('=')[0]})\n```\n```output\n{problem.answer}\n```"
    lines = {"cot": problem.steps, "direct": [], "tool": [run]}[style]
    return "\n".join([*lines, conclusion])
