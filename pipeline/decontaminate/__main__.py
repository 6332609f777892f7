"""Write the clean corpus: kept pages without those that hold a benchmark text (paper section 2.1).

Inputs:
  pool             folder with `pool/*.jsonl.zst` (of deduplication), or with such shards themselves
  select           folder with `kept.parquet` (of the last iteration); without it all pages are taken but
                   those of `opt_out` and `blocklists`
  benchmark.<name> benchmark files (rows with `question` or `problem`, perhaps `answer` and `solution`),
                   folders of them or hub:<id>:<split>; may repeat
  cleaned          results of `pipeline.decontaminate.clean`, one for each shard of the pool in order; without
                   them this program cleans the shards itself, with the benchmarks given

Outputs: `corpus/*.jsonl.zst`; `removals.jsonl`, a line for each run of words that a page shares with an item
(id and url of the page, benchmark, item, gram, span, rule, run, grams, context, removed: page or segment);
`card.md`.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow.compute as pc

from pipeline.config.decontaminate import DecontaminateSection
from pipeline.core.data.shards import read_table, shard_paths
from pipeline.core.data.workers import map_forked
from pipeline.core.progress import Progress
from pipeline.core.stage import Counts, InputError, Stage, run_stage
from pipeline.crawl.opted_out import OptedOut
from pipeline.decontaminate.card import Composition, data_card
from pipeline.decontaminate.clean import PAGES, Cleaned, clean_shard
from pipeline.decontaminate.ngrams import build_index


def clean_here(stage: Stage[DecontaminateSection]) -> list[Path]:
    """Clean the shards of the pool, several at a time if the stage has several cores; returns the folders of
    what was found in each. Raises InputError if selection names a shard that the pool lacks.
    """
    index, pool = build_index(stage.inputs, stage.config), stage.input("pool")
    shards = shard_paths(pool / "pool" if (pool / "pool").is_dir() else pool)
    select = stage.input("select") if "select" in stage.inputs else None
    opted_out = OptedOut.of(stage.inputs)
    if select:
        named = set(pc.unique(read_table(select / "kept.parquet", ["shard"])["shard"]).to_pylist())
        if unknown := named - {shard.name for shard in shards}:
            raise InputError(f"{pool}: has no shard {min(unknown)}, of which kept.parquet lists pages")

    def clean(shard: Path) -> tuple[Path, int]:
        folder = stage.work / "cleaned" / shard.name
        folder.mkdir(parents=True, exist_ok=True)
        return folder, clean_shard(shard, select, folder, index, stage.config, opted_out).seen

    folders = []
    with Progress("decontaminate", None, unit="page") as bar:
        for folder, seen in map_forked(clean, shards, stage.launch.get("threads", 1)):
            folders.append(folder)
            stage.counter("decontaminate.searched_pages", seen)
            bar.update(seen)
    return folders


def gather(folders: Iterable[Path], corpus: Path) -> Iterator[Cleaned]:
    """Return what was found in each cleaned shard, whose pages are copied to the folder `corpus`."""
    for folder in folders:
        try:
            found = Cleaned.read(folder)
            if (folder / PAGES).exists():
                shutil.copyfile(folder / PAGES, corpus / found.shard)
            yield found
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{folder}: not a cleaned shard ({error!r}); make it again") from error


def run(stage: Stage[DecontaminateSection]) -> Counts:
    """Write corpus, log and card; returns pages and removals by benchmark."""
    folder, runs = stage.partial / "corpus", 0
    folder.mkdir()
    given = list(map(Path, stage.inputs.get("cleaned", [])))
    total, pages, removed, composition = 0, 0, Counter[str](), Composition()
    with (stage.partial / "removals.jsonl").open("w") as log:
        for part in gather(given or clean_here(stage), folder):
            log.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in part.log)
            pages += len({row["id"] for row in part.log})
            removed.update(name for _, name in {(row["id"], row["benchmark"]) for row in part.log})
            composition += part.composition
            total, runs = total + part.seen, part.runs
    counts = {"kept": total, "clean": composition.pages, "contaminated": pages, "runs": runs}
    counts |= {f"contaminated.{name}": number for name, number in sorted(removed.items())}
    (stage.partial / "card.md").write_text(data_card(stage, composition, counts, folder))
    return counts


if __name__ == "__main__":
    run_stage("decontaminate", DecontaminateSection, run)
