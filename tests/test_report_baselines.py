"""Rules without a model, scored on word problems."""

import gzip
import json
from pathlib import Path

import pytest

from pipeline.report.answers import Row
from pipeline.report.baselines import best, numbers_of, scores

SVAMP = Path(__file__).parents[2] / "shared/data/bench/svamp_test.jsonl.gz"


def rows(*asked: tuple[str, str]) -> list[Row]:
    return [Row(str(place), *pair) for place, pair in enumerate(asked)]


def test_numbers_are_read_with_their_commas_and_decimals() -> None:
    assert numbers_of("He has 1,250 at $2.50 each, 3, 4 and 5.") == [1250, 2.5, 3, 4, 5]


def test_each_rule_scores_the_questions_that_it_answers() -> None:
    found = scores(
        rows(
            ("2 and 7 and 10", "3"),
            ("5 plus 4", "9"),
            ("6 times 7", "42"),
            ("no digits", "3"),
            ("Just 8", "8"),
        )
    )
    assert found == {
        "most frequent answer": 0.4,
        "last number": 0.2,
        "sum of all numbers": 0.4,
        "product of all numbers": 0.4,
        "difference of the first two numbers": 0,
        "difference of the last two numbers": 0.2,
        "largest minus smallest number": 0,
    }
    assert best(found) == ("most frequent answer", 0.4)


def test_a_benchmark_of_letters_or_formulas_has_no_rules() -> None:
    assert scores(rows(("2 and 7", "A"), ("1 and 2", "3"))) == {}
    assert scores([]) == {}


@pytest.mark.skipif(not SVAMP.exists(), reason="SVAMP is not here")
def test_on_svamp_the_difference_of_the_last_two_numbers_scores_what_is_known() -> None:
    with gzip.open(SVAMP, "rt") as file:
        asked = [(row["question"], row["answer"]) for row in map(json.loads, file)]
    name, share = best(scores(rows(*asked)))
    assert name == "difference of the last two numbers"
    assert round(100 * share, 1) == 26.8
