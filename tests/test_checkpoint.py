"""A damaged checkpoint or rollout is noticed before it is used; the one before it, or a copy, is taken."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.common import checkpoint
from pipeline.common.stage import InputError, Stage
from pipeline.config.rl import RlSection
from pipeline.rl.rollout import Group, Rollout, RolloutStore, published, read_groups, write_groups
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
    for step in (1, 2):
        with torch.no_grad():
            next(learner.engine.module.parameters()).fill_(step)
        learner.engine.optimizer.refresh_fp32_params()
        learner.save(stage_in(folder / "work"), step, {"log": [step], "evaluations": []})
    return learner, folder / "work"


def stage_in(work: Path) -> Stage[RlSection]:
    return Stage("rl", "x", RlSection(precision="fp32"), OWNER, {}, work, work, work, {})


def first_weight(learner: Any) -> float:
    return next(learner.engine.module.parameters()).flatten()[0].item()


def test_the_newest_whole_checkpoint_is_taken(saved: tuple[Any, Path], tmp_path: Path) -> None:
    learner, work = saved
    assert checkpoint.newest(learner.engine, tmp_path / "none") is None
    assert learner.resume(stage_in(work))["log"] == [2] and first_weight(learner) == 2


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
