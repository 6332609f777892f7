"""Deduplication in this process."""

from pathlib import Path

from deduplication import deduplicate_into

from pipeline.core.data.shards import read_table, tables


def deduplicate(folder: Path, shards: list[Path], **config: object) -> dict[str, str]:
    """Run the whole of deduplication here; returns the page that stays for each that goes, by id."""
    output = deduplicate_into(folder, shards, **config)
    rows = [row for part in tables(output, "duplicates") for row in read_table(part).to_pylist()]
    return {row["id"]: row["duplicate_of"] for row in rows}
