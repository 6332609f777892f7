"""Simulated runs: what `dsm plan` says of a claim, against runs whose truth is known."""

import numpy as np
import pytest
from given.plans import DEMO, LEDGER, PAPER_7B, config_of, simulation_of

from pipeline.cli.plan.__main__ import main
from pipeline.cli.plan.power import ENOUGH, Simulation, World
from pipeline.report.claims import HELD, LEVEL
from pipeline.report.judgements import judge


def test_what_a_plan_says_of_a_claim_comes_true_in_simulated_runs() -> None:
    plan = simulation_of("demo")
    claim = next(claim for claim in plan.claims if claim.id == "sft-helps")
    world, level = plan.published(claim), LEVEL / len(plan.claims + plan.corpus)
    held = []
    for seed in range(100, 250):
        found = plan.judge_alone(claim, world, np.random.default_rng(seed))
        held.append(found.favoured and found.raw_p <= level)
    (told,) = (found.chance for found in plan.prospects() if found.claim is claim)
    assert np.mean(held) == pytest.approx(told, abs=0.08)


def test_equal_models_have_the_intervals_that_they_say_and_hold_no_claim() -> None:
    plan, hits, false = simulation_of("demo"), [], 0
    for seed in range(30):
        found = judge(plan.claims, plan.answer(World(0.5), np.random.default_rng(seed)), plan.spread)
        bounds = [effect.estimate.interval() for row in found for effect in row.effects]
        hits += [low <= 0 <= high for low, high in bounds]
        false += any(row.verdict == HELD for row in found if row.claim.at_least >= 0)
    assert np.mean(hits) == pytest.approx(0.95, abs=0.05) and false <= 2


def test_seeds_and_what_they_start_from_vary_as_a_simulation_says() -> None:
    plan = simulation_of("compare")
    names = ("instruct", "grpo-ps-0", "grpo-ps-2nd-0")
    draws = [plan.answer(World(0.5), np.random.default_rng(seed), names).answers for seed in range(60)]
    means = {
        name: np.array([np.mean(list(found[name]["miniweb", "cot"].accuracy().values())) for found in draws])
        for name in names
    }
    assert means["instruct"].std() < plan.spread, "several seeds start from it"
    gain = means["grpo-ps-2nd-0"] - means["grpo-ps-0"]
    assert np.corrcoef(means["grpo-ps-2nd-0"], means["grpo-ps-0"])[0, 1] > 0.2 and 0.01 < gain.std() < 0.04


@pytest.mark.parametrize("questions", [1, 2, 4])
def test_a_handful_of_questions_sees_no_claim(questions: int) -> None:
    """Answers to so few are often all wrong or all right, in one draw and not in another."""
    asked = {name: {"limit": questions} for name in ("miniweb", "heldout")}
    for found in Simulation(config_of(DEMO, {"benchmarks": asked}), LEDGER).prospects():
        assert found.detectable > 0.5 and (found.chance or 0) < ENOUGH


def test_grpo_fits_at_7b_where_ppos_value_model_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--configfile", *map(str, PAPER_7B)])
    table = capsys.readouterr().out.partition("What PPO's value model would add")[2].splitlines()
    name, _, grpo, fits, hours, ppo, *does_not_fit, more = table[4].split()
    assert (name, fits, does_not_fit) == ("rl", "fits", ["does", "not", "fit"])
    assert float(ppo) > float(grpo) + 8 and float(more.replace(",", "")) > float(hours.replace(",", ""))
