"""The pool without duplicates: the end of stage `crawl` (paper section 2.1).

Three rules in turn: same normalised URL, same text, near-duplicate by MinHash. The paper says only
"URL-based deduplication and near-deduplication". Of a group of duplicates the first page in input order
survives (order of extraction shards, WARC files and offsets). The programs before this one do the work:
`sign` (a job for each extraction shard), `exact`, `buckets`, `cluster` and `removed` (several jobs), `filter`
(a job for each shard of the pool). This one puts the shards and the tables of duplicates together by hard
links: `pool/<number>.jsonl.zst`, and `duplicates/<number>.parquet` for the same shard, or
`duplicates.parquet` of a single one.

Two forms: as a stage of the workflow (`--input filter=FOLDER`, may repeat), or on pages of extraction
(`--input extract=FOLDER`, may repeat), where it runs all these programs one after another.

With `crawl.order: math_first` they run for each dump alone, as in FineWeb (Penedo et al. 2024), then for what
is left of all dumps. `--input staying=FOLDER` (may repeat) names what `staying` wrote of the pages that were
removed within their dumps; these tables are the last parts of the duplicates.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from pipeline.config.crawl import CrawlSection
from pipeline.crawl import buckets, cluster, exact, filter, removed, sign
from pipeline.crawl.staying import counted
from pipeline.data.shards import link_file, put_table
from pipeline.protocol.stage import Counts, InputError, Stage, run_stage


def gather(stage: Stage[CrawlSection], folders: list[Path], within: list[Path]) -> Counts:
    """Put the shards that `filter` wrote together; returns counts by rule. `within`: what `staying` wrote."""
    (stage.partial / "pool").mkdir()
    for number, folder in enumerate(folders):
        link_file(folder / "pool.jsonl.zst", stage.partial / "pool" / f"{number:04d}.jsonl.zst")
    removed = [folder / "removed.parquet" for folder in folders]
    put_table(stage.partial, "duplicates", [*removed, *(folder / "staying.parquet" for folder in within)])
    counts = counted(folders)
    if within:
        before = counted(within)
        counts.update({name: count for name, count in before.items() if name.startswith("duplicates_")})
        counts["pages"] = before["pages"]
    return dict(counts)


def run_all(stage: Stage[CrawlSection], folders: list[str]) -> list[Path]:
    """Run all programs before this one on the shards of extraction, in `stage.work`; returns what `filter`
    wrote.
    """

    def made(name: str, program: Callable[[Stage[CrawlSection]], Counts], **inputs: object) -> Path:
        output = stage.work / name
        words = [
            f"--input={key}={path}"
            for key, paths in inputs.items()
            for path in (paths if isinstance(paths, list) else [paths])
        ]
        words += ["--config", json.dumps(stage.config.model_dump(mode="json"))]
        run_stage("crawl", CrawlSection, program, [*words, "--instance", name, "--output", str(output)])
        counters = json.loads((output / "run.json").read_text())["counters"]
        for counter, amount in counters.items():
            stage.counter(counter, amount)
        return output

    signed = [made(f"sign-{rank:04d}", sign.run, extract=folder) for rank, folder in enumerate(folders)]
    same = made("exact", exact.run, sign=signed)
    jobs = range(stage.config.bucket_jobs)
    pairs = [made(f"buckets-{job:04d}", buckets.run, exact=same) for job in jobs]
    gone = _removed(stage.config.cluster_parts(len(folders)), same, pairs, made)
    parts = stage.config.pool_parts(len(folders))
    return [
        made(
            f"filter-{number:04d}",
            filter.run,
            extract=[folders[rank] for rank in part],
            removed=[gone[rank] for rank in part],
        )
        for number, part in enumerate(parts)
    ]


def _removed(parts: list[range], same: Path, pairs: list[Path], made: Callable[..., Path]) -> list[Path]:
    """Run `cluster` and `removed` for all parts; returns the tables of the pages that go, by shard."""
    later: list[Path] = []
    for number in reversed(range(len(parts))):
        later.insert(
            0, made(f"cluster-{number:04d}", cluster.run, exact=same, buckets=pairs, later=list(later))
        )
    found = []
    for number, part in enumerate(parts):
        folder = made(f"removed-{number:04d}", removed.run, exact=same, cluster=later[: number + 1])
        found += [folder / "removed" / f"{rank:05d}.parquet" for rank in part]
    return found


def run(stage: Stage[CrawlSection]) -> Counts:
    """Make the pool; returns counts by rule."""
    folders = [Path(folder) for folder in stage.inputs.get("filter", [])]
    extracts = stage.inputs.get("extract", [])
    if not folders and not extracts:
        raise InputError("no pages given: use --input extract=FOLDER, for each folder that extraction wrote")
    within = [Path(folder) for folder in stage.inputs.get("staying", [])]
    return gather(stage, folders or run_all(stage, extracts), within)


if __name__ == "__main__":
    run_stage("crawl", CrawlSection, run, sys.argv[1:])
