"""What an iteration keeps compared with the previous one. Where nearly all was kept before there is nothing
left to find, and results pass through unchanged. That is convergence only if the seed had grown in between:
the same seed finds the same pages.
"""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.common.database import Database, parquet, save
from pipeline.common.stage import InputError, Stage
from pipeline.corpus.candidates import RANKED

KEPT = pa.schema(
    [
        ("id", pa.string()),
        ("url", pa.string()),
        ("host", pa.string()),
        ("shard", pa.string()),
        ("score", pa.float64()),
        ("rank", pa.int64()),
        ("tokens", pa.int64()),
        ("iteration", pa.int64()),
    ]
)


LEAST = "SELECT min(score) FROM (SELECT score FROM reached ORDER BY score DESC LIMIT $size)"
KEEP = f"""
CREATE OR REPLACE TABLE kept AS
SELECT *, row_number() OVER () AS rank
FROM (SELECT * FROM reached WHERE score >= $least {RANKED} LIMIT $size)
"""
COMPARED = """
CREATE VIEW compared AS SELECT kept.*, previous.iteration AS before FROM kept LEFT JOIN previous USING (id)
"""
CHANGES = """
SELECT count(*), coalesce(sum(tokens), 0)::BIGINT, min(score), count(*) FILTER (before IS NULL),
    coalesce(sum(tokens) FILTER (before IS NULL), 0)::BIGINT,
    (SELECT count(DISTINCT host) FROM kept WHERE host NOT IN (SELECT host FROM previous))
FROM compared
"""


def keep(database: Database, size: int) -> None:
    """Create `kept`: the first `size` pages of `reached` in rank order, and their `rank`, from 1."""
    ((least,),) = database.execute(LEAST, {"size": size}).fetchall()  # so that no others are sorted whole
    database.execute(KEEP, {"size": size, "least": least})


def write_kept(path: Path, database: Database, previous: Path | None, iteration: int) -> dict[str, Any]:
    """Write `kept` in rank order; returns what it is and how it differs from `previous`, the folder of the
    previous selection.

    A page's `iteration` is the first of the consecutive iterations that kept it.
    """
    nothing = "(SELECT id, host, 0 AS iteration FROM kept LIMIT 0)"
    earlier = parquet(previous / "kept.parquet") if previous else nothing
    database.execute(f"CREATE VIEW previous AS SELECT id, host, iteration FROM {earlier}")
    database.execute(COMPARED)
    columns = ", ".join([*KEPT.names[:-1], f"coalesce(before, {iteration}) AS iteration"])
    save(path, database.execute(f"SELECT {columns} FROM compared ORDER BY rank"), KEPT)
    ((pages, tokens, least, new, new_tokens, hosts),) = database.execute(CHANGES).fetchall()
    return {
        "kept_tokens": tokens,
        "threshold": least,
        "overlap_with_previous": round(1 - new / pages, 6) if previous is not None and pages else None,
        "marginal_pages": new,
        "marginal_tokens": new_tokens,
        "new_hosts": hosts,
    }


def converged_before(stage: Stage[Any]) -> bool:
    """Whether the loop stopped at the previous iteration and no new round of review goes on."""
    if "previous" not in stage.inputs or stage.inputs.get("new_round"):
        return False
    return bool(read_notes(stage.input("previous") / "metrics.json", "stopped")["stopped"])


def seed_grew(pages: int, previous: Path | None) -> bool:
    """Whether a seed of so many pages is larger than that of the previous iteration."""
    return previous is None or pages > read_notes(previous / "metrics.json", "seed_pages")["seed_pages"]


def read_notes(path: Path, *names: str) -> dict[str, Any]:
    """The JSON object, with these names in it, that a program before this one wrote. Raises InputError."""
    try:
        notes: dict[str, Any] = json.loads(path.read_bytes())
        json.dumps(notes, ensure_ascii=False).encode()  # half a character could not be written again
        return notes | {name: notes[name] for name in names}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read ({error!r}); make it again") from error


def pass_through(source: Path, partial: Path, names: Iterable[str]) -> None:
    """Copy the named results of the previous iteration. Raises InputError if one is not there."""
    for name in names:
        try:
            shutil.copyfile(source / name, partial / name)
        except FileNotFoundError as error:
            raise InputError(f"{source / name}: no such file; make it again") from error
