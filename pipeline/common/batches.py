"""Work done in batches that survive a kill: each batch is one file, written whole or not at all.

The file's name ends in a hash of everything that decides its content, so a changed setting makes new batches
and an unchanged one finds what was done before.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.common.manifest import fingerprint


def saved_batch(folder: Path, name: str, settings: Any, make: Callable[[], list[Any]]) -> list[Any]:
    """The JSON rows of batch `name` made with `settings`: read from `folder`, or made and saved there."""
    path = folder / f"{name}-{fingerprint(settings)}.jsonl"
    if not path.exists():
        rows = make()
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        with temporary.open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    return [json.loads(line) for line in path.read_text().splitlines()]
