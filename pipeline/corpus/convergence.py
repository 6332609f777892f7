"""What an iteration keeps compared with the previous one. Where nearly all was kept before there is nothing
left to find, and results pass through unchanged. That is convergence only if the seed had grown in between:
the same seed finds the same pages.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipeline.core.data.shards import link_file, table_schema
from pipeline.core.stage import InputError, Stage

KEPT = table_schema(id=str, url=str, host=str, shard=str, score=float, tokens=int, iteration=int)


def iteration_of(stage: Stage[Any]) -> int:
    """Return the number in the name of an instance, such as iteration-2/select. Raises InputError."""
    folder, _, program = stage.instance.partition("/")
    number = folder.removeprefix("iteration-")
    if not (number.isascii() and number.isdigit()):
        raise InputError(f"--instance {stage.instance}: expected iteration-<number>/{program or 'select'}")
    return int(number)


def converged_before(stage: Stage[Any]) -> bool:
    """Whether the loop stopped at the previous iteration and no new round of review goes on."""
    if "previous" not in stage.inputs or stage.inputs.get("new_round"):
        return False
    return bool(read_notes(stage.input("previous") / "metrics.json", "stopped")["stopped"])


def seed_grew(pages: int, previous: Path | None) -> bool:
    """Whether a seed of so many pages is larger than that of the previous iteration."""
    return previous is None or pages > read_notes(previous / "metrics.json", "seed_pages")["seed_pages"]


def read_notes(path: Path, *names: str) -> dict[str, Any]:
    """Read the JSON object, with these names in it, that an earlier program wrote. Raises InputError."""
    try:
        notes: dict[str, Any] = json.loads(path.read_bytes())
        json.dumps(notes, ensure_ascii=False).encode()  # half a character could not be written again
        return notes | {name: notes[name] for name in names}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read ({error!r}); make it again") from error


def pass_through(source: Path, partial: Path, names: Iterable[str]) -> None:
    """Take over the named results of the previous iteration. Raises InputError if one is not there."""
    for name in names:
        link_file(source / name, partial / name)
