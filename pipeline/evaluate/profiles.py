"""Rules of other harnesses as data (`configs/profiles.yaml`): how to extract an answer and when it is right.

Published numbers are comparable only under the rules that produced them: graders differ by up to five points
on the same outputs. A profile names functions of the tables EXTRACT and COMPARE and sets their tolerances.
`strict` is not a profile but the grader itself, and `official` is the paper's program (`official`), whose
rules differ by benchmark.
"""

import math
import re
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline.evaluate import official
from pipeline.evaluate.benchmarks import Item
from pipeline.grader.answers import Verdict, compare
from pipeline.grader.boxes import balanced, boxes
from pipeline.grader.extraction import PROGRAM_OUTPUT, json_answer, last_formula
from pipeline.grader.notation import clean
from pipeline.grader.parser import parse
from pipeline.grader.tree import Expression, difference, make, symbols
from pipeline.grader.values import same, value
from pipeline.protocol.manifest import ROOT
from pipeline.protocol.stage import InputError

STRICT = "strict"
PROFILES = ROOT / "configs/profiles.yaml"


class Profile(BaseModel):
    """One harness; the meaning of each field stands at the top of `configs/profiles.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    about: str
    aliases: tuple[str, ...] = ()
    program: Literal["chat", "few_shot"] | None = None
    benchmark: str = ""
    extract: tuple[str, ...] = ()
    first_line: bool = True
    compare: tuple[str, ...] = ()
    factors: tuple[float, ...] = (1.0,)
    relative: float = 0.0
    decimals: int | None = None
    brackets: bool = False
    first_of_list: bool = False
    kept_units: tuple[str, ...] = ()


@cache
def profiles(path: Path = PROFILES) -> dict[str, Profile]:
    """All profiles by name. Raises InputError naming file and key."""
    try:
        rows = yaml.safe_load(path.read_text())["profiles"]
        found = {name: Profile.model_validate(row) for name, row in rows.items()}
    except (OSError, KeyError, TypeError, yaml.YAMLError, ValidationError) as error:
        raise InputError(f"{path}: {error}") from error
    for name, profile in found.items():
        for kind, known in (("extract", EXTRACT), ("compare", COMPARE)):
            if unknown := sorted(set(getattr(profile, kind)) - known.keys()):
                raise InputError(f"{path}: profiles.{name}.{kind}: unknown rule {', '.join(unknown)}")
    return found


def profile_names() -> list[str]:
    """`strict` and the names in the file."""
    return [STRICT, *profiles()]


def read_profile(name: str, path: Path = PROFILES, benchmark: str = "") -> Profile | None:
    """Return the profile of that name or alias, for a benchmark; None for strict. Raises InputError for an
    unknown name.
    """
    wanted = name.casefold().replace("_", "-")
    if wanted == STRICT:
        return None
    for known, profile in profiles(path).items():
        if wanted == known or wanted in (alias.replace("_", "-") for alias in profile.aliases):
            return profile.model_copy(update={"benchmark": benchmark})
    raise InputError(f"unknown profile {name!r}; known: {', '.join(profile_names())}")


# extraction: each rule returns the answers that it finds


def _between_hope(text: str) -> list[str]:
    found = re.findall(r"final answer is \$(.*?)\$\. I hope", text, re.DOTALL)
    return found[-1:]


def _boxes(text: str) -> list[str]:
    return [content for _, _, content in boxes(text)]


def _last_box(text: str) -> list[str]:
    """Return what follows the last "boxed", even without a closing brace."""
    if "boxed" not in text:
        return []
    rest = text.rpartition("boxed")[2]
    if not rest.startswith("{"):
        return [rest.split("$")[0].strip()]
    end = balanced(rest, 0)
    return [rest[1:end] if end > 0 else rest[1:]]


def _after(phrase: str) -> Callable[[str], list[str]]:
    return lambda text: [text.rpartition(phrase)[2].strip()] if phrase in text else []


def _fence(text: str) -> list[str]:
    found = PROGRAM_OUTPUT.findall(text)
    return [found[-1].strip().splitlines()[-1]] if found and found[-1].strip() else []


def last_output(text: str) -> str | None:
    """Return the last result in a tool-integrated response; None if there is none or it is an error."""
    outputs = PROGRAM_OUTPUT.findall(text)
    if not outputs or not outputs[-1].strip() or outputs[-1].startswith("Runtime errors:"):
        return None
    return outputs[-1].strip().splitlines()[-1]


def _last_number(text: str) -> list[str]:
    return re.findall(r"-?\d*\.?\d+", text.replace(",", ""))[-1:]


def _hashes(text: str) -> list[str]:
    return re.findall(r"(?:####|^A:)\s*\$?(-?[\d.,]+)", text, re.MULTILINE)[-1:]


EXTRACT: dict[str, Callable[[str], list[str]]] = {
    "hope": _between_hope,
    "boxes": _boxes,
    "last_box": _last_box,
    "answer_is": _after("he answer is"),
    "final_answer_is": _after("final answer is"),
    "chinese": _after("答案是"),
    "output_fence": _fence,
    "last_number": _last_number,
    "formula": lambda text: [found] if (found := last_formula(text)) else [],
    "json_answer": lambda text: [found] if (found := json_answer(text)) else [],
    "hashes": _hashes,
    "so_answer": _after("answer is "),
    "whole": lambda text: [text.strip()] if text.strip() else [],
}


def take(profile: Profile, response: str) -> list[str]:
    """Return the answers in a response by the first rule of the profile that finds any."""
    for rule in profile.extract:
        if found := EXTRACT[rule](response):
            break
    else:
        return []
    if profile.first_line:
        found = [(text.strip().split("\n")[0] if text.strip() else "").lstrip(":").strip() for text in found]
        found = [text.rstrip(".").rstrip("/") for text in found]
    return [text for text in found[-1:] if text]


# comparison: each rule says whether an answer is right


def tidy(text: str) -> str:
    """Return the clean-up of the harness family: spaces, dollar signs, \\left, trailing unit, \\dfrac, 2.0 as
    2.
    """
    text = text.replace("\n", "").rstrip(".").replace("\\!", "")
    text = re.sub(r"\\[dt]frac", r"\\frac", re.sub(r"\\left|\\right|\\mathbf|\\[,;]|\\quad", "", text))
    text = re.sub(r"\\mbox\s*\{[^{}]*\}", "", text)
    text = re.sub(r"\\text\s*\{[^{}]*\}\s*$", "", text).strip() or re.sub(r"^\\text\s*\{(.*)\}$", r"\1", text)
    text = re.sub(r"\^\s*\{?\\circ\}?|\\\$|\$|\\%|%|\s", "", text).replace("x\\in", "")
    text = re.sub(r"\\text\{(\w+)\}", r"\1", text)
    text = re.sub(r"(?<=\d)\.0+(?!\d)", "", re.sub(r"(?<!\d)\.(?=\d)", "0.", text))
    text = re.sub(r"^[a-zA-Z]{1,2}=", "", text)
    text = re.sub(r"\\frac(\d)(\d)", r"\\frac{\1}{\2}", re.sub(r"\\sqrt(\w)", r"\\sqrt{\1}", text))
    return re.sub(r"^(-?\d+)/(-?\d+)$", r"\\frac{\1}{\2}", text)


def _float(text: str) -> float | None:
    text = text.replace(",", "").strip().rstrip("\\")
    scale = 0.01 if text.endswith("%") else 1.0
    try:
        return float(text.rstrip("%\\")) * scale
    except ValueError:
        return None


def _near(profile: Profile, expected: float, given: float) -> bool:
    return any(
        math.isclose(expected * factor, given, rel_tol=profile.relative, abs_tol=1e-12)
        for factor in profile.factors
    )


def _tidy_string(profile: Profile, gold: str, given: str, question: str) -> bool:
    gold, given = tidy(gold).casefold(), tidy(given).casefold()
    if gold == given:
        return True
    if not profile.brackets:
        gold, given = (re.sub(r"[\[\](){}]", "", side) for side in (gold, given))
    return bool(gold) and gold == given


def _number(profile: Profile, gold: str, given: str, question: str) -> bool:
    expected, found = _float(gold), _float(given)
    return expected is not None and found is not None and _near(profile, expected, found)


def _symbolic(profile: Profile, gold: str, given: str, question: str) -> bool:
    """Numbers within the tolerance, tuples part by part, equations up to sign, expressions by value."""
    gold, given = tidy(gold), tidy(given)
    numbers = _float(gold), _float(given)
    if None not in numbers:
        return _near(profile, *numbers)
    if "{,}" in gold + given:  # these harnesses cannot parse it
        return False
    trees = [parse(clean(side), True) for side in (gold, given)]
    return all(isinstance(tree, Expression) for tree in trees) and _same_trees(profile, *trees)


def _same_trees(profile: Profile, gold: Expression, given: Expression) -> bool:
    if any(node.kind == "quantity" and node.value in profile.kept_units for node in (gold, given)):
        return False
    if profile.first_of_list and (gold.kind == "list") != (given.kind == "list"):
        gold, given = (tree.args[0] if tree.kind == "list" else tree for tree in (gold, given))
    parts = [
        tree.args if tree.kind in ("tuple", "matrix", "list", "set", "union") else None
        for tree in (gold, given)
    ]
    if None not in parts:
        if len(parts[0]) != len(parts[1]) or (profile.brackets and gold.value != given.value):
            return False
        return all(_same_trees(profile, *pair) for pair in zip(*parts, strict=True))
    if parts != [None, None]:
        return False
    if gold.kind == given.kind == "relation" and gold.value == given.value == ("=",):
        one, other = (difference(side.args[0], side.args[1]) for side in (gold, given))
        return same(one, other) is True or same(one, make("neg", other)) is True
    if "relation" in (gold.kind, given.kind):
        return gold == given
    if symbols(gold) or symbols(given):
        return same(gold, given) is True
    values = [value(tree) for tree in (gold, given)]
    if None in values or any(getattr(found, "imag", 0) != 0 for found in values):
        return same(gold, given) is True
    try:
        return _near(profile, *map(float, values))
    except OverflowError:
        return same(gold, given) is True


def _first_number(profile: Profile, gold: str, given: str, question: str) -> bool:
    numbers = [re.search(r"-?\d+(?:\.\d+)?", re.sub(r"[$,\s]", "", side)) for side in (gold, given)]
    return None not in numbers and Fraction(numbers[0][0]) == Fraction(numbers[1][0])


def _rounded(profile: Profile, gold: str, given: str, question: str) -> bool:
    """Whether both are the same number to the profile's decimals."""
    numbers = [
        value(tree) if isinstance(tree := parse(clean(side)), Expression) else None for side in (gold, given)
    ]
    if None in numbers or any(getattr(number, "imag", 0) != 0 for number in numbers):
        return False
    return round(float(numbers[0]), profile.decimals) == round(float(numbers[1]), profile.decimals)


def _fallback_number(profile: Profile, gold: str, given: str, question: str) -> bool:
    """Read an answer in words as its last number."""
    if isinstance(parse(clean(given)), Expression):
        return False
    found = _last_number(given)
    return bool(found) and _number(profile, gold, found[0], question)


def _exact(profile: Profile, gold: str, given: str, question: str) -> bool:
    return gold.strip() == given.strip()


COMPARE: dict[str, Callable[[Profile, str, str, str], bool]] = {
    "exact": _exact,
    "plain_string": lambda profile, gold, given, question: (
        gold.replace(",", "").strip(". ") == given.replace(",", "").strip(". ")
    ),
    "tidy_string": _tidy_string,
    "number": _number,
    "symbolic": _symbolic,
    "first_number": _first_number,
    "rounded": _rounded,
    "last_number": _fallback_number,
    "strict": lambda profile, gold, given, question: compare(gold, given, question=question).right,
}


def _rule(profile: Profile, gold: str, given: str, question: str) -> str | None:
    return next((rule for rule in profile.compare if COMPARE[rule](profile, gold, given, question)), None)


def judge(profile: Profile, item: Item, found: list[str]) -> Verdict:
    """Return the verdict on the answers extracted from a response; the reason names the rule that decided."""
    if not found:
        return Verdict("wrong", None, "no answer")
    if item.choices:
        return item.compare(found[-1])
    rule = _rule(profile, item.answer, found[-1], item.question or "")
    return Verdict("right" if rule else "wrong", found[-1], rule or "no rule holds")


def grade_answer(profile: Profile | None, item: Item, answer: str | None) -> Verdict:
    """Return the verdict on a final answer under a profile; None is strict."""
    if profile is None or answer is None:
        return item.compare(answer)
    if profile.program:
        return official.grade(profile.benchmark, profile.program == "few_shot", item, answer, output=True)
    return judge(profile, item, [answer])


def grade_response(profile: Profile | None, item: Item, response: str) -> Verdict:
    """Return the verdict on a whole response under a profile; None is strict."""
    if profile is None:
        return item.grade(response)
    if profile.program:
        return official.grade(profile.benchmark, profile.program == "few_shot", item, response)
    return judge(profile, item, take(profile, response))
