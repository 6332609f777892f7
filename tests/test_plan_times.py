"""The forecast of network, disk and time is the hand-worked one."""

import math
from typing import Any

import pytest
from conftest import ROOT
from given.plans import PAPER_7B, SINGLE, config_of, forecast_of

from pipeline.cli.plan.jobs import Profile, token_jobs
from workflow.forecast import costs
from workflow.forecast.costs import gpu_named
from workflow.forecast.forecast import Assumptions, Forecast, Planner

WEIGHTS = 6_910_365_696


def row_of(name: str, stage: str, launch: dict[str, Any], **assumed: Any) -> Forecast:
    return forecast_of(PAPER_7B, {"models": {name: {"launch": launch}}}, **assumed)[name, stage]


def test_bytes_of_pre_training_are_the_hand_worked_ones() -> None:
    """50,008 steps of 306 micro-batches on 8 GPUs; 7/8 of 2 N of weights and of twice 4 N of gradients."""
    steps = 500_000_000_000 // (2441 * 4096)
    each = {1: 2 + 8, 2: 2 + 8 * 306, 3: 306 * (2 * 2 + 4)}
    for stage, bytes_ in each.items():
        row = row_of("base", "cpt", {"zero_stage": stage})
        assert row.moved == pytest.approx(steps * bytes_ * WEIGHTS * 7 / 8, rel=0.001)
        if stage < 3:
            assert row.times["network"] == pytest.approx(8 * row.moved / 450e9 / 3600)


def test_only_zero_3_computes_while_weights_are_on_their_way() -> None:
    fast, slow = (row_of("base", "cpt", {"zero_stage": 3}, nodes=2, network=rate) for rate in (450e9, 50e9))
    assert fast.moved == slow.moved and fast.times["network"] == 0
    waited = 16 * slow.moved / 50e9 / 3600 - slow.times["train"]
    assert slow.times["network"] == pytest.approx(waited) and waited > 0
    one = row_of("base", "cpt", {"zero_stage": 3}, network=1e9)
    assert one.times["network"] == 0  # one machine does not use it


def test_reinforcement_learning_counts_frozen_models_rollouts_and_the_samplers_weights() -> None:
    """9,000 steps; each rank has 36 micro-batches of 4,096 tokens, and scores 8 of 16,384."""
    tokens, trunk, share = 9000 * 16 * 64 * 1024, WEIGHTS - 102_400 * 4096, 7 / 8
    policy = 9000 * 36 * 8 * WEIGHTS
    frozen = 9000 * 2 * (36 * WEIGHTS + 8 * trunk)
    split = row_of("rl", "rl", {"frozen": "split"})
    whole = row_of("rl", "rl", {"frozen": "whole"})
    synced = 9000 * 2 * WEIGHTS
    assert split.moved == pytest.approx(share * (policy + frozen + synced + 17 * tokens), rel=0.001)
    assert split.moved - whole.moved == pytest.approx(share * frozen, rel=0.001)
    below = row_of("rl", "rl", {"frozen": "whole", "zero_stage": 1})
    assert below.moved == pytest.approx(share * (9000 * (2 + 8) * WEIGHTS + 17 * tokens), rel=0.001)


def test_saving_stops_training_for_a_copy_and_for_a_disk_that_is_too_slow() -> None:
    """2 N + 12 N / 8 of rank 0 at 10 GB/s every 10 minutes; 14 N take 48 s of a disk of 2 GB/s."""
    row = row_of("base", "cpt", {})
    clock = (row.hours - row.times["save"]) * 3600 / 8
    copy = 3.5 * WEIGHTS / costs.COPY
    assert row.times["save"] * 3600 / 8 == pytest.approx(clock / 600 * copy, rel=0.001)
    slow = row_of("base", "cpt", {}, disk=0.1e9)
    waiting = 14 * WEIGHTS / 0.1e9 - 600
    assert slow.times["save"] * 3600 / 8 == pytest.approx(clock / 600 * (copy + waiting), rel=0.001)


def test_rows_are_read_while_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "LAUNCH", 0.0)
    assert row_of("base", "cpt", {}).times["data"] == 0
    quick = row_of("base", "cpt", {}, mfu=40.0)
    reading = 500e9 / 4096 * 0.0074 / 3600
    assert quick.times["data"] == pytest.approx(reading - quick.times["train"]) and quick.times["data"] > 0


def test_token_files_take_ten_hours_and_no_second_copy() -> None:
    """500B tokens at 470,000 a second on each of 32 cores, and digests of 2 TB by one."""
    rows = list(forecast_of(PAPER_7B).values())
    profile = Profile(ROOT / "profiles/slurm")
    (job,) = token_jobs(rows, profile)
    seconds = 500e9 / 470_000 / 32 + 2e12 / 750e6
    assert job.hours / profile.threads(job.rule) * 3600 == pytest.approx(seconds)
    assert math.ceil(seconds / 3600) == 10 and not job.notes(profile)
    (tokens,) = [row for row in rows if row.stage == "tokens"]
    assert tokens.disk == 2e12 and tokens.scratch == 0


def test_a_small_model_takes_as_long_as_its_kernels_are_launched() -> None:
    """On an H200 a row of a 0.5B policy and its reference took 110 ms, not compiled."""
    assumed = Assumptions(gpu_named("H200"))
    hours = costs.launch_hours(24, forward=2, backward=1, compiled=False)
    assert hours * 3600 == pytest.approx(0.110, rel=0.05)
    work = config_of(SINGLE, {"launch": {"compile": False}})
    row = Planner(work, assumed).training("grpo", work.launch_of("rl", "grpo"))
    rows = math.ceil(16 * 16 * 512 / 4096 / 0.9)
    assert row.times["train"] == pytest.approx(200 * rows * costs.launch_hours(24, 2, 1, False), rel=0.01)


def test_planned_speed_is_what_an_h200_reached() -> None:
    """Compiled: 35, 45 and 53 % MFU; by fours 39 ms for 4,096 tokens at 0.5B with a reference."""
    for size, measured in ((494e6, 0.35), (1.35e9, 0.45), (6.9e9, 0.53)):
        assert costs.mfu_of(int(size)) == pytest.approx(measured, rel=0.02)
    planned = costs.hours((6 + 2) * 494e6 * 4096, gpu_named("H200"), costs.mfu_of(494_000_000)) * 3600
    launched = costs.launch_hours(24, 2, 1, compiled=True) * 3600
    assert max(planned, launched) == pytest.approx(0.039, rel=0.2)


def test_samplers_share_the_outputs_of_a_step() -> None:
    """16 x 64 outputs: a sampler of 64 writes 16 at a time, so that 64 GPUs take longer in all than 8."""
    hours = [forecast_of(PAPER_7B, nodes=nodes)["rl", "rl"].times["sample"] for nodes in (1, 8, 32)]
    assert hours == pytest.approx([563, 1746, 5802], rel=0.05)
