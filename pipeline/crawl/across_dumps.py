"""Map each page removed within a dump to the copy that survives in the final pool.

With several dumps in `crawl.order: math_first` a page that stayed in its dump may be removed for the sake of
another dump's page. Inputs: `dump`, what `filter` wrote for one dump; `filter`, what it wrote
for those shards of the pool that were made from this dump: all of them, since the page that stayed may be in
any shard of the dump. Writes `staying.parquet`, a row for each page that the shards of `dump` lost, by `id`.
"""

from collections import Counter
from pathlib import Path

from pipeline.config.crawl import CrawlSection
from pipeline.crawl.filter import DUPLICATES
from pipeline.data.database import database, parquet, save
from pipeline.protocol.identity import published, read_manifest
from pipeline.protocol.stage import Counts, InputError, Stage, run_stage

STAYING = """
SELECT own.id, own.url, coalesce(other.duplicate_of, own.duplicate_of) AS duplicate_of,
    coalesce(other.duplicate_of_url, own.duplicate_of_url) AS duplicate_of_url, own.kind,
    CASE WHEN other.id IS NULL THEN own.similarity END AS similarity
FROM {} AS own LEFT JOIN {} AS other ON own.duplicate_of = other.id ORDER BY own.id
"""


def counted(folders: list[Path]) -> Counter[str]:
    """Add up the counts of some results."""
    counts: Counter[str] = Counter()
    for found in map(published, folders):
        counts.update(read_manifest(found[1])["counts"] if found else {})
    return counts


def run(stage: Stage[CrawlSection]) -> Counts:
    """Write the rows; returns the counts of `dump`."""
    own, other = (list(map(Path, stage.inputs.get(name, []))) for name in ("dump", "filter"))
    if not own or not other:
        raise InputError("use --input dump=FOLDER and --input filter=FOLDER, for each folder")
    tables = (parquet(*(folder / "removed.parquet" for folder in some)) for some in (own, other))
    with database(stage.work / "join", stage.launch) as joins:
        save(stage.partial / "staying.parquet", joins.execute(STAYING.format(*tables)), DUPLICATES)
    return dict(counted(own))


if __name__ == "__main__":
    run_stage("crawl", CrawlSection, run)
