"""Small generated webs."""

import json
from pathlib import Path
from typing import Any

from pipeline.config.miniweb import MiniwebSection
from pipeline.core.stage import run_stage
from pipeline.examples.miniweb.__main__ import run

SMALL = {"enabled": True, "scale": 0.2, "sft": 300, "rl": 100, "test": 120}


def generate(folder: Path, **changes: Any) -> Path:
    """Run the stage in this process; returns the folder of its files."""
    arguments = ["--config", json.dumps(SMALL | changes), "--work", str(folder / "work")]
    arguments += ["--output", str(folder / "data"), "--manifest", str(folder / "manifest.json")]
    run_stage("miniweb", MiniwebSection, run, arguments)
    return folder / "data"
