"""One shard of the pool: the pages of some extraction shards without duplicates (datatrove's stage 4).

Writes `pool.jsonl.zst`, and `removed.parquet`, a row for each removed page with id and URL of the page that
stays and, for a near-duplicate, how similar they are. Reads of other shards only these rows.
"""

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.config.crawl import CrawlSection
from pipeline.core.data.shards import ROWS, DocumentWriter, read_lines, read_table, table_schema, write_table
from pipeline.core.progress import Progress
from pipeline.core.stage import Counts, InputError, Stage, run_stage
from pipeline.crawl.pairs import NEAR
from pipeline.crawl.signature_store import (
    check_shard,
    listed_shards,
    page_file,
    read_names,
    read_sketches,
    signed_pages,
)
from pipeline.crawl.signatures import similarity
from pipeline.crawl.urls import source_of

DUPLICATES = table_schema(
    id=str, url=str, duplicate_of=str, duplicate_of_url=str, kind=str, similarity=pa.float32()
)
KINDS = ("", "url", "exact", "near", "template")
Row = dict[str, Any]


@cache
def _signed_shards(result: Path) -> dict[str, Path]:
    """Folders of the signed shards that `survivors` listed, by digest."""
    return {digest: folder for folder, digest in listed_shards(result)}


class Shard:
    """An extraction shard, and what `survivors` says of its pages."""

    def __init__(self, pages: Path, removed: Path) -> None:
        self.pages = page_file(pages)
        table = read_table(removed)
        self.digest = table.schema.metadata[b"sign"].decode()
        self.places = table["place"].to_numpy()
        self.kinds = table["kind"].to_numpy()
        self.targets = table["target"].to_numpy()
        self.shards = np.array(table["shard"].to_pylist(), object)
        self.folders = _signed_shards(removed.parents[1])

    def read_of(self) -> Counter[str]:
        """Count rows and pages that extraction read of each named source."""
        ledger, found = self.pages.with_name("ledger.jsonl"), Counter[str]()
        for line in map(json.loads, ledger.read_text().splitlines() if ledger.exists() else ()):
            if source := source_of(line["file"]):
                found.update({f"rows.{source}": line["records"], f"pages.{source}": line["pages"]})
        return found

    def unique(self) -> Iterator[bytes]:
        """Lines of the pages that stay, in order. Raises InputError if pages go, and there are more or fewer
        than were signed; a shard that loses none is not among those that `survivors` lists.
        """
        gone, number = set(self.places.tolist()), 0
        for place, line in enumerate(read_lines(self.pages)):
            number += 1
            if place not in gone:
                yield line
        if gone and number != (signed := signed_pages(self.folder(self.digest))):
            raise InputError(f"{self.pages}: {number:,} pages, but {signed:,} were signed; sign them again")

    def folder(self, digest: str) -> Path:
        """Return the signed shard of this digest. Raises InputError if another one lies in its place."""
        check_shard(self.folders[digest], digest)
        return self.folders[digest]

    def duplicates(self) -> Iterator[Row]:
        """Yield a row for each removed page, in order."""
        for start in range(0, len(self.places), ROWS):
            yield from self._some_duplicates(slice(start, start + ROWS))

    def _some_duplicates(self, some: slice) -> list[Row]:
        places, targets, shards = self.places[some], self.targets[some], self.shards[some]
        names = read_names(self.folder(self.digest), places)
        rows: list[Row] = [
            {"id": identity, "url": url, "kind": KINDS[kind]}
            for (identity, url), kind in zip(names, self.kinds[some].tolist(), strict=True)
        ]
        own = read_sketches(self.folder(self.digest), places)
        for digest in dict.fromkeys(shards):
            chosen = np.flatnonzero(shards == digest)
            folder = self.folder(digest)
            others = read_sketches(folder, targets[chosen])
            names = read_names(folder, targets[chosen])
            for row, other, (identity, url) in zip(chosen.tolist(), others, names, strict=True):
                rows[row] |= {"duplicate_of": identity, "duplicate_of_url": url}
                if rows[row]["kind"] == KINDS[NEAR]:
                    rows[row]["similarity"] = similarity(own[row], other)
        return rows


def run(stage: Stage[CrawlSection]) -> Counts:
    """Filter some extraction shards; returns counts of pages by rule."""
    pages, removed = stage.inputs.get("extract", []), stage.inputs.get("removed", [])
    if not pages or len(pages) != len(removed):
        raise InputError("use --input extract=FOLDER and --input removed=FILE for each shard")
    shards = [Shard(Path(folder), Path(file)) for folder, file in zip(pages, removed, strict=True)]
    with (
        DocumentWriter(stage.partial / "pool.jsonl.zst") as writer,
        Progress(f"crawl {stage.instance}", None, unit="page") as bar,
    ):
        for shard in shards:
            for line in shard.unique():
                writer.write_line(line)
                bar.update(1)
    stage.counter("pool.pages", writer.count)
    found = Counter[str]()
    of_source = sum((shard.read_of() for shard in shards), Counter[str]())

    def rows() -> Iterator[Row]:
        for shard in shards:
            for row in shard.duplicates():
                found[row["kind"]] += 1
                if source := source_of(row["id"]):
                    of_source[f"duplicates.{source}"] += 1
                yield row

    write_table(stage.partial / "removed.parquet", rows(), DUPLICATES)
    kinds = {f"duplicates_{kind}": found[kind] for kind in KINDS[1:]}
    return {"pages": writer.count + found.total(), "kept": writer.count, **kinds, **of_source}


if __name__ == "__main__":
    run_stage("crawl", CrawlSection, run)
