"""Small generated webs."""

import json
from pathlib import Path

from pipeline.config.miniweb import MiniwebSection
from pipeline.miniweb.__main__ import run
from pipeline.protocol.stage import run_stage

CONFIG = {
    "enabled": True,
    "scale": 0.2,
    "warc_files": 4,
    "background": 150,
    "exact_duplicates": 24,
    "near_duplicates": 12,
    "sft": 300,
    "rl": 100,
    "test": 120,
    "heldout": 60,
    "drill": 20,
}


def generate(folder: Path, **changes) -> Path:
    arguments = ["--config", json.dumps(CONFIG | changes), "--work", str(folder / "work")]
    arguments += ["--output", str(folder / "data"), "--manifest", str(folder / "manifest.json")]
    run_stage("miniweb", MiniwebSection, run, arguments)
    return folder / "data"
