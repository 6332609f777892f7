"""Metrics against brute force and hand-worked values."""

import itertools
import random
from collections import Counter
from statistics import fmean

import pytest
from mathverdict.answers import Verdict

from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.metrics import at_k, maj_at_k, majority, pass_at_k


def brute_majority(right: int, others: list[int], silent: int, k: int) -> float:
    """Mean over all subsets of k samples of the chance that the vote is right."""
    votes = (
        ["right"] * right + [str(c) for c, size in enumerate(others) for _ in range(size)] + [None] * silent
    )
    chances = []
    for subset in itertools.combinations(votes, k):
        counts = Counter(vote for vote in subset if vote is not None)
        most = max(counts.values(), default=0)
        leaders = [vote for vote, count in counts.items() if count == most]
        chances.append(1 / len(leaders) if "right" in leaders else 0.0)
    return fmean(chances)


def random_votes(rng: random.Random) -> tuple[int, list[int], int]:
    return rng.randint(0, 4), [rng.randint(1, 3) for _ in range(rng.randint(0, 3))], rng.randint(1, 2)


def test_majority_equals_the_mean_over_all_subsets():
    rng = random.Random(0)
    for _ in range(30):
        right, others, silent = random_votes(rng)
        ks = range(1, right + sum(others) + silent + 1)
        exact = maj_at_k(right, others, silent, ks)
        assert all(exact[k] == pytest.approx(brute_majority(right, others, silent, k)) for k in ks)
        assert maj_at_k(right, others, silent, [ks[-1]])[ks[-1]] == pytest.approx(exact[ks[-1]])


def test_pass_at_k_equals_the_share_of_subsets_with_a_right_sample():
    subsets = list(itertools.combinations([True] * 3 + [False] * 5, 4))
    assert pass_at_k(8, 3, 4) == pytest.approx(sum(map(any, subsets)) / len(subsets))
    with pytest.raises(ValueError, match="needs at least 9 samples"):
        pass_at_k(8, 3, 9)


def test_a_tied_vote_counts_by_its_chance():
    assert maj_at_k(2, [2], 0, [4]) == {4: 0.5}
    assert maj_at_k(0, [2], 2, [4]) == {4: 0.0}


def test_votes_are_grouped_by_equivalence():
    item = Item("q", "?", "1")
    answers = ["1", "1/2", "0.5", "\\frac12", None]
    verdicts = [
        Verdict("right" if text == "1" else "wrong", text, "by hand")
        if text
        else Verdict("wrong", None, "no answer")
        for text in answers
    ]
    assert majority(item, verdicts, [5])[5] == 0.0
    assert majority(item, [*verdicts[:2], *verdicts[4:]], [3])[3] == 0.5


def test_scores_leave_out_k_above_the_number_of_samples():
    right, wrong = Verdict("right", "1", ""), Verdict("wrong", "2", "")
    scores = at_k([Item("a", "?", "1"), Item("b", "?", "1")], [[right, wrong], [wrong, wrong]], [1, 2, 4])
    assert scores["pass@k"] == {"1": 0.25, "2": 0.5}
    assert scores["maj@k"] == {"1": 0.25, "2": 0.25}
