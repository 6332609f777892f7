"""Rows that the grader's tests read: our own labelled cases, and the larger data sets where they are here."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from .lines import read_lines

TESTS = Path(__file__).parents[1]
SHARED = TESTS.parents[1] / "shared/data"
SEED = int(os.environ.get("GRADER_SEED") or 0)  # draws other references


def labelled(name: str) -> list[dict[str, Any]]:
    """Return the rows of `tests/data/<name>.jsonl`."""
    return read_lines(TESTS / f"data/{name}.jsonl")


def shared(name: str) -> list[dict[str, Any]]:
    """Return the rows of a file of the larger data sets; without it the test is skipped."""
    path = SHARED / f"{name}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]
