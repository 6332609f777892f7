"""Write the clean corpus: kept pages without those that hold a benchmark text (paper section 2.1).

Inputs:
  pool             folder with `pool/*.jsonl.zst` (of deduplication), or with such shards themselves
  select           folder with `kept.parquet` (of the last iteration); without it all pages are taken
  benchmark.<name> benchmark files (rows with `question` or `problem`, perhaps `answer` and `solution`),
                   folders of them or hub:<id>:<split>; may repeat
  cleaned          results of `pipeline.decontaminate.clean`, one for each shard of the pool in order; without
                   them this program cleans the shards itself, with the benchmarks given

Outputs: `corpus/*.jsonl.zst`; `removals.jsonl`, a line for each run of words that a page shares with an item
(id and url of the page, benchmark, item, gram, span, rule, run, context, removed: the page, a segment or, if
`decontaminate.fuzzy` is `flag`, nothing); `card.md`.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow.compute as pc

from pipeline.config.decontaminate import DecontaminateSection
from pipeline.data.rows import raw_lines
from pipeline.data.shards import read_table, shard_paths
from pipeline.decontaminate.card import Composition, data_card
from pipeline.decontaminate.clean import Cleaned, build_index, clean_shard
from pipeline.decontaminate.ngrams import BenchmarkIndex
from pipeline.protocol.progress import Progress
from pipeline.protocol.stage import Counts, InputError, Stage, run_stage

SHARED: tuple[Path | None, Path, BenchmarkIndex, DecontaminateSection]


def share(select: Path | None, folder: Path, index: BenchmarkIndex, config: DecontaminateSection) -> None:
    """Keep what `cleaned_here` uses; forked processes share its memory."""
    global SHARED
    SHARED = select, folder, index, config


def cleaned_here(shard: Path) -> Cleaned:
    """Clean a shard into the folder of the corpus."""
    select, folder, index, config = SHARED
    return clean_shard(shard, select, folder / shard.name, index, config)


def clean_all(stage: Stage[DecontaminateSection], index: BenchmarkIndex, folder: Path) -> Iterator[Cleaned]:
    """Clean the shards of the pool, several at a time if the stage has several cores."""
    pool = stage.input("pool")
    shards = shard_paths(pool / "pool" if (pool / "pool").is_dir() else pool)
    select = stage.input("select") if "select" in stage.inputs else None
    if select:
        kept = read_table(select / "kept.parquet", ["shard"])["shard"]
        named = set(pc.unique(kept).to_pylist())
        if unknown := named - {shard.name for shard in shards}:
            raise InputError(f"{pool}: has no shard {min(unknown)}, of which kept.parquet lists pages")
    shared = select, folder, index, stage.config
    with ProcessPoolExecutor(stage.launch.get("threads", 1), get_context("fork"), share, shared) as workers:
        yield from workers.map(cleaned_here, shards)


def gather(results: list[str], folder: Path) -> Iterator[Cleaned]:
    """What was found in each cleaned shard, whose pages are copied to `folder`."""
    for result in map(Path, results):
        try:
            summary = json.loads((result / "summary.json").read_text())
            log = [json.loads(line) for line in raw_lines(result / "log.jsonl")]
            if (result / "pages.jsonl.zst").exists():
                shutil.copyfile(result / "pages.jsonl.zst", folder / summary["shard"])
            yield Cleaned(summary["seen"], summary["runs"], log, Composition.read(summary["composition"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{result}: not a cleaned shard ({error!r}); make it again") from error


def run(stage: Stage[DecontaminateSection]) -> Counts:
    """Write corpus, log and card; returns pages and removals by benchmark."""
    folder, runs = stage.partial / "corpus", 0
    folder.mkdir()
    if given := stage.inputs.get("cleaned"):
        parts = gather(given, folder)
    else:
        parts = clean_all(stage, build_index(stage), folder)
    total, pages, removed, composition, flagged = 0, 0, Counter[str](), Composition(), 0
    with (
        (stage.partial / "removals.jsonl").open("w") as log,
        Progress("decontaminate", None, unit="page") as bar,
    ):
        for part in parts:
            log.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in part.log)
            proven = [row for row in part.log if row["removed"] != "nothing"]
            pages += len({row["id"] for row in proven})
            flagged += len({row["id"] for row in part.log} - {row["id"] for row in proven})
            removed.update(name for _, name in {(row["id"], row["benchmark"]) for row in proven})
            composition += part.composition
            total, runs = total + part.seen, part.runs
            bar.update(part.seen)
    counts = {"kept": total, "clean": composition.pages, "contaminated": pages, "runs": runs}
    counts |= {f"contaminated.{name}": number for name, number in sorted(removed.items())}
    counts |= {"flagged": flagged} if stage.config.fuzzy == "flag" else {}
    if not given:
        stage.counter("decontaminate.searched_pages", total)
    (stage.partial / "card.md").write_text(data_card(stage, composition, counts, folder))
    return counts


if __name__ == "__main__":
    run_stage("decontaminate", DecontaminateSection, run)
