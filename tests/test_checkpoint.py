"""A damaged checkpoint or rollout is noticed before it is used; the one before it, or a copy, is taken."""

import errno
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline.config.rl import RlSection
from pipeline.core.stage import InputError, Stage
from pipeline.rl.rollout import Group, Rollout, RolloutStore, published, read_groups, write_groups
from pipeline.training import checkpoint, saver
from tests.tiny_model import save_tiny_model

OWNER = "a fingerprint"


def cut(path: Path) -> None:
    """Lose the second half of a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def flip_tail(path: Path) -> None:
    """Change a bit in the directory at the end of a file, which has no checksum in torch's format."""
    data = bytearray(path.read_bytes())
    data[-12] ^= 4
    path.write_bytes(data)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A PPO learner and the work folder with its checkpoints after steps 1 and 2."""
    from pipeline.rl.learner import build_learner

    folder = tmp_path_factory.mktemp("checkpoints")
    model = save_tiny_model(folder / "model", seed=0)
    section = RlSection(precision="fp32", method="ppo", ppo={"value_learning_rate": 1e-3})
    learner = build_learner(section, {"zero_stage": 1}, str(model))
    keeper = learner.saver(stage_in(folder / "work"))
    for step in (1, 2):
        train_to(learner, step)
        keeper.save(step, {"log": [step], "evaluations": []})
    keeper.finish()
    return learner, folder / "work"


def train_to(learner: Any, step: int) -> None:
    """Give the policy weights that belong to `step`."""
    with torch.no_grad():
        next(learner.engine.module.parameters()).fill_(step)
    learner.engine.optimizer.refresh_fp32_params()


def stage_in(work: Path) -> Stage[RlSection]:
    return Stage("rl", "x", RlSection(precision="fp32"), OWNER, {}, work, work, work, {})


def first_weight(learner: Any) -> float:
    return next(learner.engine.module.parameters()).flatten()[0].item()


@pytest.mark.slow
def test_the_newest_whole_checkpoint_is_taken(saved: tuple[Any, Path], tmp_path: Path) -> None:
    learner, work = saved
    assert checkpoint.newest(learner.engine, tmp_path / "none") is None
    assert learner.resume(stage_in(work))["log"] == [2] and first_weight(learner) == 2


@pytest.fixture
def begun(saved: tuple[Any, Path], tmp_path: Path) -> tuple[Any, Path, Any]:
    """The learner, a copy of its work folder, and what saves there."""
    learner, work = saved
    shutil.copytree(work, tmp_path / "work")
    return learner, tmp_path / "work", learner.saver(stage_in(tmp_path / "work"))


def steps_in(work: Path) -> list[list[int]]:
    """The steps of the checkpoints of policy and critic."""
    folders = (work / "checkpoints", work / "critic")
    return [sorted(checkpoint.step_of(path) for path in folder.glob("step-*")) for folder in folders]


def test_training_goes_on_while_a_checkpoint_is_written_which_counts_when_it_is_flushed(
    begun: tuple[Any, Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, work, keeper = begun
    gate, flush = threading.Event(), saver.flush
    monkeypatch.setattr(saver, "flush", lambda paths: gate.wait(60) and flush(paths))
    train_to(learner, 3)
    state = {"log": [3]}
    keeper.save(3, state)
    train_to(learner, 4)
    state["log"].append(4)
    assert keeper.writes() and steps_in(work) == [[1, 2], [1, 2]]
    threading.Timer(0.2, gate.set).start()
    keeper.save(4, state)  # waits for the one that is still written
    assert steps_in(work) == [[2, 3], [2, 3]]
    keeper.finish()
    assert not keeper.writes() and steps_in(work) == [[3, 4], [3, 4]]
    assert learner.resume(stage_in(work))["log"] == [3, 4] and first_weight(learner) == 4
    shutil.rmtree(work / "checkpoints/step-0000004")
    assert learner.resume(stage_in(work))["log"] == [3] and first_weight(learner) == 3


def test_what_keeps_a_checkpoint_from_being_written_ends_the_training(
    begun: tuple[Any, Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, work, keeper = begun

    def full(paths: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(work))

    monkeypatch.setattr(saver, "flush", full)
    keeper.save(3, {"log": [3]})
    with pytest.raises(OSError, match="No space left on device"):
        while keeper.writes():
            pass
    with pytest.raises(OSError, match="No space left on device"):
        keeper.finish()
    assert steps_in(work) == [[1, 2], [1, 2]] and learner.resume(stage_in(work))["log"] == [2]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("checkpoints/step-0000002/state/mp_rank_00_model_states.pt", cut),
        ("checkpoints/step-0000002/state/mp_rank_00_model_states.pt", flip),
        ("checkpoints/step-0000002/state/mp_rank_00_model_states.pt", flip_tail),
        ("checkpoints/step-0000002/state/mp_rank_00_model_states.pt", Path.unlink),
        ("checkpoints/step-0000002/state/zero_pp_rank_0_mp_rank_00_optim_states.pt", flip),
        ("checkpoints/step-0000002/random-00000.pt", Path.unlink),
        ("checkpoints/step-0000002/random-00000.pt", flip),
        ("checkpoints/step-0000002/checkpoint.json", cut),
        ("checkpoints/step-0000002/checkpoint.json", flip),
        ("checkpoints/step-0000002/checkpoint.json", Path.unlink),
        ("checkpoints/step-0000002", shutil.rmtree),
        ("critic/step-0000002/state/mp_rank_00_model_states.pt", flip),
        ("critic/step-0000002", shutil.rmtree),
    ],
)
def test_a_damaged_checkpoint_falls_back_to_the_one_before_it(
    saved: tuple[Any, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    damage: Callable[[Path], None],
) -> None:
    learner, work = saved
    shutil.copytree(work, tmp_path / "work")
    damage(tmp_path / "work" / name)
    with torch.no_grad():
        next(learner.engine.module.parameters()).fill_(9)
    assert learner.resume(stage_in(tmp_path / "work"))["log"] == [1] and first_weight(learner) == 1
    told = [line for line in capsys.readouterr().err.splitlines() if "step-0000002" in line]
    if (work / name).is_dir() and "checkpoints" in name:
        assert told == []  # a checkpoint that is not there at all is not damaged
    else:
        (line,) = told
        assert str(tmp_path / "work" / name) in line and "step-0000001 taken" in line
    assert not (tmp_path / "work/checkpoints/step-0000002").exists()
    assert learner.resume(stage_in(tmp_path / "work"))["log"] == [1]


def test_after_another_number_of_ranks_each_weight_counts_its_own_steps_where_it_lies() -> None:
    """DeepSpeed leaves one counter for all in main memory; a fused optimizer on a GPU refuses it."""
    weights, count = [torch.nn.Parameter(torch.ones(2, device="meta")) for _ in "ab"], torch.tensor(7.0)
    optimizer = torch.optim.AdamW(weights)
    optimizer.state |= {weight: {"step": count} for weight in weights}
    checkpoint._repair_optimizer(SimpleNamespace(optimizer=SimpleNamespace(optimizer=optimizer)), [0.1])
    steps = [optimizer.state[weight]["step"] for weight in weights]
    assert [step.device for step in steps] == [weight.device for weight in weights]
    assert steps[0] is not steps[1] and optimizer.param_groups[0]["weight_decay"] == 0.1


def test_checkpoints_that_are_all_damaged_are_refused_and_kept(
    saved: tuple[Any, Path], tmp_path: Path
) -> None:
    learner, work = saved
    shutil.copytree(work, tmp_path / "work")
    for path in (tmp_path / "work/checkpoints").glob("step-*/random-*"):
        flip(path)
    with pytest.raises(InputError, match=r"step-0000002/random-00000.pt is damaged; no checkpoint is whole"):
        learner.resume(stage_in(tmp_path / "work"))
    assert len(list((tmp_path / "work").glob("*/step-*"))) == 4


def group(name: str, seeds: range) -> Group:
    outputs = [
        Rollout(seed, [seed] * 5, [-0.5] * 5, "stop", "t", 1.0, {}, "right", None, "") for seed in seeds
    ]
    return Group(1, 0, name, "q", "r", [1, 2], outputs)


@pytest.fixture
def rollouts(tmp_path: Path) -> RolloutStore:
    """What two ranks sampled of a step, two questions of three outputs each, and the step's whole file."""
    RolloutStore(tmp_path / "rollouts", 1).write(1, 0, [group("b", range(11, 13))])
    store = RolloutStore(tmp_path / "rollouts", 0)
    store.write(1, 0, [group("a", range(3)), group("b", range(10, 11))])
    write_groups(published(store.folder, 1), [group("a", range(3)), group("b", range(10, 13))])
    return store


@pytest.mark.parametrize("damage", [cut, flip, Path.unlink])
def test_a_damaged_file_of_rollouts_is_put_together_again(
    rollouts: RolloutStore, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    path = published(rollouts.folder, 1)
    whole = path.read_bytes()
    damage(path)
    rollouts.repair(1, questions=2, tokens=30, size=3, shared=1)
    assert path.read_bytes() == whole and len(capsys.readouterr().err.splitlines()) == 1
    rollouts.repair(1, questions=2, tokens=30, size=3, shared=1)
    assert capsys.readouterr().err == ""


def test_rollouts_that_are_damaged_in_both_places_are_refused(rollouts: RolloutStore) -> None:
    cut(published(rollouts.folder, 1))
    rollouts.path(1).unlink()
    with pytest.raises(InputError, match=r"step-00001.jsonl.zst: damaged or missing, and what the ranks"):
        rollouts.repair(1, questions=2, tokens=30, size=3, shared=1)


@pytest.mark.parametrize("damage", [cut, flip])
def test_a_rank_samples_again_what_is_damaged(
    rollouts: RolloutStore, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    seeds = [range(3), range(10, 11)]
    assert rollouts.find(1, 0, 0, seeds) == read_groups(rollouts.path(1))
    damage(rollouts.path(1))
    assert rollouts.find(1, 0, 0, seeds) is None
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{rollouts.path(1)}: cannot be read") and line.endswith("sampled again")
