r"""Changes of one numeral, sign, operator or word of a right answer, by operators that know no rule.

A change is drawn in a box or beside it: -\boxed{4}, "\boxed{4} nicht", \boxed{4.5}.
"""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from sympy.parsing.sympy_parser import implicit_multiplication, parse_expr, standard_transformations

NUMERAL = re.compile(r"\d+(?:\.\d+)?")
OPERATORS = "+ - \\cdot / ^ = < > , ! ' : \\pm \\sqrt \\% | i x".split()  # noqa: SIM905
HARMLESS = (  # what changes no value, and what takes its place
    (r"−", "-"), (r",+", ","), (r"=+", "="), (r"(\d)\1+(?=\\[lc]?dots|\.\.\.)", r"\1"),
    (r"(?<=[0-9a-z)]):(?=[0-9a-z]|\\frac|\\sqrt)", "/"), (r":", ""),
    (r"(?<![0-9A-Za-z)}\]!])\+|(?<=matrix})\+|(?<=[a-z])\s+\+(?=\d)|\+(?=\s*[-+])", ""),
    (r"(?<![\d}\])!|a-z])[=,.]+|[,.=]+(?![\d\\(\[{a-z-])|[,.=]+(?=\s*(?:\\text|\\[ )]|\())", ""),
    (r"[-+ix](?=0+(?![\d.]))|(?<=\b0)(?:\\%|!)", ""), (r"(?<![0-9.][12])(?<=[12])!", ""),
    (r"\\(bar|overline|dot)\s*\{(\d)\2*\}", r"\1\2"), (r"_\{?[\d.]+\}?", ""),
    (r"\\(?:cdot|sqrt)\s*(?=1(?!\d)|[a-z\\])|\s|\\text|\\q?quad", ""),
)  # fmt: skip
SYMMETRIC = re.compile(r"\\[pm]{2}|\||k\s*\\?pi|\\ne\s*0|R|\b0 or|\[0,|All real")


class Change(NamedTuple):
    """A response with one change: its kind, what was written where, and the row of the right answer."""

    kind: str
    written: str
    response: str
    row: Mapping[str, Any]


def _numeral(text: str, draw: random.Random, words: Sequence[str]) -> tuple[str, str] | None:
    """Another numeral in place of one, or a digit beside one."""
    found = list(NUMERAL.finditer(text))
    if not found:
        return None
    match = draw.choice(found)
    digit = str(draw.randint(1, 9))
    new = draw.choice([match[0] + digit, digit + match[0], str(draw.randint(2, 999)), f"{match[0]}.{digit}"])
    return (text[: match.start()] + new + text[match.end() :], new) if new != match[0] else None


def _sign(text: str, draw: random.Random, words: Sequence[str]) -> tuple[str, str] | None:
    """A minus that comes or goes."""
    places = [match.start() for match in re.finditer(r"[-−\d]|\\(?:boxed|frac|sqrt)", text)]
    place = draw.choice(places)
    if text[place] in "-−":
        return text[:place] + text[place + 1 :], "no sign"
    sign = draw.choice("-−")
    return text[:place] + sign + text[place:], sign


def _operator(text: str, draw: random.Random, words: Sequence[str]) -> tuple[str, str] | None:
    """An operator beside a numeral or in place of another one."""
    sign = draw.choice(OPERATORS)
    places = [match.span() for match in re.finditer(r"[-+=<>/^,]", text)]
    places += [(place, place) for match in NUMERAL.finditer(text) for place in match.span()]
    if not places:
        return None
    start, end = draw.choice(places)
    return text[:start] + sign + " " * sign.startswith("\\") + text[end:], sign


def _word(text: str, draw: random.Random, words: Sequence[str]) -> tuple[str, str] | None:
    """A word that changes a value, right before or behind the box or its content."""
    box, behind = re.search(r"(\\boxed\{)(.*)(\})", text, re.DOTALL), draw.random() < 0.5
    word = draw.choice(words[behind].split()).replace("_", " ")
    written = draw.choice(("{}", "\\text{{{}}}", "**{}**")).format(word)
    place = box.start(draw.choice((1, 2))) if not behind else draw.choice((box.end(2), box.end()))
    return text[:place] + (f" {written}" if behind else f"{written} ") + text[place:], written


KINDS: dict[str, Callable[..., tuple[str, str] | None]] = {
    "numeral": _numeral, "sign": _sign, "operator": _operator, "word": _word,
}  # fmt: skip


def value_of(text: str) -> Any:
    """Value of a plain formula in a box, at fixed places of its letters. Raises ValueError for other text."""
    text = re.sub(r"\\boxed\s*", "", text).replace("−", "-").removeprefix("So it is")
    text = re.sub(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"((\1)/(\2))", text)
    text = re.sub(r"\\sqrt\s*\{([^{}]*)\}", r"sqrt(\1)", text)
    text = text.replace("\\cdot", "*").replace("\\times", "*").replace("\\pi", "pi").replace("^", "**")
    text = (
        text.replace("\\left", "").replace("\\right", "").replace("{", "(").replace("}", ")").strip(" $=:,.")
    )
    if not re.fullmatch(r"(?:[\d\s().+*/!-]|sqrt|pi|[a-z])+", text):
        raise ValueError(text)
    try:
        found = parse_expr(text, transformations=(*standard_transformations, implicit_multiplication))
        places = {name: 0.7 + len(str(name)) + ord(str(name)[0]) / 100 for name in found.free_symbols}
        return complex(found.evalf(30, subs=places))
    except Exception as error:  # SymPy raises any class
        raise ValueError(text) from error


def is_equal(change: Change) -> bool:
    """Whether a changed answer says what it said before: by its value, else sign for sign."""
    before, after = change.row["response"], change.response
    if change.kind == "word":
        return re.search(r"= *0\}", before) is not None  # a multiple of the equation
    if change.written.strip() in ("-", "−", "no sign", "\\pm") and SYMMETRIC.search(before):
        return True
    with suppress(ValueError):
        one, other = value_of(before), value_of(after)
        return abs(one - other) <= 1e-12 * max(1, abs(one))
    for pattern, new in HARMLESS:
        before, after = re.sub(pattern, new, before), re.sub(pattern, new, after)
    return before == after


def right_answers(labelled: Callable[[str], Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the labelled right answers as responses with a box; of short ones without a function."""
    rows = [{**row, "lead": "So it is "} for row in labelled("grader_pairs")]
    rows += [{**row, "lead": ""} for row in labelled("grader_languages")]
    return [
        {**row, "response": f"{row['lead']}\\boxed{{{row['answer']}}}"}
        for row in rows
        if row["same"] and len(row["answer"]) < 80 and "\\max" not in row["answer"]
    ]


def asked_of(row: Mapping[str, Any]) -> tuple[str | None, str]:
    """Question and reference of a row, as a grader takes them."""
    return row.get("question"), row["reference"]


def changes(
    rows: Sequence[Mapping[str, Any]], words: Mapping[str, Sequence[str]], count: int, seed: int | str
) -> Iterator[Change]:
    """Draw changes of right answers: rows of `reference`, `response`, perhaps `question` and `lang`."""
    draw = random.Random(seed)
    done = 0
    while done < count:
        row, kind = draw.choice(rows), draw.choice(list(KINDS))
        language = row.get("lang") or draw.choice(list(words))
        changed = KINDS[kind](row["response"], draw, words[language])
        if changed is not None and changed[0] != row["response"]:
            done += 1
            yield Change(kind, changed[1], changed[0], row)
