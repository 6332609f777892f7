"""What an iteration keeps compared with the previous one. After convergence there is nothing left to find,
and results pass through unchanged.
"""

import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.common.shards import read_table, write_table
from pipeline.common.stage import InputError, Stage

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


@dataclass
class Kept:
    """What an iteration keeps, and what of it the previous one did not; `threshold`: its lowest score."""

    pages: int = 0
    tokens: int = 0
    threshold: float | None = None
    new_pages: int = 0
    new_tokens: int = 0
    hosts: set[str] = field(default_factory=set)

    def add(self, row: dict[str, Any], is_new: bool) -> None:
        self.pages += 1
        self.tokens += row["tokens"]
        self.threshold = row["score"]
        self.new_pages += is_new
        self.new_tokens += row["tokens"] * is_new
        self.hosts.add(row["host"])


def write_kept(
    path: Path, pages: Iterable[pa.RecordBatch], previous: Path | None, iteration: int
) -> tuple[Kept, dict[str, Any]]:
    """Write `pages`, which are in rank order; returns what they are and how they differ from `previous`, the
    folder of the previous selection.

    A page's `iteration` is the first of the consecutive iterations that kept it. Memory grows with the pages
    that the previous iteration kept, not with the pool.
    """
    before: dict[str, int] = {}
    hosts: set[str] = set()
    if previous is not None:
        table = read_table(previous / "kept.parquet", ["id", "host", "iteration"])
        before = dict(zip(table["id"].to_pylist(), table["iteration"].to_pylist(), strict=True))
        hosts = set(table["host"].to_pylist())
    kept = Kept()

    def rows() -> Iterator[dict[str, Any]]:
        for batch in pages:
            for row in batch.to_pylist():
                kept.add(row, row["id"] not in before)
                columns = {name: row[name] for name in KEPT.names if name in row}
                yield columns | {"rank": kept.pages, "iteration": before.get(row["id"], iteration)}

    write_table(path, rows(), KEPT)
    overlap = round(1 - kept.new_pages / kept.pages, 6) if previous is not None and kept.pages else None
    return kept, {
        "overlap_with_previous": overlap,
        "marginal_pages": kept.new_pages,
        "marginal_tokens": kept.new_tokens,
        "new_hosts": len(kept.hosts - hosts),
    }


def converged_before(stage: Stage[Any]) -> bool:
    """Whether the previous iteration found that the loop has converged."""
    if "previous" not in stage.inputs:
        return False
    path = stage.input("previous") / "metrics.json"
    try:
        return bool(json.loads(path.read_text())["converged"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: cannot be read ({error!r}); make it again") from error


def pass_through(source: Path, partial: Path, names: Iterable[str]) -> None:
    """Copy the named results of the previous iteration."""
    for name in names:
        shutil.copyfile(source / name, partial / name)
