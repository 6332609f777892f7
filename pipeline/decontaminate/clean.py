"""Clean one shard of the pool: its kept pages without those that hold a benchmark text (paper section 2.1).

Inputs: `shard`; `select`, folder with `kept.parquet` (without it all pages are taken but those of `opt_out`
and `blocklists`); `benchmark.<name>` as of `pipeline.decontaminate`, which puts the shards together.

Outputs: `pages.jsonl.zst` (none without a page), `log.jsonl` (lines of `removals.jsonl`), `summary.json`.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from datatrove.data import Document
from pydantic import TypeAdapter

from pipeline.config.decontaminate import DecontaminateSection
from pipeline.core.data.rows import raw_lines, write_lines
from pipeline.core.data.shards import DocumentWriter, read_documents, rows_of
from pipeline.core.manifest import write_json
from pipeline.core.progress import Progress
from pipeline.core.stage import Counts, Stage, run_stage
from pipeline.crawl.opted_out import NOTHING, OptedOut
from pipeline.decontaminate.card import Composition
from pipeline.decontaminate.ngrams import BenchmarkIndex, Match, build_index

PAGES = "pages.jsonl.zst"
KEPT = ("score", "iteration", "tokens")  # columns of selection that are added to a page
Row = dict[str, Any]


@dataclass
class Cleaned:
    """What cleaning a shard found; `runs`: of the benchmarks, `composition`: of the pages that stay."""

    shard: str
    runs: int
    seen: int = 0
    composition: Composition = field(default_factory=Composition)
    log: list[Row] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Write log and summary."""
        write_lines(folder / "log.jsonl", self.log)
        summary = {"shard": self.shard, "runs": self.runs, "seen": self.seen}
        write_json(folder / "summary.json", summary | {"composition": vars(self.composition)})

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read what `write` wrote. Raises OSError, ValueError, KeyError or TypeError for anything else."""
        summary = json.loads((folder / "summary.json").read_text())
        log = [json.loads(line) for line in raw_lines(folder / "log.jsonl")]
        composition = TypeAdapter(Composition).validate_python(summary["composition"])
        return cls(summary["shard"], summary["runs"], summary["seen"], composition, log)


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
    """Return the page as it stays in the corpus, or None if it is removed."""
    if not matches:
        return document
    if config.remove == "page":
        return None
    document.text = without(document.text, matches)
    document.metadata["segments_removed"] = True
    return document if document.text else None


def kept_pages(select: Path, shard: str) -> dict[str, Row]:
    """Columns that selection adds to the kept pages of a shard, by id. Raises InputError."""
    table = rows_of(select / "kept.parquet", shard, ["id", *KEPT])
    return {row["id"]: {name: row[name] for name in KEPT} for row in table.to_pylist()}


def clean_shard(
    shard: Path,
    select: Path | None,
    folder: Path,
    index: BenchmarkIndex,
    config: DecontaminateSection,
    opted_out: OptedOut = NOTHING,
) -> Cleaned:
    """Write the clean pages of a shard to a folder, if there are any, and what was found."""
    kept = kept_pages(select, shard.name) if select else None
    found = Cleaned(shard.name, len(index))
    with DocumentWriter(folder / PAGES) as writer:
        for document in opted_out.allowed(read_documents(shard) if kept != {} else ()):
            if kept is not None:
                if document.id not in kept:
                    continue
                document.metadata |= kept[document.id]
            found.seen += 1
            matches = index.matches(document.text)
            head = {"id": document.id, "url": document.metadata.get("url")}
            page = clean(document, matches, config)
            removed = {"removed": "page" if page is None else "segment"}
            found.log += [head | asdict(match) | removed for match in matches]
            if page is not None:
                writer.write(page)
                found.composition.add(page)
    if not writer.count:
        (folder / PAGES).unlink()
    found.write(folder)
    return found


def run(stage: Stage[DecontaminateSection]) -> Counts:
    """Write the shard's clean pages, log and summary."""
    index, shard = build_index(stage.inputs, stage.config), stage.input("shard")
    select = stage.input("select") if "select" in stage.inputs else None
    opted_out = OptedOut.of(stage.inputs)
    with Progress(f"decontaminate {stage.instance}", None, unit="page") as bar:
        found = clean_shard(shard, select, stage.partial, index, stage.config, opted_out)
        bar.update(found.seen)
    stage.counter("decontaminate.searched_pages", found.seen)
    return {"kept": found.seen, "clean": found.composition.pages} | opted_out.counts


if __name__ == "__main__":
    run_stage("decontaminate", DecontaminateSection, run)
