"""Which questions and seeds a step asks, and how samplers share the outputs."""

import pytest

from pipeline.rl.rollout import questions_from, sample_seed, share


@pytest.mark.parametrize(("questions", "size", "samplers"), [(3, 5, 2), (1, 4, 3), (2, 3, 8), (16, 64, 24)])
def test_samplers_share_all_outputs_evenly(questions: int, size: int, samplers: int) -> None:
    shares = [share(questions, size, sampler, samplers) for sampler in range(samplers)]
    flat = [(index, output) for part in shares for index, outputs in part for output in outputs]
    assert flat == [(index, output) for index in range(questions) for output in range(size)]
    counts = [sum(len(outputs) for _, outputs in part) for part in shares]
    assert max(counts) - min(counts) <= 1


def test_every_pass_asks_each_question_once() -> None:
    asked = [questions_from(10, 4 * step, 4, seed=3) for step in range(5)]
    flat = [pair for step in asked for pair in step]
    assert [place for place, _ in flat] == list(range(20))
    assert (
        sorted(index for _, index in flat[:10]) == sorted(index for _, index in flat[10:]) == list(range(10))
    )
    assert asked == [questions_from(10, 4 * step, 4, seed=3) for step in range(5)]
    assert flat != [pair for step in range(5) for pair in questions_from(10, 4 * step, 4, seed=4)]


def test_seeds_differ_between_places_questions_and_runs() -> None:
    seeds = {sample_seed(run, place, name) for run in (0, 1) for place in range(50) for name in ("a", "b")}
    assert len(seeds) == 200 and min(abs(a - b) for a in seeds for b in seeds if a != b) > 64
