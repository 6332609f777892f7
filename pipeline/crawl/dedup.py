"""The pool without duplicates: the end of stage `crawl` (paper section 2.1).

Three rules in turn: same normalised URL, same text, near-duplicate by MinHash. The paper says only
"URL-based deduplication and near-deduplication". Of a group of duplicates the first page in input order
survives (order of extraction shards, WARC files and offsets). The programs before this one do the work:
`sign` (a job for each extraction shard), `exact`, `buckets` (several jobs), `cluster`, `filter` (a job for
each shard of the pool). This one puts the shards and the tables of duplicates together by hard
links (`--input filter=FOLDER`, may repeat): `pool/<number>.jsonl.zst`, and `duplicates/<number>.parquet` for
the same shard, or `duplicates.parquet` of a single one.

With `crawl.order: math_first` they run for each dump alone, as in FineWeb (Penedo et al. 2024), then for what
is left of all dumps. `--input staying=FOLDER` (may repeat) names what `across_dumps` wrote of the pages that
were removed within their dumps; these tables are the last parts of the duplicates.
"""

from pathlib import Path

from pipeline.config.crawl import CrawlSection
from pipeline.crawl.across_dumps import counted
from pipeline.data.shards import link_file, put_table
from pipeline.protocol.stage import Counts, InputError, Stage, run_stage

OF_DUMPS = ("duplicates_", "rows.", "pages.", "duplicates.")  # counts that dumps and all together add up to


def check_losses(counts: Counts, most: float) -> None:
    """Raise InputError for a named source of which more than that share is lost before it is scored."""
    for name in (name for name in counts if name.startswith("rows.")):
        source = name.partition(".")[2]
        rows, pages, gone = (int(counts.get(f"{of}.{source}", 0)) for of in ("rows", "pages", "duplicates"))
        if rows and (lost := 1 - (pages - gone) / rows) > most:
            raise InputError(
                f"config key crawl.most_lost: source {source} loses {lost:.1%} of its {rows:,} rows, more"
                f" than {most:.1%}: {rows - pages:,} are rejected, {gone:,} duplicates"
            )


def run(stage: Stage[CrawlSection]) -> Counts:
    """Make the pool; returns counts by rule."""
    folders = [Path(folder) for folder in stage.inputs.get("filter", [])]
    if not folders:
        raise InputError("no pages given: use --input filter=FOLDER, for each folder that filter wrote")
    within = [Path(folder) for folder in stage.inputs.get("staying", [])]
    (stage.partial / "pool").mkdir()
    for number, folder in enumerate(folders):
        link_file(folder / "pool.jsonl.zst", stage.partial / "pool" / f"{number:04d}.jsonl.zst")
    removed = [folder / "removed.parquet" for folder in folders]
    put_table(stage.partial, "duplicates", [*removed, *(folder / "staying.parquet" for folder in within)])
    counts = counted(folders)
    if within:
        before = counted(within)
        counts.update({name: count for name, count in before.items() if name.startswith(OF_DUMPS)})
        counts["pages"] = before["pages"]
    check_losses(dict(counts), stage.config.most_lost)
    return dict(counts)


if __name__ == "__main__":
    run_stage("crawl", CrawlSection, run)
