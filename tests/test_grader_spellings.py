"""Right answers in unusual writing, and the strict rules that must not refuse good answers."""

import gzip
import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from pipeline.grader.answers import compare, grade
from pipeline.grader.printed import is_expression, read_printed

sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))
from spellings import FORMS, spellings

BENCH = Path(__file__).parents[2] / "shared/data/bench"
SEED = int(os.environ.get("GRADER_SEED") or 0)


def read(name: str) -> list[dict]:
    with gzip.open(BENCH / f"{name}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def test_right_answers_in_unusual_writing_are_right():
    """At least 95 % of all, and 80 % of each kind of reference, with fresh values."""
    total, refused = Counter(), []
    for spelling in spellings(SEED, times=2):
        total[spelling.kind] += 1
        if not compare(spelling.reference, spelling.answer, question=spelling.question).right:
            refused.append(spelling)
    assert sum(total.values()) >= 650 and len(total) == len(FORMS)
    assert len(refused) <= 0.05 * sum(total.values()), (SEED, [row[1:] for row in refused])
    missed = Counter(spelling.kind for spelling in refused)
    assert [kind for kind in total if missed[kind] > 0.2 * total[kind]] == [], SEED


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("\\frac{11}{9}", "1.22..."),  # perhaps the root of 1.5
        ("(1,2)", "]1,2]"),
        ("[1,2)", "[1,2]"),
        ("(1,2]", "(1;2)"),
        ("\\frac{3}{5}", "3 to 5 or 6"),
        ("3", "3 out of 5"),
        ("\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}", "Matrix([[1, 3], [2, 4]])"),
        ("[0,1)", "Interval(0, 1)"),
        ("\\frac{1}{2}", "Rational(2, 1)"),
        ("1.5", "1,5"),
        ("15", "1,5"),
        ("\\frac{1}{2}", "two halves"),
        ("204_5", "204_{\\text{six}}"),
        ("3+4i", "3+4I+I"),
    ],
)
def test_unusual_writing_of_another_value_is_not_right(reference, answer):
    assert not compare(reference, answer).right


def test_a_decimal_comma_is_read_in_the_languages_that_have_it():
    german, english = "Wie viele Liter sind es?", "How many liters is it?"
    assert compare("1.5", "1,5", question=german).right
    assert compare("1500", "1.500 Liter", question=german).right
    assert compare("1234.5", "1.234,5", question=german).right
    assert not compare("1.5", "1,5", question=english).right
    assert not compare("1500", "1.500", question=english).right


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "Matrix([[open('x')]])",
        "().__class__",
        "S('open')",
        "Rational.__init__",
        "lambda: 1",
        "[x for x in Matrix]",
        "preview(1)",
        "Symbol('x').func",
        "exec('1')",
        "eval",
    ],
)
def test_only_expressions_of_listed_names_reach_sympy(text):
    assert not is_expression(text)
    assert read_printed(text) is None


def test_a_symbolic_bomb_costs_its_time_limit_and_no_more():
    assert read_printed("Rational(1, 2)") == "\\frac{1}{2}"  # the worker runs
    started = time.monotonic()
    assert read_printed("Integer(9)**Integer(9)**Integer(9)**Integer(9)") is None
    assert read_printed("Matrix([[1, 2]])") is not None  # a new worker
    assert time.monotonic() - started < 30


@pytest.mark.skipif(not BENCH.exists(), reason="OCWCourses is not here")
def test_a_measured_quantity_may_differ_in_its_seventh_digit():
    rows = [row for row in read("ocw") if row["answer"].replace(".", "").replace("e", "").isdigit()]
    rows = [row for row in rows if float(row["answer"])]
    assert len(rows) > 100
    for row in rows:
        value = float(row["answer"])
        assert compare(row["answer"], repr(value * (1 + 1e-6)), question=row["question"]).right
        assert not compare(row["answer"], repr(value * (1 + 1e-4)), question=row["question"]).right
    assert not compare("2", "2.000001", question="How many are there?").right


@pytest.mark.skipif(not BENCH.exists(), reason="Gaokao-MathCloze is not here")
def test_the_values_of_several_blanks_have_an_order():
    rows = [row for row in read("gaokao_mathcloze") if row["answer"].count(";") == 1]
    swapped = [";".join(row["answer"].split(";")[::-1]) for row in rows]
    taken = [
        row["answer"]
        for row, answer in zip(rows, swapped, strict=True)
        if compare(row["answer"], answer, question=row["question"]).right
    ]
    assert len(rows) >= 15
    assert len(taken) <= 1  # one question asks for two tangents, in any order
    assert all(compare(row["answer"], row["answer"], question=row["question"]).right for row in rows)


def test_the_announced_final_answer_counts_before_a_box_in_the_middle():
    response = "We get $\\boxed{7}$ on the way.\nFinal Answer: The final answer is $9$. I hope it is correct."
    assert grade("9", response).right
    assert not grade("7", response).right
    assert grade("9", response + "\n\nProblem:\nFind $x$.\n\nSolution: $\\boxed{5}$").right
    assert grade("7", "The final answer is below.\n\n$\\boxed{7}$").right


@pytest.mark.skipif(not BENCH.exists(), reason="MATH is not here")
def test_the_published_form_of_a_few_shot_answer_is_right_for_every_reference():
    rows = random.Random(SEED).sample(read("math_test"), 400)
    end = "\nThe final answer is ${}$. I hope it is correct.\n\nProblem:\nFind $y$.\n\n$\\boxed{{3}}$"
    missed = [
        row["answer"]
        for row in rows
        if not grade(
            row["answer"], "So $\\boxed{997}$." + end.format(row["answer"]), question=row["question"]
        ).right
    ]
    assert len(missed) <= 2, (SEED, missed)
