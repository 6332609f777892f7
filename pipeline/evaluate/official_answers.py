r"""Finds answers in a text as the paper's evaluation program does, and cleans them up in its way."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

# What the paper's program writes where it finds no answer: its own words, which it compares like answers.
MISSING = "placeholder", "[invalid]", ""
_NUMBER = re.compile(r"-?\d+\.?\d*")


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


def _edited(text: str, steps: Sequence[tuple[str, str]]) -> str:
    for pattern, new in steps:
        text = re.sub(pattern, new, text).strip()
    return text


_DEGREES_AND_UNITS = (
    *((r"\^\{\\circ\}", ""), (r"\^\\circ", ""), (r"\{[cm]?m\}(\^[23])?", ""), (r"p\.m\.$", "")),
    (r"(\d)\s*t$", r"\1"),
)


@lru_cache(maxsize=65536)
def tidy(text: str) -> str:
    """Clean an answer as the program does before it compares."""
    text = text.strip().replace("\n", "").rstrip(".").replace("\\!", "")
    if text.startswith("\\text{") and text.endswith("}"):
        text = text.removeprefix("\\text{")[:-1]
    for word in ("tfrac", "dfrac", "cfrac"):
        text = text.replace(word, "frac")
    text = text.replace("\\left", "").replace("\\right", "")
    text = re.sub(r"\\text\{.*?\}$", "", text).strip() or text
    text = _edited(text, _DEGREES_AND_UNITS)
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


def program_output(text: str) -> str:
    """Return what stands between the last "```output" and the next fence."""
    _, fence, rest = text.rpartition("```output")
    return rest.partition("```")[0].strip() if fence else ""


def _found(text: str) -> list[str]:
    if "final answer is $" in text and "$. I hope" in text:
        return [text.split("final answer is $", 1)[1].split("$. I hope", 1)[0]]
    if "boxed" in text:
        return _boxes(text)
    if "he answer is" in text:
        return [text.rpartition("he answer is")[2]]
    if output := program_output(text):
        return [output]
    return re.findall(r"-?\d*\.?\d+", text.replace(",", ""))[-1:]


def answers(text: str) -> list[str]:
    """All answers in a text, by the first rule that finds some; each is one line."""
    lines = (found.strip().split("\n")[0].lstrip(":").rstrip(".").rstrip("/") for found in _found(text))
    return [tidy(line) for line in lines]


def last(question: str, text: str) -> str:
    return (answers(text) or [""])[-1]


def several(question: str, text: str) -> list[str]:
    """Return the answers of MATH: split at commas if the question says so, and at the word "and"."""
    found: list[str] = []
    for answer in answers(text):
        if "separated by commas" in question and not re.search(r"[()\[\]]", answer):
            found += answer.split(",")
        else:
            found += re.split(r"\\text\{\s*and\s*\}", answer)
    return [answer.strip() for answer in found]


def before(mark: str, rule: Callable[[str, str], Any]) -> Callable[[str, str], Any]:
    """Return the rule on what stands before the next question that a model makes up."""
    return lambda question, text: rule(question, text.partition(mark)[0])


def last_number(question: str, text: str) -> str:
    return (_NUMBER.findall(text) or MISSING[1:2])[-1]


def after_chinese(text: str) -> str | None:
    """Return the rest of the line after the first "the answer is" in Chinese."""
    _, phrase, rest = text.partition("答案是")
    return rest.strip().split("\n")[0] if phrase else None


def cmath(question: str, text: str) -> str:
    found = after_chinese(text)
    return last(question, text) if found is None else last_number(question, found.strip("：").strip("。"))


def cloze(question: str, text: str) -> list[str]:
    found = after_chinese(text)
    return [MISSING[0] if found is None else found.strip().strip("$")]


def choice(question: str, text: str) -> str:
    found = re.search(r"the final answer is \(?([abcd])\)?", text.lower())
    return found[1].upper() if found else MISSING[0]


def hoped(question: str, text: str) -> str:
    found = re.search(r"final answer is (.*)\. I hope it is correct.", text)
    return found[1] if found else MISSING[1]
