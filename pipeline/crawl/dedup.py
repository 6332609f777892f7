"""The pool without duplicates: the end of stage `crawl` (paper section 2.1).

Four rules in turn: same normalised URL, same text, on a host the same text but for numbers, near-duplicate by
MinHash. The paper says only "URL-based deduplication and near-deduplication". Of a group of duplicates the
first page in input order survives (of extraction shards, WARC files and offsets). The programs before this
one do the work: `sign` (a job for each extraction shard), `exact`, `buckets` (several jobs), `survivors`,
`filter` (a job for each shard of the pool). This one puts the shards and the tables of duplicates together by
hard links (`--input filter=FOLDER`, may repeat): `pool/<number>.jsonl.zst`, and `duplicates/<number>.parquet`
for the same shard, or `duplicates.parquet` of a single one.

With `crawl.order: math_first` they run for each dump alone, as in FineWeb (Penedo et al. 2024), then for what
is left of all dumps. `--input dump.NAME=FOLDER` (may repeat) names what `filter` wrote for the shards of a
dump. A page that stayed in its dump may be removed for the sake of another dump's page, so each page that was
removed within its dump is mapped to the copy that survives; these tables, one for each dump, sorted by `id`,
are the last parts of the duplicates.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from pipeline.config.crawl import CrawlSection
from pipeline.core.data.database import database, parquet, save
from pipeline.core.data.shards import link_file, put_table
from pipeline.core.identity import published, read_manifest
from pipeline.core.stage import Counts, InputError, Stage, run_stage
from pipeline.crawl.filter import DUPLICATES

STAYING = """
SELECT own.id, own.url, coalesce(other.duplicate_of, own.duplicate_of) AS duplicate_of,
    coalesce(other.duplicate_of_url, own.duplicate_of_url) AS duplicate_of_url, own.kind,
    CASE WHEN other.id IS NULL THEN own.similarity END AS similarity
FROM {} AS own LEFT JOIN {} AS other ON own.duplicate_of = other.id ORDER BY own.id
"""
OF_DUMPS = ("duplicates_", "rows.", "pages.", "duplicates.")  # counts that dumps and all together add up to


def counted(folders: Iterable[Path]) -> Counter[str]:
    """Add up the counts of some results."""
    counts: Counter[str] = Counter()
    for found in map(published, folders):
        counts.update(read_manifest(found[1])["counts"] if found else {})
    return counts


def removed_within(stage: Stage[CrawlSection], dumps: list[list[Path]], removed: list[Path]) -> list[Path]:
    """Write a table of each dump, given by its results: the pages that were removed within it and the copy
    that survives, also where the first one is in the tables `removed`. Returns the tables.
    """
    tables = [stage.work / f"staying-{number:04d}.parquet" for number in range(len(dumps))]
    with database(stage.work / "join", stage.launch) as joins:
        for path, own in zip(tables, dumps, strict=True):
            pages = parquet(*(folder / "removed.parquet" for folder in own))
            save(path, joins.execute(STAYING.format(pages, parquet(*removed))), DUPLICATES)
    return tables


def run(stage: Stage[CrawlSection]) -> Counts:
    """Make the pool; returns counts by rule."""
    folders = [Path(folder) for folder in stage.inputs.get("filter", [])]
    if not folders:
        raise InputError("no pages given: use --input filter=FOLDER, for each folder that filter wrote")
    dumps = [list(map(Path, own)) for name, own in stage.inputs.items() if name.startswith("dump.")]
    (stage.partial / "pool").mkdir()
    for number, folder in enumerate(folders):
        link_file(folder / "pool.jsonl.zst", stage.partial / "pool" / f"{number:04d}.jsonl.zst")
    removed = [folder / "removed.parquet" for folder in folders]
    put_table(stage.partial, "duplicates", [*removed, *removed_within(stage, dumps, removed)])
    counts = counted(folders)
    if dumps:
        before = counted(chain(*dumps))
        counts.update({name: count for name, count in before.items() if name.startswith(OF_DUMPS)})
        counts["pages"] = before["pages"]
    return dict(counts)


if __name__ == "__main__":
    run_stage("crawl", CrawlSection, run)
