"""Training depends on data and settings alone, not on micro-batches, ranks, ZeRO stage or packing order."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from programs import OF_RANKS, ROOT
from safetensors.numpy import load_file
from tiny_model import save_tiny_model, save_tiny_tokens

from pipeline.core.stage import InputError
from pipeline.training import checkpoint
from workflow.forecast.costs import OFFLOADED, checkpoint_copy, training_state

STEPS = 4
STAGES = (1, 2, 3)
ODD = (7, 1)  # batches that two ranks do not divide; of the second one has no row at all
STATES = [
    (1, "bf16", False),
    (2, "bf16", False),
    (3, "bf16", False),
    (3, "bf16", True),
    *((zero, "fp32", False) for zero in STAGES),
]
ALONE = [
    *({"name": f"zero{zero}", "zero": zero, "micro": 8} for zero in STAGES),
    {"name": "micro1", "zero": 1, "micro": 1},
    {"name": "micro3", "zero": 1, "micro": 3},
    {"name": "recomputed", "zero": 1, "micro": 8, "recompute": True},
    {"name": "offloaded", "zero": 3, "micro": 3, "offload": True},
    {"name": "forward", "zero": 1, "micro": 8, "order": "forward"},
    {"name": "backward", "zero": 1, "micro": 8, "order": "backward"},
    *({"name": f"batch{batch}", "zero": 1, "micro": 8, "batch": batch} for batch in ODD),
    {"name": "half", "zero": 1, "micro": 8, "steps": 2, "save": 0},
    {"name": "lora-zero1", "zero": 1, "micro": 8, "lora": True},
    {"name": "lora-recomputed", "zero": 1, "micro": 3, "lora": True, "recompute": True},
]
PAIR = [
    *({"name": f"zero{zero}", "zero": zero, "micro": 2} for zero in STAGES),
    *(
        {"name": f"batch{batch}-zero{zero}", "zero": zero, "micro": 2, "batch": batch}
        for batch in ODD
        for zero in (1, 3)
    ),
    *({"name": f"half{zero}", "zero": zero, "micro": 2, "steps": 3, "save": 0} for zero in STAGES),
    *({"name": f"scores-{place}", "score": place} for place in ("split", "main_memory")),
    *(
        {"name": f"{precision}-{zero}-{offload}", "zero": zero, "measure": precision, "offload": offload}
        for zero, precision, offload in STATES
    ),
    *({"name": f"lora-zero{zero}", "zero": zero, "micro": 2, "lora": True} for zero in STAGES),
    *(
        {"name": f"lora-half{zero}", "zero": zero, "micro": 2, "lora": True, "steps": 3, "save": 0}
        for zero in STAGES
    ),
    {"name": "loads", "loads": True},
    {"name": "late", "late": True},
    {"name": "hidden", "zero": 2, "micro": 2, "resume": "two-half2", "hidden": "step-0000002"},
    {"name": "signalled", "zero": 2, "micro": 2, "signal": 1},
    {"name": "again", "zero": 2, "micro": 2, "resume": "two-signalled"},
]
WEIGHTS = "checkpoints/step-0000002/state/mp_rank_00_model_states.pt"
RESUMED = [
    {"name": "resumed1", "zero": 1, "micro": 4, "resume": "two-half1"},
    *(
        {"name": f"{kind}resumed{zero}", "zero": zero, "micro": 4, "resume": f"two-{kind}half{zero}"}
        | {"lora": bool(kind), "convert": "here"}
        for kind in ("", "lora-")
        for zero in STAGES
        if (kind, zero) != ("", 1)
    ),
    {"name": "damaged", "zero": 2, "micro": 4, "resume": "two-half2", "damage": WEIGHTS, "convert": "here"},
]
POISONED = [
    {"name": f"poisoned-{half}", "zero": 1, "micro": 8, "resume": half, "poison": True}
    for half in ("one-half", "two-half1")
]


def run_cases(folder: Path, name: str, ranks: int, cases: list[dict]) -> None:
    start = [sys.executable]
    if ranks > 1:
        start += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    cases = [{"steps": STEPS} | case for case in cases]
    command = [*start, ROOT / "tests/training_cases.py", folder, name, json.dumps(cases)]
    done = subprocess.run(command, env=OF_RANKS, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """The same training on one rank and on two, cut in several ways, and resumed on one after two."""
    folder = tmp_path_factory.mktemp("exact")
    save_tiny_model(folder / "model", seed=1, tied=False, spread=0.05)
    save_tiny_tokens(folder / "tokens", folder / "model")
    run_cases(folder, "two", 2, PAIR)
    run_cases(folder, "one", 1, ALONE + RESUMED + POISONED)
    return folder


def lines(runs: Path, case: str) -> list[dict]:
    return [json.loads(line) for line in (runs / case / "metrics.jsonl").read_text().splitlines()]


def rows(runs: Path, case: str) -> dict[int, str]:
    """Number of each row that was trained on, by any rank, and a digest of its tokens and targets."""
    files = (runs / case).glob("rows-*.jsonl")
    return dict(json.loads(line) for file in files for line in file.read_text().splitlines())


def same_trajectory(runs: Path, case: str, other: str) -> None:
    for name in ("loss", "grad_norm"):
        found, expected = ([line[name] for line in lines(runs, which)] for which in (case, other))
        np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=f"{name} of {case} and {other}")
        assert len(found) == STEPS


@pytest.mark.parametrize(
    ("case", "other"),
    [
        pytest.param("one-micro1", "one-zero1", id="micro-batch"),
        pytest.param("one-micro3", "one-zero1", id="uneven accumulation"),
        pytest.param("one-recomputed", "one-zero1", id="recomputed activations"),
        pytest.param("one-offloaded", "one-zero1", id="optimiser in main memory"),
        pytest.param("one-zero2", "one-zero1", id="ZeRO 2"),
        pytest.param("one-zero3", "one-zero1", id="ZeRO 3"),
        pytest.param("two-zero1", "one-zero1", id="ranks, ZeRO 1"),
        pytest.param("two-zero2", "one-zero1", id="ranks, ZeRO 2"),
        pytest.param("two-zero3", "one-zero1", id="ranks, ZeRO 3"),
        pytest.param("one-backward", "one-forward", id="packing order"),
        pytest.param("one-lora-recomputed", "one-lora-zero1", id="adapters, recomputed activations"),
        *(
            pytest.param(f"two-lora-zero{zero}", "one-lora-zero1", id=f"adapters, ranks, ZeRO {zero}")
            for zero in STAGES
        ),
    ],
)
def test_loss_and_gradient_norm_do_not_depend_on(runs, case, other):
    same_trajectory(runs, case, other)


@pytest.mark.parametrize("zero", (1, 3))
@pytest.mark.parametrize("batch", ODD)
def test_ranks_that_do_not_divide_the_batch_train_as_one_does(runs, batch, zero):
    case, alone = f"two-batch{batch}-zero{zero}", f"one-batch{batch}"
    same_trajectory(runs, case, alone)
    for line, other in zip(lines(runs, case), lines(runs, alone), strict=True):
        assert (line["tokens"], line["targets"]) == (other["tokens"], other["targets"])
        assert line["source_loss"] == pytest.approx(other["source_loss"], rel=1e-6)


@pytest.mark.parametrize("kind", ("", "lora-"))
@pytest.mark.parametrize("zero", STAGES)
def test_one_rank_resumes_a_run_of_two(runs, kind, zero):
    cases = f"one-{kind}resumed{zero}", f"two-{kind}zero{zero}"
    same_trajectory(runs, *cases)
    found, expected = (load_file(runs / case / "partial/model.safetensors") for case in cases)
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-5)


def test_all_ranks_save_and_stop_on_a_signal_to_one_and_the_rerun_ends_bit_equal(runs):
    told = {(runs / f"two-signalled/interrupted-{rank}").read_text() for rank in (0, 1)}
    (done,) = (checkpoint.step_of(path) for path in (runs / "two-signalled/checkpoints").iterdir())
    # Rows are read a step ahead: the signal comes before the first step ends or while the second waits.
    assert done in (1, 2) and told == {f"cpt x: after step {done} of 4: SIGTERM"}
    assert len(lines(runs, "two-signalled")) == done and not (runs / "two-signalled/totals.json").exists()
    whole, again = (runs / f"two-{name}/partial/model.safetensors" for name in ("zero2", "again"))
    assert whole.read_bytes() == again.read_bytes()


def test_all_ranks_load_the_checkpoint_that_rank_0_chose_though_one_sees_it_late(runs):
    for rank in (0, 1):
        text = (runs / f"two-hidden/rows-{rank}.jsonl").read_text().splitlines()
        numbers = [json.loads(line)[0] for line in text]
        assert numbers[-8:] == list(range(16 + rank, 32, 2)) and len(numbers) == 12 + 8
    whole, hidden = (runs / f"two-{name}/partial/model.safetensors" for name in ("zero2", "hidden"))
    assert whole.read_bytes() == hidden.read_bytes()


def test_a_damaged_checkpoint_costs_only_the_steps_since_the_one_before_it(runs):
    same_trajectory(runs, "one-damaged", "one-zero2")
    before, after = lines(runs, "two-half2"), lines(runs, "one-damaged")
    assert after[0] == before[0] and after[1]["seconds"] != before[1]["seconds"]  # step 2 is repeated


@pytest.mark.parametrize("zero", STAGES)
def test_order_windows_and_cursor_are_the_same_at_another_world_size(runs, zero):
    whole, resumed = rows(runs, f"two-zero{zero}"), rows(runs, f"one-resumed{zero}")
    assert whole == rows(runs, "one-zero1") and sorted(whole) == list(range(STEPS * 8))
    late = {n: digest for n, digest in whole.items() if n >= 2 * 8}
    assert {n: digest for n, digest in resumed.items() if n >= 2 * 8} == late
    first = lines(runs, f"two-half{zero}")
    assert lines(runs, f"one-resumed{zero}")[:2] == first[:2]  # the steps of two ranks are not repeated
    totals = [
        json.loads((runs / case / "totals.json").read_text())
        for case in (f"two-zero{zero}", f"one-resumed{zero}")
    ]
    assert totals[0] == totals[1] and totals[0]["tokens"] == STEPS * 8 * 48


@pytest.mark.parametrize("case", POISONED, ids=lambda case: case["name"])
def test_a_checkpoint_that_would_run_code_is_refused_in_one_line(runs, case):
    work = runs / f"one-{case['name']}"
    message = (work / "error.txt").read_text()
    assert f"{work}/checkpoints/step-" in message and "\n" not in message
    assert message.endswith("not loaded, it would run posix.mkdir; delete it to start again")
    assert not (work / "executed").exists()


@pytest.mark.parametrize(("zero", "precision", "offload"), STATES)
def test_the_state_of_training_takes_the_bytes_that_the_plan_forecasts(runs, zero, precision, offload):
    found = json.loads((runs / f"two-{precision}-{zero}-{offload}.json").read_text())
    planned = sum(training_state(found["weights"], precision, zero, 2, offload).values())
    if offload:  # what leaves the GPU is in main memory, which here is the same
        planned += OFFLOADED * found["weights"] / 2
    assert planned == pytest.approx(found["bytes"], rel=0.1)
    copies = checkpoint_copy(found["weights"], precision, zero, ranks=2, here=1)
    assert copies == pytest.approx(found["copies"], rel=0.01)


def test_metrics_go_to_tensorboard_too(runs):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = lines(runs, "two-zero2")
    events = EventAccumulator(str(runs / "two-zero2/partial/tensorboard"))
    events.Reload()
    names = {"loss", "grad_norm", "lr", "mfu", "tokens_per_second", "source_loss/web", "source_loss/code"}
    assert names <= set(events.Tags()["scalars"])
    np.testing.assert_allclose(
        [event.value for event in events.Scalars("loss")], [line["loss"] for line in log]
    )
    weights = {"web": 3, "code": 1}
    for line in log:
        mean = sum(line["source_loss"][name] * weights[name] for name in weights) / 4
        assert 0 < line["mfu"] < 1 and line["loss"] == pytest.approx(mean, rel=0.05)


class Engine:
    """The part of an engine that `load` uses before it loads anything."""

    world_size, global_rank = 1, 0

    def __init__(self, stage: int) -> None:
        self.stage = stage

    def zero_optimization_stage(self) -> int:
        return self.stage


def test_a_checkpoint_of_another_configuration_or_stage_is_refused(runs):
    path = checkpoint.newest(Engine(2), runs / "two-half2/checkpoints")
    with pytest.raises(InputError, match="owner is 'a fingerprint', expected 'another'"):
        checkpoint.load(Engine(2), path, "another")
    with pytest.raises(InputError, match="zero_stage is 2, expected 3; set launch.zero_stage back"):
        checkpoint.load(Engine(3), path, "a fingerprint")
