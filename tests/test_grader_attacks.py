"""The adversarial suite (tests/benchmarks/adversarial.py): no operator gets more than 0.5 % past the grader.

GRADER_SEED=<number> draws other references; `make bench-grader` draws fresh ones each time.
"""

import gzip
import json
import os
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from pipeline.grader.answers import compare, grade
from pipeline.grader.boxes import formulas

sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))
import adversarial

LABELLED = Path(__file__).parent / "data/grader_pairs.jsonl"
BENCH = Path(__file__).parents[2] / "shared/data/bench"
SEED = int(os.environ.get("GRADER_SEED") or 0)
needs_bench = pytest.mark.skipif(not BENCH.exists(), reason="MATH and GSM8K are not here")


def read(name: str) -> list[dict]:
    with gzip.open(BENCH / f"{name}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def sample(names: Iterable[str], count: int) -> list[dict]:
    return random.Random(SEED).sample([row for name in names for row in read(name)], count)


def too_often(attacks: Iterable[adversarial.Attack]) -> dict[str, list]:
    """Operators of which more than 0.5 % is taken, with what was; one answer of few may be by chance."""
    grader, total, taken = adversarial.load("ours"), Counter(), defaultdict(list)
    for attack in attacks:
        total[attack.operator] += 1
        if grader(*attack[1:]):
            taken[attack.operator].append(attack[1:])
    assert len(total) > 5
    return {name: found for name, found in taken.items() if len(found) > max(1, 0.005 * total[name])}


def test_no_way_to_spoil_our_own_references_is_taken():
    rows = [json.loads(line) for line in LABELLED.read_text().splitlines()]
    references = [{"answer": text} for text in sorted({row["reference"] for row in rows if row["same"]})[::2]]
    assert too_often(adversarial.mutations(references, SEED)) == {}, SEED


@needs_bench
def test_no_way_to_spoil_a_reference_of_math_or_gsm8k_is_taken():
    assert too_often(adversarial.mutations(sample(("math_test", "gsm8k_test"), 200), SEED)) == {}, SEED


@needs_bench
def test_no_way_to_spoil_a_matrix_is_taken():
    rows = [row for row in read("math_test") if adversarial._cells(row["answer"])]
    found = [attack for attack in adversarial.mutations(rows, SEED) if attack.operator.startswith("matrix")]
    assert len(found) > 100
    grader = adversarial.load("ours")
    assert [attack for attack in found if grader(*attack[1:])] == []


def test_no_hack_earns_a_reward():
    golds = ["7", "\\frac{3}{4}", "x^2+1", "(1,2)", "2\\sqrt{3}", "-5"]
    grader = adversarial.load("ours")
    assert [attack for attack in adversarial.hacks(golds) if grader(*attack[1:])] == []


@needs_bench
def test_no_formula_of_a_question_earns_a_reward_however_it_is_wrapped():
    rows = [row for row in sample(("math_test",), 120) if "$" in row["question"]]
    copies = adversarial.copies(rows, lambda text: [text[slice(*span)] for span in formulas(text)])
    assert len(adversarial.FORMS["copies"]["forms"]) >= 20
    assert too_often(copies) == {}, SEED


@pytest.mark.parametrize(
    ("question", "reference", "answer"),
    [
        ("Evaluate $(2-2i)(5+5i)$.", "20", "(2-2i)(5+5i)"),
        ("Expand $(x+1)^2$.", "x^2+2x+1", "1 \\cdot (x+1)^2"),
        ("Simplify $\\sqrt{50}$.", "5\\sqrt{2}", "2\\sqrt{50} - \\sqrt{50}"),
        ("Simplify $3x + 2 - 5x + 18$.", "-2x + 20", "3x + 2 - 5x + 18"),
        ("Write $\\frac{3}{20}$ as a decimal.", "0.15", "\\frac{3}{20}"),
        ("What is $513^2-487^2$?", "26000", "1000 \\cdot 26"),
    ],
)
def test_a_reward_wants_the_work_done(question, reference, answer):
    assert grade(reference, f"\\boxed{{{answer}}}", question=question, boxed_only=True).verdict == "undecided"
    assert compare(reference, answer, question=question).right  # the metric stays


@pytest.mark.parametrize(
    ("question", "reference", "answer"),
    [
        ("Expand $(x+1)^2$.", "x^2+2x+1", "1 + 2x + x^2"),
        ("Simplify $\\sqrt{50}$.", "5\\sqrt{2}", "\\sqrt{2} \\cdot 5"),
        ("Write $\\frac{3}{20}$ as a decimal.", "0.15", ".15"),
        ("What is $10^3 \\cdot 2$?", "2000", "2 \\times 10^3"),
        ("What is $3/2$ as a mixed number?", "1\\frac{1}{2}", "1 1/2"),
        ("What is half of $5$?", "\\frac{5}{2}", "2.5"),
        ("Find $x$ if $2x = 6$.", "3", "x = 6/2 = 3"),
    ],
)
def test_another_writing_of_a_finished_answer_earns_its_reward(question, reference, answer):
    assert grade(reference, f"\\boxed{{{answer}}}", question=question, boxed_only=True).right


@pytest.mark.parametrize(
    ("reference", "response"),
    [
        ("42", "$-\\boxed{42}$"),
        ("42", "-\\boxed{42}"),
        ("42", "$\\boxed{42}00$"),
        ("42", "\\boxed{42}00"),
        ("42", "$\\boxed{42}$ oder 43"),
        ("42", "$\\boxed{42}$ 或者43"),
        ("42", "$\\boxed{42}$ или 43"),
        ("42", "$\\frac{\\boxed{42}}{2}$"),
        ("42", "$2\\boxed{42}$"),
        ("42", "$\\boxed{42}^2$"),
        ("42", "$\\boxed{42} + 1$"),
        ("42", "La réponse n'est pas $\\boxed{42}$."),
        ("42", "Die Antwort ist nicht $\\boxed{42}$."),
        ("42", "答案不是$\\boxed{42}$。"),
    ],
)
def test_what_stands_beside_a_box_counts(reference, response):
    assert not grade(reference, response).right
    assert not grade(reference, response, boxed_only=True).right


@pytest.mark.parametrize(
    ("reference", "response"),
    [
        ("-42", "$x = -\\boxed{42}$"),
        ("42", "Thus $x = \\boxed{42}.$"),
        ("42", "- \\boxed{42}"),
        ("42", "**\\boxed{42}**"),
        ("42 \\text{ cm}", "$\\boxed{42}\\text{ cm}$"),
        ("42", "\\[ \\boxed{42} \\]"),
        ("42", "The answer at the end of May is $\\boxed{42}$, not an odd number."),
        ("9", "$129^{34} \\equiv \\boxed{9} \\pmod{11}.$"),
        ("42", "$\\therefore \\boxed{42}$ \\qed"),
        ("42", "It costs $5 a day, so \\boxed{42} in all, and not $43."),
    ],
)
def test_what_only_frames_a_box_does_no_harm(reference, response):
    assert grade(reference, response).right


def test_no_answer_is_run_as_a_program():
    assert adversarial.programs(adversarial.load("ours")) == 0


@needs_bench
def test_no_unit_that_the_question_does_not_name_is_taken():
    rows = [row for row in sample(("math_test", "gsm8k_test"), 1500) if row["answer"].isdigit()]
    taken = []
    for row in rows:
        for unit, words in adversarial.UNITS.items():
            if unit != "minutes" and adversarial.re.search(words, row["question"], adversarial.re.IGNORECASE):
                continue
            if "minute" not in row["question"]:
                found = compare(row["answer"], f"{row['answer']} {unit}", question=row["question"])
                taken += [(unit, row["question"])] * found.right
    assert len(taken) <= 0.005 * 3 * len(rows), (SEED, taken[:10])
