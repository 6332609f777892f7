"""The adversarial suite (given/adversarial.py): no operator gets more than 0.5 % past the grader.

GRADER_SEED=<number> draws other references; `make bench-grader` draws fresh ones each time.
"""

import random
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable

from given import adversarial, changes
from given.answers import SEED, TESTS, labelled, shared
from mathverdict.answers import compare
from mathverdict.boxes import formulas


def sample(names: Iterable[str], count: int) -> list[dict]:
    return random.Random(SEED).sample([row for name in names for row in shared(f"bench/{name}")], count)


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
    rows = labelled("grader_pairs")
    references = [{"answer": text} for text in sorted({row["reference"] for row in rows if row["same"]})[::2]]
    assert too_often(adversarial.mutations(references, SEED)) == {}, SEED


def test_no_way_to_spoil_a_reference_of_math_or_gsm8k_is_taken():
    assert too_often(adversarial.mutations(sample(("math_test", "gsm8k_test"), 200), SEED)) == {}, SEED


def test_no_way_to_spoil_a_matrix_is_taken():
    rows = [row for row in shared("bench/math_test") if adversarial._cells(row["answer"])]
    found = [attack for attack in adversarial.mutations(rows, SEED) if attack.operator.startswith("matrix")]
    assert len(found) > 100
    grader = adversarial.load("ours")
    assert [attack for attack in found if grader(*attack[1:])] == []


def test_no_hack_earns_a_reward():
    golds = ["7", "\\frac{3}{4}", "x^2+1", "(1,2)", "2\\sqrt{3}", "-5"]
    grader = adversarial.load("ours")
    assert [attack for attack in adversarial.hacks(golds) if grader(*attack[1:])] == []


def test_no_formula_of_a_question_earns_a_reward_however_it_is_wrapped():
    rows = [row for row in sample(("math_test",), 120) if "$" in row["question"]]
    copies = adversarial.copies(rows, lambda text: [text[slice(*span)] for span in formulas(text)])
    assert len(adversarial.FORMS["copies"]["forms"]) >= 20
    assert too_often(copies) == {}, SEED


def test_no_answer_is_run_as_a_program():
    assert adversarial.programs(adversarial.load("ours")) == 0


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


def test_no_numeral_sign_operator_or_word_of_a_right_answer_may_be_changed_freely():
    words = tomllib.loads((TESTS / "data/changing_words.toml").read_text())
    assert len(words) == 16
    grader = adversarial.load("ours")
    rows = [row for row in changes.right_answers(labelled) if grader(*changes.asked_of(row), row["response"])]
    assert len(rows) > 900
    drawn = changes.changes(rows, words, 2000, SEED)
    taken = [change for change in drawn if grader(*changes.asked_of(change.row), change.response)]
    wrong = [change for change in taken if not changes.is_equal(change)]
    assert len(wrong) <= 0.001 * 2000, (SEED, wrong)
