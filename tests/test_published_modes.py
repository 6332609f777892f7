"""Whoever may read a result's other files may read its weights."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tiny_model import save_tiny_model
from transformers import AutoTokenizer

from pipeline.reward.model import RewardModel, load_trunk, save_reward_model
from pipeline.training.model import load_model, save_weights


def _language_model(start: Path, folder: Path) -> None:
    model = load_model(start, "fp32")
    save_weights(model, model.state_dict(), folder)


def _reward_model(start: Path, folder: Path) -> None:
    model = RewardModel(load_trunk(start, "fp32"))
    torch.nn.init.normal_(model.head.weight)
    save_reward_model(folder, model, model.state_dict(), AutoTokenizer.from_pretrained(start), {})


@pytest.fixture(params=[0o022, 0o027, 0o002], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.parametrize("write", [_language_model, _reward_model])
def test_modes_of_published_weights_follow_the_umask(
    write: Callable[[Path, Path], None], umask: int, tmp_path: Path
) -> None:
    start, folder = save_tiny_model(tmp_path / "start", seed=0), tmp_path / "model"
    folder.mkdir()
    write(start, folder)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert any(name.endswith(".safetensors") for name in modes)
    assert set(modes.values()) == {0o666 & ~umask}, modes
