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

from mathverdict.answers import Verdict

from pipeline.core.manifest import ROOT
from pipeline.core.watchdog import beat
from pipeline.evaluate import paper_equality
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.metrics import accuracy
from pipeline.evaluate.paper_process import AnsweringProcess
from pipeline.evaluate.sampling import Answer

SECONDS = 15.0  # of the processor, for one question
OCW = tomllib.loads(Path(__file__).with_name("ocw.toml").read_text())
# What the paper's program writes where it finds no answer: its own words, which it compares like answers.
MISSING = "placeholder", "[invalid]", ""
_NUMBER = re.compile(r"-?\d+\.?\d*")
_worker = AnsweringProcess(  # which compares formulas by SymPy
    [sys.executable, "-P", "-W", "ignore", "-m", paper_equality.__name__],
    cwd=ROOT,
    env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "LANG": "C.UTF-8"},
)


# how an answer is cleaned up


def _fractions(text: str) -> str:
    r"""\frac12 as \frac{1}{2}."""
    first, *pieces = text.split("\\frac")
    for piece in pieces:
        if piece[:1] == "{":
            first += "\\frac" + piece
        elif len(piece) < 2:
            return text
        else:
            over = piece[1:] if piece[1] == "{" else f"{{{piece[1]}}}{piece[2:]}"
            first += f"\\frac{{{piece[0]}}}{over}"
    return first


def _slash(text: str) -> str:
    r"""3/4 as \frac{3}{4}."""
    parts = text.split("/")
    if len(parts) != 2:
        return text
    try:
        over, under = (part if "sqrt" in part else str(int(part)) for part in parts)
    except ValueError:
        return text
    return f"\\frac{{{over}}}{{{under}}}" if text == f"{over}/{under}" else text


def _edit(text: str, steps: Sequence[tuple[str, str]]) -> str:
    for pattern, new in steps:
        text = re.sub(pattern, new, text).strip()
    return text


_DEGREES_AND_UNITS = (
    *((r"\^\{\\circ\}", ""), (r"\^\\circ", ""), (r"\{[cm]?m\}(\^[23])?", ""), (r"p\.m\.$", "")),
    (r"(\d)\s*t$", r"\1"),
)


@lru_cache(maxsize=65536)
def _clean(text: str) -> str:
    """Clean an answer as the program does before it compares."""
    text = text.strip().replace("\n", "").rstrip(".").replace("\\!", "")
    if text.startswith("\\text{") and text.endswith("}"):
        text = text.removeprefix("\\text{")[:-1]
    for word in ("tfrac", "dfrac", "cfrac"):
        text = text.replace(word, "frac")
    text = text.replace("\\left", "").replace("\\right", "")
    text = re.sub(r"\\text\{.*?\}$", "", text).strip() or text
    text = _edit(text, _DEGREES_AND_UNITS)
    for word in ("\\$", "$", "x\\in"):
        text = text.replace(word, "")
    text = text.replace("\\%", "%").replace(" .", " 0.").replace("{.", "{0.").replace("\\cdot", "")
    text = text.replace("infinity", "\\infty")
    if "\\infty" not in text:
        text = text.replace("inf", "\\infty")
    for word in ("\\mathbf", "\\mathrm"):
        text = text.replace(word, "")
    text = re.sub(r"\\mbox\{.*?\}", "", text)
    if "i" not in text:
        text = text.replace("j", "i")
    text = re.sub(r"(\d+)\.0+$", r"\1", re.sub(r"(\d+)\.0+([^\d])", r"\1\2", text))
    if not text:
        return text
    text = "0" + text if text[0] == "." else text
    for name in ("sqrt", "tan"):
        text = re.sub(rf"\\{name}(-?[0-9.a-zA-Z]+)", rf"\\{name}{{\1}}", text)
        text = re.sub(rf"\\{name}\s+(\w+)$", rf"\\{name}{{\1}}", text)
    return _slash(_fractions(text.replace(" ", ""))).rstrip("\\,.")


# where an answer stands


def _boxes(text: str) -> list[str]:
    """Return what stands in boxes, with a % that follows the brace."""
    found = []
    for piece in text.split("boxed{")[1:]:
        depth = 0
        for place, character in enumerate(piece):
            depth += (character == "{") - (character == "}")
            if depth < 0:
                found.append(piece[: place + (piece[place + 1 : place + 2] == "%")])
                break
    return found


def _read_output(text: str) -> str:
    """Return what stands between the last "```output" and the next fence."""
    _, fence, rest = text.rpartition("```output")
    return rest.partition("```")[0].strip() if fence else ""


def _find(text: str) -> list[str]:
    if "final answer is $" in text and "$. I hope" in text:
        return [text.split("final answer is $", 1)[1].split("$. I hope", 1)[0]]
    if "boxed" in text:
        return _boxes(text)
    if "he answer is" in text:
        return [text.rpartition("he answer is")[2]]
    if output := _read_output(text):
        return [output]
    return re.findall(r"-?\d*\.?\d+", text.replace(",", ""))[-1:]


def _read_answers(text: str) -> list[str]:
    """All answers in a text, by the first rule that finds some; each is one line."""
    lines = (found.strip().split("\n")[0].lstrip(":").rstrip(".").rstrip("/") for found in _find(text))
    return [_clean(line) for line in lines]


def _read_last(question: str, text: str) -> str:
    return (_read_answers(text) or [""])[-1]


def _read_several(question: str, text: str) -> list[str]:
    """Return the answers of MATH: split at commas if the question says so, and at the word "and"."""
    found: list[str] = []
    for answer in _read_answers(text):
        if "separated by commas" in question and not re.search(r"[()\[\]]", answer):
            found += answer.split(",")
        else:
            found += re.split(r"\\text\{\s*and\s*\}", answer)
    return [answer.strip() for answer in found]


def _stop_before(mark: str, rule: Callable[[str, str], Any]) -> Callable[[str, str], Any]:
    """Return the rule on what stands before the next question that a model makes up."""
    return lambda question, text: rule(question, text.partition(mark)[0])


def _read_last_number(question: str, text: str) -> str:
    return (_NUMBER.findall(text) or MISSING[1:2])[-1]


def _read_after_chinese(text: str) -> str | None:
    """Return the rest of the line after the first "the answer is" in Chinese."""
    _, phrase, rest = text.partition("答案是")
    return rest.strip().split("\n")[0] if phrase else None


def _read_cmath(question: str, text: str) -> str:
    found = _read_after_chinese(text)
    if found is None:
        return _read_last(question, text)
    return _read_last_number(question, found.strip("：").strip("。"))


def _read_cloze(question: str, text: str) -> list[str]:
    found = _read_after_chinese(text)
    return [MISSING[0] if found is None else found.strip().strip("$")]


def _read_choice(question: str, text: str) -> str:
    found = re.search(r"the final answer is \(?([abcd])\)?", text.lower())
    return found[1].upper() if found else MISSING[0]


def _read_hoped(question: str, text: str) -> str:
    found = re.search(r"final answer is (.*)\. I hope it is correct.", text)
    return found[1] if found else MISSING[1]


# whether two answers are equal


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
    parts = list(dict.fromkeys(part for text in given for part in _split_values(text)))[-len(gold) :]
    if len(parts) != len(gold):
        return False
    for pair in zip(parts, gold, strict=True):
        if not (found := _equal(*pair)):
            return found
    return True


def _split_values(text: str) -> list[str]:
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
        return _normal(given or paper_equality.INVALID) == _normal(gold)
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
    return _read_several(item.question, item.solution) if item.solution else [_clean(item.answer)]


def _blanks(item: Item) -> list[str]:
    return [_clean(part) for part in item.answer.split(";")]


def _plain_answer(item: Item) -> str:
    return item.answer


_LAST = Rules(_read_last, _plain, _equal)
_MATH = Rules(_read_several, _of_solution, _as_set)
_CHOICE = Rules(
    _stop_before("Problem:", _read_choice), _plain_answer, lambda given, gold: given.lower() == gold.lower()
)
FEW_SHOT = {
    "gsm8k": Rules(_stop_before("Q: ", _read_last_number), _plain, _equal),
    "math": Rules(_stop_before("Problem:", _read_several), _of_solution, _as_set),
    "ocw": Rules(_stop_before("Problem:", _read_hoped), _plain_answer, _ocw),
    "sat": _CHOICE,
    "mmlu_stem": _CHOICE,
    "cmath": Rules(_stop_before("问题：", _read_cmath), _plain, _equal),
    "gaokao_mathcloze": Rules(_stop_before("问题 ", _read_cloze), _blanks, _in_order),
    "gaokao_mathqa": Rules(
        _stop_before(
            "问题 ", lambda _, text: MISSING[0] if (found := _read_after_chinese(text)) is None else found
        ),
        _plain_answer,
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
