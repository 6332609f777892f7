"""Metrics of a training run as they come: a line of JSON per step, and the same for TensorBoard.

Both live in the work folder, survive a kill, and are cut back to the checkpoint that a run resumes from.
"""

import json
import shutil
from types import TracebackType
from typing import Any, Self

from pipeline.common.stage import Stage

NAME, FOLDER = "metrics.jsonl", "tensorboard"


class Metrics:
    """`metrics.jsonl` and `tensorboard/` of a stage, from step `start` on; only rank 0 writes.

    Use as a context manager; a run that ended well leaves both in `stage.partial`.
    """

    def __init__(self, stage: Stage[Any], start: int) -> None:
        self.stage, self.start = stage, start

    def __enter__(self) -> Self:
        if self.stage.is_main:
            from torch.utils.tensorboard import SummaryWriter  # seconds to import

            path = self.stage.work / NAME
            lines = path.read_text().splitlines(keepends=True)[: self.start] if path.exists() else []
            path.write_text("".join(lines))
            self.file = path.open("a")
            self.board = SummaryWriter(str(self.stage.work / FOLDER), purge_step=self.start + 1)
        return self

    def write(self, line: dict[str, Any]) -> None:
        """Append a step's metrics: `step`, numbers, and dictionaries of numbers."""
        if not self.stage.is_main:
            return
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()
        for name, value in line.items():
            if isinstance(value, dict):
                for part, number in value.items():
                    self.board.add_scalar(f"{name}/{part}", number, line["step"])
            elif name != "step" and value is not None:
                self.board.add_scalar(name, value, line["step"])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.stage.is_main:
            return
        self.file.close()
        self.board.close()
        if kind is None:
            shutil.copy(self.stage.work / NAME, self.stage.partial / NAME)
            shutil.copytree(self.stage.work / FOLDER, self.stage.partial / FOLDER, dirs_exist_ok=True)
