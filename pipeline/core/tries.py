"""Which jobs of a workflow are not worth another try: those whose program ended by what it was given.

A cluster tells a workflow only that a job failed. So a program notes here, under the key of the result that
it was to make, that another try would end the same way, and for which start of the workflow that holds: the
user may mend the input and start it again.
"""

import json
import os
import time
from pathlib import Path

from pipeline.core.manifest import write_json

FOLDER = Path("work") / "vain"
START = "PIPELINE_START"  # environment of all jobs of a workflow: when it was started


def begin() -> None:
    """Mark the start of a workflow; its jobs inherit the environment."""
    os.environ[START] = repr(time.time())


def started() -> float:
    """When the workflow was started whose job this process is; infinity outside of one."""
    return float(os.environ.get(START, "inf"))


def note(key: str, why: str) -> None:
    """Note that another try at the result `key` is in vain; nothing outside of a workflow."""
    if START in os.environ and key:
        FOLDER.mkdir(parents=True, exist_ok=True)
        write_json(FOLDER / key, {"start": os.environ[START], "why": why})


def vain(key: str) -> str | None:
    """Why another try at the result `key` would fail, if one of this workflow's has noted it."""
    try:
        found = json.loads((FOLDER / key).read_text())
    except (OSError, ValueError):
        return None
    return str(found["why"]) if found["start"] == os.environ.get(START) else None
