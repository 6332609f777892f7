"""Right answers in unusual writing, and the strict rules that must not refuse good answers."""

import random

from given.answers import SEED, shared
from mathverdict.answers import compare, grade


def test_a_measured_quantity_may_differ_in_its_seventh_digit():
    rows = [row for row in shared("bench/ocw") if row["answer"].replace(".", "").replace("e", "").isdigit()]
    rows = [row for row in rows if float(row["answer"])]
    assert len(rows) > 100
    for row in rows:
        value = float(row["answer"])
        assert compare(row["answer"], repr(value * (1 + 1e-6)), question=row["question"]).right
        assert not compare(row["answer"], repr(value * (1 + 1e-4)), question=row["question"]).right
    assert not compare("2", "2.000001", question="How many are there?").right


def test_the_values_of_several_blanks_have_an_order():
    rows = [row for row in shared("bench/gaokao_mathcloze") if row["answer"].count(";") == 1]
    swapped = [";".join(row["answer"].split(";")[::-1]) for row in rows]
    taken = [
        row["answer"]
        for row, answer in zip(rows, swapped, strict=True)
        if compare(row["answer"], answer, question=row["question"]).right
    ]
    assert len(rows) >= 15
    assert len(taken) <= 1  # one question asks for two tangents, in any order
    assert all(compare(row["answer"], row["answer"], question=row["question"]).right for row in rows)


def test_the_published_form_of_a_few_shot_answer_is_right_for_every_reference():
    rows = random.Random(SEED).sample(shared("bench/math_test"), 400)
    end = "\nThe final answer is ${}$. I hope it is correct.\n\nProblem:\nFind $y$.\n\n$\\boxed{{3}}$"
    missed = [
        row["answer"]
        for row in rows
        if not grade(
            row["answer"], "So $\\boxed{997}$." + end.format(row["answer"]), question=row["question"]
        ).right
    ]
    assert len(missed) <= 2, (SEED, missed)
