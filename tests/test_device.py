"""A program that is given GPUs which it cannot use says so before it reads weights, and ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from deepspeed.accelerator import get_accelerator, set_accelerator
from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator
from programs import ENVIRONMENT, ROOT

from pipeline.core import device, stage, stages
from pipeline.core.errors import InputError
from pipeline.core.section import Section

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="needs GPUs that torch cannot use")
SECTIONS = [row.section for row in stages.STAGES if row.section.has_ranks()]
BUILD = rf"torch {torch.__version__} \(built for CUDA none\)".replace("+", r"\+")


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is given two GPUs, of which torch sees none."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.delenv("DS_ACCELERATOR", raising=False)


def ran(stage: stage.Stage) -> None:
    pytest.fail("it ran")


ran.__module__ = device.__name__  # some sections count the program's code


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_every_stage_with_ranks_refuses_gpus_that_torch_cannot_use(
    section: type[Section],
    given: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(stage, "catch_signals", lambda: None)  # those of the tests' own process
    words = ["--instance", "x", "--config", "{}", "--launch", "{}", "--output", str(tmp_path / "data")]
    with pytest.raises(SystemExit) as end:
        stage.run_stage("x", section, ran, [*words, "--input", "init=x"])
    told = capsys.readouterr().err
    assert end.value.code == 2 and told.count("\n") == 1
    assert told.startswith(
        f"error: CUDA_VISIBLE_DEVICES gives GPUs 0,1, but torch {torch.__version__} (built"
    )
    assert "with no NVIDIA driver" in told or "with driver " in told


@pytest.mark.slow
def test_a_training_program_ends_before_its_model_is_looked_for(tmp_path: Path) -> None:
    words = ["--instance", "x", "--config", json.dumps({"steps": 1}), "--launch", "{}"]
    words += ["--output", tmp_path / "data", "--input", "init=no/model", "--input", "data=no.jsonl"]
    given = {name: value for name, value in ENVIRONMENT.items() if name != "DS_ACCELERATOR"}
    done = subprocess.run(
        [sys.executable, "-m", "pipeline.sft", *words],
        env=given | {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(
        "error: CUDA_VISIBLE_DEVICES gives GPUs 0,1,2,3,4,5,6,7, but"
    )


@pytest.mark.parametrize("value", device.NONE)
def test_no_gpu_in_the_list_means_the_cpu(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DS_ACCELERATOR", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert not device.wants_gpu()
    device.check_device()


def test_torch_and_deepspeed_must_take_the_same_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    device.check_device()
    before = get_accelerator()
    set_accelerator(CUDA_Accelerator())
    try:
        with pytest.raises(InputError, match=f"^{BUILD} computes on cpu, DeepSpeed on cuda, with "):
            device.check_device()
    finally:
        set_accelerator(before)
