"""What a training program logs at each step: lines in files, curves for TensorBoard, the user's trackers.

`metrics.jsonl` has one line per step, `evaluation.jsonl` one per evaluation in training, `samples.jsonl` one
per step with a few of its outputs. They grow in the work folder while the program runs. The link
`results/<run>/tensorboard/<model>` leads to the model's curves from its first step on.

A resumed run repeats the steps since its checkpoint. What was logged of them is dropped first, so that no
line and no point of a curve stands twice.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pipeline.core.stage import Stage
from pipeline.core.store import CURVES
from pipeline.training.trackers import Trackers

METRICS, EVALUATION, SAMPLES = "metrics.jsonl", "evaluation.jsonl", "samples.jsonl"
PUBLISHED = (METRICS, SAMPLES)  # what a finished run copies to its result
FLUSH_SECONDS = 10

Row = dict[str, Any]


def logged(path: Path) -> list[Row]:
    """Read the whole rows of a file that a program appends to; a kill may have cut the last one."""
    rows = []
    for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else ():
        try:
            rows.append({"step": int(json.loads(line)["step"]), **json.loads(line)})
        except (ValueError, TypeError, KeyError):
            break
    return rows


class MetricsLog:
    """Logs rows that have a `step`; only rank 0 does.

    Use as a context manager, which opens the files. `start`: steps done before a resume. `kept`: the rows of
    a file that belong to them, where the program knows; else those of at most `start` steps are kept. A run
    that ends well leaves copies in `stage.partial`.
    """

    def __init__(self, stage: Stage[Any], start: int, kept: dict[str, Sequence[Row]] | None = None) -> None:
        self.stage, self.start, self.kept = stage, start, kept or {}
        self.files: dict[str, Any] = {}

    def __enter__(self) -> Self:
        if self.stage.is_main:
            from torch.utils.tensorboard import SummaryWriter  # seconds to import

            before = {name: logged(self.stage.work / name) for name in (METRICS, EVALUATION, SAMPLES)}
            self.sent = {
                name: max((row["step"] for row in rows), default=-1) for name, rows in before.items()
            }
            self.trackers = Trackers(self.stage)
            board = self.stage.work / CURVES
            self.board = SummaryWriter(str(board), purge_step=self.start, flush_secs=FLUSH_SECONDS)
            for name, rows in before.items():
                rows = self.kept.get(name, [row for row in rows if row["step"] <= self.start])
                (self.stage.work / name).write_text("".join(map(_line, rows)))
                for row in rows:
                    if row["step"] == self.start > 0:
                        self._draw(name, row)  # TensorBoard drops the step from which on it is repeated
            if self.stage.entry:
                self.stage.entry.show_curves(board)
        return self

    def write(self, row: Row, file: str = METRICS) -> None:
        """Append a row to a file, and show it: numbers, and dictionaries of numbers, by their names."""
        if not self.stage.is_main:
            return
        if file not in self.files:
            self.files[file] = (self.stage.work / file).open("a")
        self.files[file].write(_line(row))
        self.files[file].flush()
        self._draw(file, row)
        if row["step"] > self.sent[file]:  # a tracker keeps what an earlier start of the program sent
            self.trackers.log(row["step"], _numbers(file, row))

    def _draw(self, file: str, row: Row) -> None:
        for name, value in _numbers(file, row).items():
            self.board.add_scalar(name, value, row["step"])
        if file == SAMPLES and row["step"] > self.sent[SAMPLES]:  # TensorBoard never drops a text
            self.board.add_text("samples", "\n\n".join(map(_shown, row["samples"])), row["step"])
            self.board.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.stage.is_main:
            return
        for file in self.files.values():
            file.close()
        self.board.close()
        self.trackers.close(kind is None)
        if kind is None:
            for name in PUBLISHED:
                if (self.stage.work / name).stat().st_size:
                    shutil.copy(self.stage.work / name, self.stage.partial / name)
            shutil.copytree(self.stage.work / CURVES, self.stage.partial / CURVES, dirs_exist_ok=True)


def _line(row: Row) -> str:
    return json.dumps(row) + "\n"


def _numbers(file: str, row: Row) -> dict[str, float]:
    """Return the numbers of a row by the names of their curves; an evaluation's are `held_out/...`."""
    prefix, found = "held_out/" if file == EVALUATION else "", {}
    for name, value in row.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        for part, number in parts:
            if name != "step" and isinstance(number, int | float):
                found[f"{prefix}{name}{'/' if part else ''}{part}"] = number
    return found


def _shown(sample: Row) -> str:
    """Write a sample as TensorBoard's text page shows it: facts, then texts as they are."""
    facts = [f"{name}: {value}" for name, value in sample.items() if name not in ("question", "text")]
    texts = [sample["question"], "", sample["text"]]
    return "\n".join(f"    {line}" for text in ["; ".join(facts), *texts] for line in text.split("\n"))
