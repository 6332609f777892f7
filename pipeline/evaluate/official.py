r"""Grades as the paper's evaluation program does (deepseek-ai/DeepSeek-Math), row for row, quirks included.

Each benchmark has rules of its own, and other ones for few-shot prompts than for chat. They are written anew
here; `tests/test_evaluate_official.py` runs the authors' program beside them where its folder is given.

Departs from it in two points. A comparison may take 15 seconds of the processor, theirs 15 of the clock: then
the answer counts as wrong on both sides. What a model wrote never runs as Python (`official_equality`).
"""

import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from pipeline.evaluate import official_equality
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.metrics import accuracy
from pipeline.evaluate.official_answers import (
    MISSING,
    after_chinese,
    before,
    choice,
    cloze,
    cmath,
    hoped,
    last,
    last_number,
    several,
    tidy,
)
from pipeline.evaluate.sampling import Answer
from pipeline.grader.answers import Verdict
from pipeline.grader.helper import HelperProcess
from pipeline.protocol.manifest import ROOT
from pipeline.protocol.watchdog import beat

SECONDS = 15.0  # of the processor, for one question
OCW = tomllib.loads(Path(__file__).with_name("ocw.toml").read_text())
_worker = HelperProcess(  # which compares formulas by SymPy
    [sys.executable, "-P", "-W", "ignore", "-m", official_equality.__name__],
    cwd=ROOT,
    env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "LANG": "C.UTF-8"},
)


@lru_cache(maxsize=65536)
def _asked(rule: str, given: str | tuple[str, ...], gold: str | tuple[str, ...]) -> bool | None:
    """Return the worker's answer; None if it took too long."""
    return _worker.ask([SECONDS, rule, given, gold])


def _equal(given: str, gold: str) -> bool | None:
    return given == gold or _asked("equal", given, gold)


def _as_set(given: list[str], gold: list[str]) -> bool | None:
    """Compare the last of the different answers with all different references, in any order."""
    gold = list(dict.fromkeys(gold))
    return _asked("same_set", tuple(list(dict.fromkeys(given))[-len(gold) :]), tuple(gold))


def _in_order(given: list[str], gold: list[str]) -> bool | None:
    """Compare the last of the different values, between semicolons and outer commas, with the references."""
    parts = list(dict.fromkeys(part for text in given for part in _parts(text)))[-len(gold) :]
    if len(parts) != len(gold):
        return False
    for pair in zip(parts, gold, strict=True):
        if not (found := _equal(*pair)):
            return found
    return True


def _parts(text: str) -> list[str]:
    found, start, depth = [], 0, 0
    for place, character in enumerate(text + ";"):
        if character == ";" or (character == "," and depth == 0):
            found.append(text[start:place].strip())
            start, depth = place + 1, 0
        depth += (character in "([{") - (character in ")]}")
    return found


def _letter(given: str, gold: str) -> bool:
    """Of the letters A to D, the one whose first place is last."""
    places = {letter: given.find(letter) for letter in "ABCD" if letter in given}
    return bool(places) and max(places, key=places.__getitem__) == gold


def _ocw(given: str, gold: str) -> bool | None:
    try:
        float(gold)
    except ValueError:
        if "=" in gold:
            return _asked("ocw_equations", _unwrapped(given), _unwrapped(gold)) if given else False
        return _normal(given or official_equality.INVALID) == _normal(gold)
    return _asked("ocw_numbers", _without_units(given), _without_units(gold))


def _without_units(text: str) -> str:
    for unit in OCW["units"]:
        text = text.replace(unit, "").strip()
    for unit in ("m", "s", "cm"):
        text = text.replace(f"\\mathrm{{{unit}}}", "").replace(f"\\mathrm{{~{unit}}}", "").strip()
    return text.strip("$")


def _unwrapped(text: str) -> str:
    text = text.removeprefix("\\[").removesuffix("\\]")
    return text.replace("\\left(", "(").replace("\\right)", ")").replace("\\\\", "\\").strip("$")


def _normal(text: str) -> str:
    """Return the clean-up of Lewkowycz et al. (2022), appendix D."""
    text = text.split("=")[-1]
    for old, new in (*OCW["replaced"], *((word, "") for word in OCW["removed"])):
        text = text.replace(old, new)
    text = re.sub(r"(.*?)(\$)(.*?)(\$)(.*)", r"$\3$", text)
    for name in ("text", "textbf", "overline"):
        text = re.sub(rf"\\{name}\{{(.*?)\}}", r"\1", text)
    text = re.sub(r"\\boxed\{(.*)\}", r"\1", text)
    text = re.sub(r"frac([^{])(.)", r"frac{\1}{\2}", text)
    text = re.sub(r"sqrt([^{])", r"sqrt{\1}", text).replace("$", "")
    plain = text.replace(",", "")
    return plain if plain.isdigit() else text


# the rules of each benchmark


@dataclass(frozen=True)
class Rules:
    """How a benchmark is graded: the answer in a text, the reference in a row, and whether they are equal."""

    answer: Callable[[str, str], Any]
    gold: Callable[[Item], Any]
    equal: Callable[[Any, Any], bool | None]


def _plain(item: Item) -> str:
    return item.answer.replace(",", "")


def _of_solution(item: Item) -> list[str]:
    """All boxes of the worked solution, else the answer."""
    return several(item.question, item.solution) if item.solution else [tidy(item.answer)]


def _blanks(item: Item) -> list[str]:
    return [tidy(part) for part in item.answer.split(";")]


def _given(item: Item) -> str:
    return item.answer


_LAST = Rules(last, _plain, _equal)
_MATH = Rules(several, _of_solution, _as_set)
_CHOICE = Rules(before("Problem:", choice), _given, lambda given, gold: given.lower() == gold.lower())
FEW_SHOT = {
    "gsm8k": Rules(before("Q: ", last_number), _plain, _equal),
    "math": Rules(before("Problem:", several), _of_solution, _as_set),
    "ocw": Rules(before("Problem:", hoped), _given, _ocw),
    "sat": _CHOICE,
    "mmlu_stem": _CHOICE,
    "cmath": Rules(before("问题：", cmath), _plain, _equal),
    "gaokao_mathcloze": Rules(before("问题 ", cloze), _blanks, _in_order),
    "gaokao_mathqa": Rules(
        before("问题 ", lambda _, text: MISSING[0] if (found := after_chinese(text)) is None else found),
        _given,
        _letter,
    ),
}
CHAT = FEW_SHOT | {"gsm8k": _LAST, "math": _MATH, "mgsm_zh": _LAST, "cmath": _LAST}
_SAME = {"math500": "math"}


def knows(benchmark: str) -> bool:
    """Whether the program has rules for a benchmark."""
    return _SAME.get(benchmark, benchmark) in CHAT


@cache
def rules(benchmark: str, few_shot: bool) -> Rules:
    """Return the rules of a benchmark; those of MATH for one that the program does not know."""
    return (FEW_SHOT if few_shot else CHAT).get(_SAME.get(benchmark, benchmark), _MATH)


def grade(benchmark: str, few_shot: bool, item: Item, text: str, *, output: bool = False) -> Verdict:
    """Return the verdict on a response, or on the `output` of a program."""
    own = rules(benchmark, few_shot)
    gold = own.gold(item)
    printed = [text] if isinstance(gold, list) else text
    given = printed if output else own.answer(item.question or "", text)
    found = own.equal(given, gold)
    shown = ", ".join(given) if isinstance(given, list) else given
    reason = "the paper's rules" if found is not None else "the comparison was stopped at its limits"
    return Verdict("right" if found else "wrong", None if shown in MISSING else shown, reason)


def scores(task: str, items: Sequence[Item], answers: Sequence[Answer]) -> dict[str, Any]:
    """Accuracy on a task (benchmark.mode); nothing where the program has no rules for it."""
    benchmark, _, mode = task.rpartition(".")
    few_shot, kind = mode.startswith("few_shot"), mode.rpartition("_")[2]
    if kind not in ("cot", "pal", "tool") or not knows(benchmark):
        return {}
    rights = []
    for item, answer in zip(items, answers, strict=True):
        text = (answer.output or "") if kind == "pal" else answer.text
        rights.append(float(grade(benchmark, few_shot, item, text, output=kind == "pal").right))
        beat()
    return {"official": accuracy(rights)}
