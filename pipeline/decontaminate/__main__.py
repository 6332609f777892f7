"""Write the clean corpus: kept pages without those that hold a benchmark text (paper section 2.1).

Inputs: `pool`, `select` (the last iteration's), `benchmark.<name>` (bench-format files or hub ids). Whole
pages are removed, each with a line in `removals.jsonl` that says which item and which words. Outputs:
`corpus/*.jsonl.zst`, `card.md`.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from datatrove.data import Document

from pipeline.common.progress import Progress
from pipeline.common.rows import read_rows
from pipeline.common.shards import DocumentWriter, read_documents, read_table, shard_paths
from pipeline.common.stage import Counts, Stage, run_stage
from pipeline.config.decontaminate import DecontaminateSection
from pipeline.decontaminate.card import data_card
from pipeline.decontaminate.ngrams import Index

PREFIX = "benchmark."


def build_index(stage: Stage[DecontaminateSection]) -> Index:
    """Questions, answers and solutions of all configured benchmarks."""
    index = Index(stage.config.ngram, stage.config.shortest)
    for name in sorted(key for key in stage.inputs if key.startswith(PREFIX)):
        for source in stage.inputs[name]:
            for number, (_, row) in enumerate(read_rows(source)):
                item = str(row.get("id", number))
                for field in ("question", "problem", "answer", "solution", "solution_plain"):
                    if row.get(field):
                        index.add(name.removeprefix(PREFIX), item, str(row[field]))
    return index


def kept_documents(pool: Path, kept: dict[str, dict[str, Any]]) -> Iterator[tuple[Path, Document]]:
    """(shard, document) of the kept pages, with score, rank and iteration added to the metadata."""
    for shard in shard_paths(pool / "pool"):
        for document in read_documents(shard):
            if document.id in kept:
                document.metadata |= {
                    name: kept[document.id][name] for name in ("score", "rank", "iteration")
                }
                yield shard, document


def run(stage: Stage[DecontaminateSection]) -> Counts:
    """Returns pages and removals by benchmark."""
    index = build_index(stage)
    table = read_table(stage.input("select") / "kept.parquet").to_pylist()
    kept = {row["id"]: row for row in table}
    removed: Counter[str] = Counter()
    clean: list[dict[str, Any]] = []
    writers: dict[Path, DocumentWriter] = {}
    (stage.partial / "corpus").mkdir()
    with (
        (stage.partial / "removals.jsonl").open("w") as log,
        Progress("decontaminate", len(kept), unit="page") as bar,
    ):
        for shard, document in kept_documents(stage.input("pool"), kept):
            matches = list(index.matches(document.text))
            for match in matches:
                row = {"id": document.id, "url": document.metadata["url"]} | asdict(match)
                log.write(json.dumps(row, ensure_ascii=False) + "\n")
            removed.update({match.benchmark for match in matches})
            bar.update(1)
            if matches:
                continue
            if shard not in writers:
                writers[shard] = DocumentWriter(stage.partial / "corpus" / shard.name).__enter__()
            writers[shard].write(document)
            clean.append({**document.metadata, "tokens": kept[document.id]["tokens"]})
    for writer in writers.values():
        writer.__exit__(None, None, None)
    counts = {
        "kept": len(kept),
        "clean": len(clean),
        "contaminated": len(kept) - len(clean),
        "runs": len(index),
    }
    counts |= {f"contaminated.{name}": number for name, number in sorted(removed.items())}
    (stage.partial / "card.md").write_text(data_card(clean, counts, stage.config))
    return counts


if __name__ == "__main__":
    run_stage("decontaminate", DecontaminateSection, run)
