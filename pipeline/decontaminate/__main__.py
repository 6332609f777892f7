"""Write the clean corpus: kept pages without those that hold a benchmark text (paper section 2.1).

Inputs:
  pool             folder with `pool/*.jsonl.zst` (of deduplication), or with such shards themselves
  select           folder with `kept.parquet` (of the last iteration); without it all pages are taken
  benchmark.<name> benchmark files (rows with `question` or `problem`, perhaps `answer` and `solution`),
                   folders of them or hub:<id>:<split>; may repeat

Outputs: `corpus/*.jsonl.zst`; `removals.jsonl`, a line for each run of words that a page shares with an item
(id and url of the page, benchmark, item, gram, span, rule, run, context, removed); `card.md`.
"""

import json
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datatrove.data import Document

from pipeline.common.progress import Progress
from pipeline.common.rows import read_rows
from pipeline.common.shards import DocumentWriter, read_documents, read_table, shard_paths
from pipeline.common.stage import Counts, InputError, Stage, run_stage
from pipeline.config.decontaminate import DecontaminateSection
from pipeline.decontaminate.card import Composition, data_card
from pipeline.decontaminate.ngrams import BenchmarkIndex, Match

PREFIX = "benchmark."
QUESTIONS, ANSWERS = ("question", "problem"), ("answer", "solution", "solution_plain")
KEPT = ("score", "rank", "iteration", "tokens")  # columns of selection that are added to a page
Row = dict[str, Any]
SHARED: tuple[BenchmarkIndex, pa.Table | None, Path, DecontaminateSection]


def build_index(stage: Stage[DecontaminateSection]) -> BenchmarkIndex:
    """Questions, answers and solutions of all given benchmarks."""
    index = BenchmarkIndex(stage.config.ngram, stage.config.shortest)
    for name in sorted(key for key in stage.inputs if key.startswith(PREFIX)):
        rows = 0
        for source in stage.inputs[name]:
            for number, (place, row) in enumerate(read_rows(source)):
                rows += 1
                if not any(row.get(field) for field in QUESTIONS):
                    raise InputError(f"{place}: a benchmark row needs `question` or `problem`")
                for field in (*QUESTIONS, *ANSWERS):
                    if row.get(field):
                        item = str(row.get("id", number))
                        index.add(name.removeprefix(PREFIX), item, str(row[field]), field in QUESTIONS)
        if not rows:
            sources = ", ".join(map(str, stage.inputs[name]))
            raise InputError(f"{sources}: no rows; {name} would keep nothing out of the corpus")
    index.build()
    return index


@dataclass(frozen=True)
class PoolPart:
    """A shard of the pool and its rows among the kept pages; None if all of its pages are taken."""

    shard: Path
    rows: slice | None


def parts(stage: Stage[DecontaminateSection]) -> tuple[list[PoolPart], pa.Table | None]:
    """The shards to clean, and the table of kept pages sorted by shard and rank."""
    pool = stage.input("pool")
    shards = shard_paths(pool / "pool" if (pool / "pool").is_dir() else pool)
    if "select" not in stage.inputs:
        return [PoolPart(shard, None) for shard in shards], None
    table = read_table(stage.input("select") / "kept.parquet", ["id", "shard", *KEPT])
    table = table.combine_chunks().sort_by([("shard", "ascending"), ("rank", "ascending")])
    sizes = {row["values"]: row["counts"] for row in pc.value_counts(table["shard"]).to_pylist()}
    if unknown := sizes.keys() - {shard.name for shard in shards}:
        raise InputError(f"{pool}: has no shard {min(unknown)}, of which kept.parquet lists pages")
    found, start = [], 0
    for shard in shards:
        size = sizes.get(shard.name, 0)
        found.append(PoolPart(shard, slice(start, start + size)))
        start += size
    return found, table


def without(text: str, matches: list[Match]) -> str:
    """`text` without the lines that any of the shared runs touches."""
    lines, place = [], 0
    for line in text.split("\n"):
        end = place + len(line)
        if not any(place < match.run[1] and match.run[0] < end for match in matches):
            lines.append(line)
        place = end + 1
    return "\n".join(lines).strip()


def clean(document: Document, matches: list[Match], config: DecontaminateSection) -> Document | None:
    """The page as it stays in the corpus, or None if it is removed."""
    if not matches:
        return document
    if config.remove == "page":
        return None
    document.text = without(document.text, matches)
    document.metadata["segments_removed"] = True
    return document if document.text else None


def share(index: BenchmarkIndex, kept: pa.Table | None, folder: Path, config: DecontaminateSection) -> None:
    """Keep what `clean_shard` uses; forked processes share its memory."""
    global SHARED
    SHARED = index, kept, folder, config


def clean_shard(part: PoolPart) -> tuple[int, list[Row], Composition]:
    """Write the clean pages of a shard; returns pages seen, lines of `removals.jsonl`, composition."""
    index, table, folder, config = SHARED
    kept: dict[str, Row] | None = None
    if table is not None and part.rows is not None:
        rows = table.slice(part.rows.start, part.rows.stop - part.rows.start).to_pylist()
        kept = {row["id"]: {name: row[name] for name in KEPT} for row in rows}
    log: list[Row] = []
    seen, written = 0, Composition()
    with DocumentWriter(folder / part.shard.name) as writer:
        for document in read_documents(part.shard) if kept != {} else ():
            if kept is not None:
                if document.id not in kept:
                    continue
                document.metadata |= kept[document.id]
            seen += 1
            matches = index.matches(document.text)
            head = {"id": document.id, "url": document.metadata.get("url")}
            page = clean(document, matches, config)
            removed = {"removed": "page" if page is None else "segment"}
            log += [head | asdict(match) | removed for match in matches]
            if page is not None:
                writer.write(page)
                written.add(page)
    if not writer.count:
        (folder / part.shard.name).unlink()
    return seen, log, written


def run(stage: Stage[DecontaminateSection]) -> Counts:
    """Write corpus, log and card; returns pages and removals by benchmark."""
    index = build_index(stage)
    tasks, kept = parts(stage)
    folder = stage.partial / "corpus"
    folder.mkdir()
    total, pages, removed, composition = 0, set(), Counter[str](), Composition()
    workers = ProcessPoolExecutor(
        stage.launch.get("threads", 1), get_context("fork"), share, (index, kept, folder, stage.config)
    )
    with (
        (stage.partial / "removals.jsonl").open("w") as log,
        Progress("decontaminate", None, unit="page") as bar,
        workers,
    ):
        for seen, rows, written in workers.map(clean_shard, tasks):
            log.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            pages |= {row["id"] for row in rows}
            removed.update(name for _, name in {(row["id"], row["benchmark"]) for row in rows})
            composition += written
            total += seen
            bar.update(seen)
    counts = {"kept": total, "clean": composition.pages, "contaminated": len(pages), "runs": len(index)}
    counts |= {f"contaminated.{name}": number for name, number in sorted(removed.items())}
    stage.counter("decontaminate.searched_pages", total)
    (stage.partial / "card.md").write_text(data_card(stage, composition, counts, folder))
    return counts


if __name__ == "__main__":
    run_stage("decontaminate", DecontaminateSection, run)
