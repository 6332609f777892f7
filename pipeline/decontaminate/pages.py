"""One row for every response record of the crawl: its final status, and why.

Inputs: `extract` (all shards), `dedup`, `score` (the last iteration's), `select` (the last), `decontaminate`.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.common.shards import read_table, write_table
from pipeline.common.stage import Counts, Stage, run_stage
from pipeline.config.decontaminate import DecontaminateSection

PAGES = pa.schema(
    [
        ("url", pa.string()),
        ("warc_file", pa.string()),
        ("offset", pa.int64()),
        ("digest", pa.string()),
        ("language", pa.string()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("score", pa.float64()),
        ("iteration", pa.int64()),
        ("duplicate_of", pa.string()),
        ("contaminated_by", pa.string()),
    ]
)
ById = dict[str, dict[str, Any]]


def by_id(path: Path) -> ById:
    return {row["id"]: row for row in read_table(path).to_pylist()}


def contaminations(path: Path) -> ById:
    """The first removal line of each page."""
    found: ById = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        found.setdefault(row["id"], row)
    return found


def fate(
    page: dict[str, Any], duplicates: ById, excluded: ById, kept: ById, removed: ById, scores: ById
) -> dict[str, Any]:
    """Status and reason of a page, and the columns that go with its status."""
    identity = page["id"]
    if page["status"] == "rejected":
        return {"status": "rejected", "reason": page["reason"]}
    if identity in duplicates:
        duplicate = duplicates[identity]
        return {
            "status": "duplicate",
            "reason": duplicate["kind"],
            "duplicate_of": duplicate["duplicate_of_url"],
        }
    if identity in excluded:  # whatever its score
        return {"status": "excluded", "reason": excluded[identity]["reason"]}
    found = {"score": scores[identity]["score"]}
    if identity not in kept:
        return found | {"status": "below_cut", "reason": "score"}
    found |= {"iteration": kept[identity]["iteration"]}
    if identity in removed:
        match = removed[identity]
        found |= {"contaminated_by": f"{match['benchmark']}/{match['item']}"}
        if match["removed"] == "segment":
            return found | {"status": "kept", "reason": "segments removed"}
        return found | {"status": "contaminated", "reason": match["rule"]}
    return found | {"status": "kept"}


def run(stage: Stage[DecontaminateSection]) -> Counts:
    """Write `pages.parquet`; returns pages by status."""
    scores: ById = {}
    for path in stage.inputs["score"]:
        scores |= by_id(Path(path) / "scores.parquet")
    kept = by_id(stage.input("select") / "kept.parquet")
    excluded = by_id(stage.input("select") / "excluded.parquet")
    duplicates = by_id(stage.input("dedup") / "duplicates.parquet")
    removed = contaminations(stage.input("decontaminate") / "removals.jsonl")
    counts: Counter[str] = Counter()

    def rows() -> Iterator[dict[str, Any]]:
        for path in stage.inputs["extract"]:
            for page in read_table(Path(path) / "records.parquet").to_pylist():
                row = {name: page.get(name) for name in PAGES.names}
                row |= fate(page, duplicates, excluded, kept, removed, scores)
                counts[row["status"]] += 1
                yield row

    total = write_table(stage.partial / "pages.parquet", rows(), PAGES)
    return {"pages": total} | dict(sorted(counts.items()))


if __name__ == "__main__":
    run_stage("decontaminate", DecontaminateSection, run)
