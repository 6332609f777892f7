"""Intervals against tables, brute force and simulated runs."""

from collections.abc import Iterator
from math import inf

import numpy as np
import pytest

from pipeline.config.report import ReportSection
from pipeline.intervals import (
    Estimate,
    estimate_effect,
    estimate_over_hosts,
    holm,
    mean_interval,
    mean_over_seeds,
    paired_difference,
    ranking_intervals,
    share_interval,
    t_quantile,
    t_tail,
    wilson,
)


def test_wilson_interval_of_known_values():
    low, high = wilson(27, 32)  # SAT in the paper's released results
    assert (low, high) == pytest.approx((0.6825, 0.9314), abs=1e-3)
    assert wilson(0, 10)[0] == 0.0 and wilson(10, 10)[1] == pytest.approx(1.0)
    assert mean_interval([0.0, 1.0, 1.0]) == wilson(2, 3)


def test_equal_values_are_no_certainty():
    assert mean_interval([0.5] * 8) == wilson(4, 8)
    low, high = paired_difference([0.5] * 8, [0.5] * 8)["ci95"]
    assert low == -high < -0.2


def test_a_paired_interval_is_narrower_than_an_unpaired_one():
    first = [0.0] * 50 + [1.0] * 50
    second = [0.0] * 40 + [1.0] * 60
    paired = paired_difference(first, second)
    assert paired["difference"] == pytest.approx(0.1)
    assert (paired["gained"], paired["lost"], paired["n"]) == (10, 0, 100)
    assert 0 < paired["ci95"][0] < 0.1 < paired["ci95"][1] < 0.17


@pytest.mark.parametrize(
    ("tail", "df", "value"),
    [
        (0.025, 1, 12.7062),
        (0.025, 2, 4.3027),
        (0.2, 4, 0.9410),
        (0.025, 60, 2.0003),
        (0.0005, 1000, 3.3003),
        (0.025, inf, 1.95996),
    ],
)
def test_quantiles_of_student_t_equal_the_tables(tail: float, df: float, value: float) -> None:
    assert t_quantile(tail, df) == pytest.approx(value, abs=1e-4)
    assert t_tail(value, df) + t_tail(-value, df) == pytest.approx(1)


def equal_methods(
    seeds: int, questions: int, spread: float, *, matched: bool = False, number: int = 1000
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Right answers of pairs of methods that differ by their seeds, by what each makes of single questions,
    and by chance. `matched`: each seed of the first started from its place in the second.
    """
    draw = np.random.default_rng(3)
    for _ in range(number):
        chance = 0.5 + draw.uniform(-0.25, 0.25, questions)
        other = chance + draw.normal(0, 0.05, questions)
        worse = draw.normal(0, spread, (seeds, 1))
        better = draw.normal(0, spread, (seeds, 1)) + (worse if matched else 0)
        sides = draw.random((2, seeds, questions)) < [other + better, chance + worse]
        yield sides[0].astype(float), sides[1].astype(float)


SPREAD = ReportSection().seed_spread


@pytest.mark.slow
@pytest.mark.parametrize("matched", [False, True])
@pytest.mark.parametrize(("seeds", "questions"), [(3, 300), (3, 1000), (5, 300)])
def test_intervals_cover_the_truth_in_94_to_97_of_100_runs(seeds: int, questions: int, matched: bool) -> None:
    runs = [
        estimate_effect([sides], matched=matched)
        for sides in equal_methods(seeds, questions, SPREAD, matched=matched)
    ]
    covered = np.mean([low <= 0 <= high for low, high in (run.interval() for run in runs)])
    assert 0.935 <= covered <= 0.975  # of 1,000 runs: 94 to 97 %, and what the draws vary by


@pytest.mark.parametrize("matched", [False, True])
def test_chance_in_single_answers_is_counted_once(matched: bool) -> None:
    runs = [
        estimate_effect([sides], matched=matched) for sides in equal_methods(8, 300, SPREAD, matched=matched)
    ]
    variance = np.mean([run.error**2 for run in runs])
    assert variance / np.var([run.effect for run in runs]) == pytest.approx(1, abs=0.15)


def test_a_matched_second_round_is_compared_seed_by_seed() -> None:
    worse = np.array([[0.2] * 50, [0.5] * 50, [0.8] * 50]) > np.linspace(0, 1, 50)
    better = np.array([[0.3] * 50, [0.6] * 50, [0.9] * 50]) > np.linspace(0, 1, 50)
    tasks = [(better.astype(float), worse.astype(float))]
    assert estimate_effect(tasks, matched=True).error < 0.3 * estimate_effect(tasks).error


def test_one_seed_is_no_certainty_and_no_change_neither() -> None:
    one = np.array([[1.0, 1, 0, 1] * 50])
    assert estimate_effect([(one, 1 - one)], spread=0.05).error > 1.4 * 0.05
    low, high = estimate_effect([(one, one)]).interval()
    assert low < 0 < high
    assert estimate_effect([(one[:, :1], one[:, :1])]).interval() == (-inf, inf)


def test_holm_equals_its_definition() -> None:
    found = holm([0.01, 0.04, 0.03, 0.005])
    assert [p for p, _ in found] == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert [level for _, level in found] == pytest.approx([0.05 / 3, 0.05, 0.025, 0.0125])


def test_what_could_be_seen_is_seen_in_four_cases_of_five() -> None:
    effect = Estimate(0.0, 0.02, 7).detectable(0.01)
    draw = np.random.default_rng(0)
    means, errors = draw.normal(effect, 0.02, 4000), 0.02 * np.sqrt(draw.chisquare(7, 4000) / 7)
    seen = np.mean([2 * Estimate(m, e, 7).above(0) <= 0.01 for m, e in zip(means, errors, strict=True)])
    assert seen == pytest.approx(0.8, abs=0.06)


def test_intervals_draw_hosts_because_their_pages_are_alike() -> None:
    pages = [f"host{number}" for number in range(40) for _ in range(25)]
    alone = share_interval([number % 2 == 0 for number in range(1000)], pages)
    alike = share_interval([int(host[4:]) % 2 == 0 for host in pages], pages)
    assert alone[0] < 0.5 < alone[1] and alike[1] - alike[0] > 4 * (alone[1] - alone[0])
    assert (
        share_interval([True] * 1000, pages)[0]
        < 0.93
        < share_interval([True] * 1000, map(str, range(1000)))[0]
    )
    draw = np.random.default_rng(0)
    math = draw.random(1000) < 0.3
    scores = np.where(math, 1.0, 0.0) + draw.normal(size=1000)
    (low, high), _ = ranking_intervals(math, scores, pages, 0.9, [])
    lost, _ = ranking_intervals(math, scores, pages, 0.9, ["elsewhere"] * 300)
    assert low < high and high - low < 0.2 and lost[1] < high


def test_a_mean_over_pages_varies_as_much_as_hosts_that_are_drawn_again() -> None:
    draw = np.random.default_rng(5)
    sizes = draw.integers(1, 60, 80)
    sums = np.array([draw.binomial(size, draw.beta(8, 2)) for size in sizes], float)
    found = estimate_over_hosts(sums, sizes)
    again = draw.integers(0, 80, (4000, 80))
    means = sums[again].sum(axis=1) / sizes[again].sum(axis=1)
    assert found.effect == pytest.approx(sums.sum() / sizes.sum())
    assert found.error == pytest.approx(means.std(), rel=0.1)
    assert estimate_over_hosts([5, 5, 5], [5, 5, 5]).interval()[0] < 0.5


def test_seeds_are_averaged_with_a_student_t_interval() -> None:
    mean, (low, high) = mean_over_seeds([0.5, 0.6, 0.7])
    assert mean == pytest.approx(0.6) and high - low == pytest.approx(2 * 4.303 * 0.1 / 3**0.5, abs=1e-3)
    assert mean_over_seeds([0.4]) == (0.4, [0.4, 0.4])
