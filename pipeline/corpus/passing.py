"""Iterations after convergence: nothing is left to find, so results pass through unchanged."""

import json
import shutil
from pathlib import Path
from typing import Any

from pipeline.common.stage import Stage


def converged_before(stage: Stage[Any]) -> bool:
    """Whether the iteration before this one found that the loop has converged."""
    if "previous" not in stage.inputs:
        return False
    return bool(json.loads((stage.input("previous") / "metrics.json").read_text())["converged"])


def pass_through(source: Path, partial: Path, names: list[str]) -> None:
    """Copy the named results of the previous iteration."""
    for name in names:
        shutil.copyfile(source / name, partial / name)
