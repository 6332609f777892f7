"""What training logs at each step: once, while it runs, whatever was killed before."""

import json
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.config.sft import SftSection
from pipeline.core.store import Entry
from pipeline.training.metrics import EVALUATION, METRICS, SAMPLES, MetricsLog, logged
from pipeline.training.trackers import ASKED

SAMPLE = {
    "id": "q1",
    "question": "2 + 3?",
    "text": "It is\n\\boxed{5}",
    "reward": 1.0,
    "reason": "equal integers",
}
LOSSES = [step + 0.123456789 for step in range(9)]


def stage(folder: Path) -> Any:
    """What the log asks of a stage; results are in `<folder>/results/run`."""
    entry = Entry(folder / "results/run", "rl/grpo", "f" * 16)
    facts = {"name": "rl", "instance": "grpo", "fingerprint": "f" * 16, "config": SftSection()}
    (folder / "work").mkdir(exist_ok=True)
    (folder / "partial").mkdir(exist_ok=True)
    places = {"work": folder / "work", "partial": folder / "partial", "entry": entry}
    return SimpleNamespace(is_main=True, **facts, **places)


def run(folder: Path, start: int, stop: int, kept: dict[str, Any] | None = None) -> MetricsLog:
    """Log steps `start` + 1 to `stop`, each with an evaluation of the weights before it."""
    log = MetricsLog(stage(folder), start, kept)
    log.__enter__()
    for step in range(start, stop):
        log.write({"step": step, "accuracy": step / 10}, EVALUATION)
        log.write({"step": step + 1, "samples": [SAMPLE]}, SAMPLES)
        log.write({"step": step + 1, "loss": LOSSES[step], "kl": None, "source_loss": {"web": 2.0}})
    return log


def points(folder: Path) -> tuple[dict[str, list[int]], list[int]]:
    """Steps of each curve and of the samples that TensorBoard reads in a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    curves = {tag: [point.step for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    return curves, [point.step for point in events.Tensors("samples/text_summary")]


def test_lines_and_curves_of_a_run_killed_and_resumed_stand_once(tmp_path: Path) -> None:
    killed = run(tmp_path, 0, 5)
    shown = tmp_path / "results/run/tensorboard/grpo"
    assert shown.resolve() == tmp_path / "work/tensorboard"
    assert [row["step"] for row in logged(tmp_path / "work" / METRICS)] == [1, 2, 3, 4, 5]
    killed.board.flush()
    with (tmp_path / "work" / METRICS).open("a") as file:
        file.write('{"step": 6, "lo')  # the line that the kill cut off
    kept = logged(tmp_path / "work" / EVALUATION)[:3]
    run(tmp_path, 3, 6, {EVALUATION: kept}).__exit__(None, None, None)
    assert [row["step"] for row in logged(tmp_path / "partial" / METRICS)] == [1, 2, 3, 4, 5, 6]
    assert [row["step"] for row in logged(tmp_path / "partial" / SAMPLES)] == [1, 2, 3, 4, 5, 6]
    assert [row["step"] for row in logged(tmp_path / "work" / EVALUATION)] == [0, 1, 2, 3, 4, 5]
    for folder in (shown, tmp_path / "partial/tensorboard"):
        curves, samples = points(folder)
        assert curves["loss"] == curves["source_loss/web"] == samples == [1, 2, 3, 4, 5, 6]
        assert curves["held_out/accuracy"] == [0, 1, 2, 3, 4, 5] and "kl" not in curves


def test_a_finished_result_shows_its_own_curves_and_one_without_leaves_them(tmp_path: Path) -> None:
    entry = stage(tmp_path).entry
    (entry.data / "tensorboard").mkdir(parents=True)
    entry.make_current()
    Entry(entry.run, "evaluate/grpo", "a" * 16).make_current()
    assert (entry.run / "tensorboard/grpo").resolve() == (entry.data / "tensorboard").resolve()


@pytest.mark.parametrize("name", ASKED)
def test_a_tracker_gets_each_step_once(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    for variable, value in (("WANDB_MODE", "offline"), ("TRACKIO_DIR", str(tmp_path / "trackio"))):
        monkeypatch.delenv(variable, raising=False)
        if variable in ASKED[name]:
            monkeypatch.setenv(variable, value)
    run(tmp_path, 0, 4).trackers.close(False)
    run(tmp_path, 2, 5).__exit__(None, None, None)
    assert losses(tmp_path, name) == LOSSES[:5]


def losses(folder: Path, name: str) -> list[float]:
    """The losses that a tracker has on disk, in the order in which they came."""
    if name == "trackio":
        from trackio.sqlite_storage import SQLiteStorage

        rows = SQLiteStorage.get_logs("run", f"grpo-{'f' * 16}")
        return [row["loss"] for row in rows if "loss" in row]
    files = sorted(folder.glob("work/wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime)
    kept = [path.read_bytes() for path in files]
    return [loss for data in kept for loss in LOSSES if json.dumps(loss).encode() in data]
