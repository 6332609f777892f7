"""What rules without any model score on a benchmark of word problems: a gain means little below the best one.

Each rule reads the numbers that a question writes in digits. The most frequent answer is chosen in hindsight,
so it bounds what a constant answer can score.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from math import isclose, prod
from statistics import fmean
from typing import Any

from mathverdict.answers import numeric_value

from pipeline.report.answers import Row
from pipeline.report.compare import Results

MOSTLY = 0.9  # of a benchmark's references are numbers, or it gets no rules
RULES: dict[str, Callable[[list[float]], float]] = {  # of at least one number
    "last number": lambda numbers: numbers[-1],
    "sum of all numbers": sum,
    "product of all numbers": prod,
    "difference of the first two numbers": lambda numbers: abs(numbers[0] - numbers[:2][-1]),
    "difference of the last two numbers": lambda numbers: abs(numbers[-1] - numbers[-2:][0]),
    "largest minus smallest number": lambda numbers: max(numbers) - min(numbers),
}
CONSTANT = "most frequent answer"
_NUMBER = re.compile(r"\d+(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?")


def numbers_of(question: str) -> list[float]:
    """Read the numbers that a question writes in digits, in their order."""
    return [float(text.replace(",", "")) for text in _NUMBER.findall(question)]


def rights(rows: Iterable[Row]) -> dict[str, dict[str, bool]]:
    """Say on which questions, by id, each rule is right; empty unless most references are numbers."""
    asked = [(row.id, numbers_of(row.question), numeric_value(str(row.reference))) for row in rows]
    references = [reference for _, _, reference in asked if reference is not None]
    if not references or len(references) < MOSTLY * len(asked):
        return {}
    (constant, _), *_ = Counter(references).most_common(1)
    found = {CONSTANT: {key: reference == constant for key, _, reference in asked}}
    for name, rule in RULES.items():
        found[name] = {
            key: bool(numbers) and reference is not None and isclose(rule(numbers), reference)
            for key, numbers, reference in asked
        }
    return found


def scores(rows: Iterable[Row]) -> dict[str, float]:
    """Score each rule as a share of the questions; empty unless most references are numbers."""
    return {name: fmean(found.values()) for name, found in rights(rows).items()}


def baselines(results: Results) -> dict[str, dict[str, float]]:
    """Score the rules on each benchmark that any model answered, by the questions in its results."""
    files: dict[str, Any] = {}
    for answers in results.answers.values():
        for (benchmark, _), found in answers.items():
            files.setdefault(benchmark, found)
    scored = {benchmark: scores(found.rows()) for benchmark, found in files.items()}
    return {benchmark: rules for benchmark, rules in scored.items() if rules}


def best(rules: dict[str, float]) -> tuple[str, float]:
    """Name the rule that scores most, and its score."""
    return max(rules.items(), key=lambda rule: rule[1])
