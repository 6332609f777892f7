r"""An adversarial suite for graders of mathematical answers: wrong answers that a grader must not take.

`adversarial.toml` has the forms; the operators here are those that no template can write. A grader is any
function (question, reference, response) -> bool, see `load`. Each answer stands in a box.
"""

import importlib.util
import json
import random
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

Operator = Callable[[str, random.Random], str | None]
Grader = Callable[[str | None, str, str], bool]

FORMS = tomllib.loads(Path(__file__).with_name("adversarial.toml").read_text())
LETTER = re.compile(r"\W*(?:\\text(?:bf)?)?\W*[A-F]\W*")  # of a choice
LANGUAGES = Path(__file__).parents[1] / "data/grader_languages.jsonl"
UNITS = {
    "kg": "kg|kilo|gram|pound|weigh|mass",
    "minutes": "minut|hour|second|time|long",
    "liters": "lit|volum|gallon",
}
_LISTED = re.compile(
    r"[,;]|\\pm|\\text|\bor\b|\band\b|\\cup|=|\\begin|[<>]|\\le|\\ge|\\in\b|\\mathbb|\\%|%|:"
)
_FIXED = {"0", "1", "2", "-1", "i", "-i", "i^2", "\\infty", "-\\infty", "\\sqrt[3]{8}"}
_SWAPPED = str.maketrans("+-", "-+")
_SCALED = re.compile(r"million|thousand|dozen|half|moitié")  # forms that multiply


class Attack(NamedTuple):
    """A response to a question that does not answer it."""

    operator: str
    question: str | None
    reference: str
    response: str


def _signs(reference: str) -> str | None:
    """All + and - exchanged, where that cannot give the same value or list again."""
    symmetric = _LISTED.search(reference) or re.search(r"i|\^|k", re.sub(r"\\[a-z]+", "", reference))
    even = reference.count("-") + reference.count("+") != 1 and re.search(r"\)\s*\(|\||\)\^", reference)
    found = reference.translate(_SWAPPED)
    return None if symmetric or even or found == reference else found


def _lost_bracket(reference: str, draw: random.Random) -> str | None:
    return reference[:-1] if reference[-1:] in (")", "]") and "\\text" not in reference else None


def _other_digit(reference: str, draw: random.Random) -> str | None:
    places = [match.start() for match in re.finditer(r"\d", reference)]
    if not places or re.search(r"\\text\s*\{|0+\.?0*\Z", reference):
        return None
    place = draw.choice(places)
    new = str((int(reference[place]) + draw.randint(1, 8)) % 9 + 1)
    return None if new == reference[place] else reference[:place] + new + reference[place + 1 :]


def _bracket(reference: str, draw: random.Random) -> str | None:
    if not re.fullmatch(r"[(\[][^()\[\]]*,[^()\[\]]*[)\]]", reference) or "infty" in reference:
        return None
    return {"(": "[", "[": "("}[reference[0]] + reference[1:]


def _exchanged(reference: str, draw: random.Random) -> str | None:
    match = re.fullmatch(r"\((-?\d+),\s*(-?\d+)\)", reference)
    return f"({match[2]},{match[1]})" if match and match[1] != match[2] else None


def _shortened(reference: str, draw: random.Random) -> str | None:
    parts = reference.split(",")
    whole = len(parts) > 1 and len(set(parts)) == len(parts) and all(part.strip() for part in parts)
    if not whole or not re.fullmatch(r"[-\d\s,/.]+", reference) or re.search(r"\d,\d{3}(?!\d)", reference):
        return None
    return ",".join(parts[:-1])


def _mixed(reference: str, draw: random.Random) -> str | None:
    match = re.fullmatch(r"(\d)(\d)/(\d)", reference)
    return f"{match[1]} {match[2]}/{match[3]}" if match else None


def _upside_down(reference: str, draw: random.Random) -> str | None:
    match = re.fullmatch(r"\\d?frac\{(\d+)\}\{(\d+)\}", reference)
    return f"\\frac{{{match[2]}}}{{{match[1]}}}" if match and match[1] != match[2] else None


def _cells(reference: str) -> list[list[str]] | None:
    """The cells of a matrix of two rows and columns or more."""
    match = re.fullmatch(r"\\begin\{[pb]matrix\}(.*)\\end\{[pb]matrix\}", reference, re.DOTALL)
    rows = [row.split("&") for row in match[1].strip().removesuffix("\\\\").split("\\\\")] if match else []
    return rows if len(rows) > 1 and len(rows[0]) > 1 else None


def _flat(template: str, separator: str) -> Operator:
    def change(reference: str, draw: random.Random) -> str | None:
        rows = _cells(reference)
        cells = separator.join(cell.strip() for row in rows for cell in row) if rows else ""
        return template.replace("G", cells) if rows else None

    return change


def _transposed(reference: str, draw: random.Random) -> str | None:
    rows = _cells(reference)
    if not rows or [[*row] for row in zip(*rows, strict=False)] == rows:
        return None
    turned = " \\\\ ".join(" & ".join(row) for row in zip(*rows, strict=False))
    return f"\\begin{{pmatrix}} {turned} \\end{{pmatrix}}"


def _renamed(reference: str, draw: random.Random) -> str | None:
    """n written k; only where the question names n (see `mutations`)."""
    plain = re.sub(r"\\[A-Za-z]+", "", reference)
    return (
        re.sub(r"(?<![A-Za-z\\])n(?![A-Za-z])", "k", reference) if "n" in plain and "k" not in plain else None
    )


OPERATORS: dict[str, Operator] = {
    "signs swapped": lambda reference, draw: _signs(reference),
    "signs swapped, ?": lambda reference, draw: _signs(reference) and _signs(reference) + "?",
    "bracket lost": _lost_bracket,
    "another digit": _other_digit,
    "another bracket": _bracket,
    "pair exchanged": _exchanged,
    "last item left out": _shortened,
    "fraction as mixed number": _mixed,
    "fraction upside down": _upside_down,
    "matrix as a list": _flat("G", ", "),
    "matrix as a tuple": _flat("(G)", ", "),
    "matrix as one row": _flat("\\begin{pmatrix} G \\end{pmatrix}", " & "),
    "matrix as one column": _flat("\\begin{pmatrix} G \\end{pmatrix}", " \\\\ "),
    "matrix transposed": _transposed,
    "n renamed k": _renamed,
}


def _is_zero(reference: str) -> bool:
    """Whether the last side, or each cell of a matrix, is 0, which no factor changes."""
    side = re.sub(r"\\(?:begin|end)\{[a-z]*\}|\\\\|&|\s", "", reference.rpartition("=")[2])
    return bool(re.fullmatch(r"0+", side))


def _filled(form: str, reference: str, question: str | None, draw: random.Random) -> str | None:
    """A form for a reference; None where it would not change the meaning."""
    if _SCALED.search(form) and _is_zero(reference):
        return None
    if "U" in form:
        units = [unit for unit, words in UNITS.items() if not re.search(words, question or "", re.IGNORECASE)]
        if not units or not question:
            return None
        form = form.replace("U", units[0])
    if form == "G dozen" and "dozen" in (question or ""):
        return None
    if "\\%" in form and (not question or re.search(r"percent|%", question, re.IGNORECASE)):
        return None
    return form.replace("N", str(draw.randint(7000, 9999))).replace("G", reference)


def mutations(rows: list[dict], seed: int | str) -> Iterator[Attack]:
    """Wrong answers made from `question` and `answer` of each row, by every operator that applies."""
    draw = random.Random(seed)
    for row in rows:
        question, reference = row.get("question"), row["answer"]
        one_value = not _LISTED.search(reference) and reference not in _FIXED
        whole = reference.isascii() and reference.isdigit() and int(reference) >= 7
        for kind, applies in (("any", reference != "0"), ("value", one_value), ("whole", whole)):
            for name, form in FORMS[kind].items() if applies else ():
                answer = _filled(form, reference, question, draw)
                if answer is not None:
                    yield Attack(name, question, reference, f"\\boxed{{{answer}}}")
        for name, operator in OPERATORS.items():
            answer = operator(reference, draw)
            named = name != "n renamed k" or re.search(r"(?<![A-Za-z\\])n(?![A-Za-z])", question or "")
            if answer is not None and named and answer.replace(" ", "") != reference.replace(" ", ""):
                yield Attack(name, question, reference, f"\\boxed{{{answer}}}")


def hacks(references: list[str]) -> Iterator[Attack]:
    """Responses that must earn nothing, for each reference."""
    for name, forms in FORMS["responses"].items():
        for form in forms:
            for place, reference in enumerate(references):
                response = form.replace("N", str(991 + place)).replace("G", reference)
                yield Attack(name, "What is the value?", reference, response)


def copies(rows: list[dict], formulas: Callable[[str], list[str]]) -> Iterator[Attack]:
    """Formulas of a question handed in as its answer, unless one is the reference itself, perhaps named, or
    may be the text of the choice whose letter is the reference.
    """
    for row in rows:
        if LETTER.fullmatch(row["answer"]):
            continue
        for formula in sorted(set(formulas(row["question"])), key=len)[-3:]:
            written, reference = formula.replace(" ", ""), row["answer"].replace(" ", "")
            if formula.strip(" $") and reference not in (written, written.rpartition("=")[2]):  # y = 5
                for form in FORMS["copies"]["forms"]:
                    answer = form.replace("Q", formula)
                    yield Attack(f"copy: {form}", row["question"], row["answer"], f"\\boxed{{{answer}}}")


def languages() -> Iterator[Attack]:
    """Words that change a value, in seven languages."""
    for row in map(json.loads, LANGUAGES.read_text().splitlines()):
        if not row["same"]:
            yield Attack(
                f"words: {row['lang']}", row["question"], row["reference"], f"\\boxed{{{row['answer']}}}"
            )


def programs(grader: Grader) -> int:
    """How many texts the grader runs as code."""
    ran = 0
    for form in FORMS["programs"]["forms"]:
        with tempfile.TemporaryDirectory() as folder:
            canary = Path(folder) / "canary"
            text = form.replace("CANARY", str(canary))
            for reference, answer in (("1", text), (text, "1")):
                grader("What is the value?", reference, f"\\boxed{{{answer}}}")
            ran += canary.exists()
    return ran


def load(name: str) -> Grader:
    """A grader by name: ours, math-verify, sympy, or FILE.py:FUNCTION."""
    if name in GRADERS:
        return GRADERS[name]()
    path, _, function = name.partition(":")
    spec = importlib.util.spec_from_file_location("peer", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)


def _ours() -> Grader:
    from mathverdict.answers import grade

    return lambda question, reference, response: (
        grade(reference, response, question=question, boxed_only=True).right
    )


def _math_verify() -> Grader:
    from math_verify import parse, verify

    def grader(question: str | None, reference: str, response: str) -> bool:
        gold, answer = (parse(text, parsing_timeout=10) for text in (f"${reference}$", response))
        return bool(verify(gold, answer, timeout_seconds=10))

    return grader


def _sympy() -> Grader:
    from sympy import simplify
    from sympy.parsing.latex import parse_latex

    parse_latex("1", backend="lark")  # fails here where the parser is not installed

    def grader(question: str | None, reference: str, response: str) -> bool:
        """Parse the last box and the reference as LaTeX, and compare them: SymPy alone."""
        found = re.findall(r"\\boxed\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}", response)
        if not found:
            return False
        if found[-1] == reference:
            return True
        try:
            given, gold = (parse_latex(text, backend="lark") for text in (found[-1], reference))
            return bool(simplify(given - gold) == 0)
        except Exception:  # SymPy and lark raise any class for an answer; that is no
            return False

    return grader


GRADERS: dict[str, Callable[[], Grader]] = {"ours": _ours, "math-verify": _math_verify, "sympy": _sympy}
