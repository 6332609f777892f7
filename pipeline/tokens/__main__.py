"""Tokenise a mixture's sources into memory-mapped files for continued pre-training (paper section 2.3).

Inputs: `tokenizer` (folder or hub id), `source.<name>` (files, folders of shards, hub ids),
`benchmark.<name>` (of a mixture with a source that is decontaminated). Output: `parts/<name>/` with a token
file for each file of a source, `tokens.json`, which lists them, `removals.jsonl`, the documents of such
sources that hold a benchmark's text, and the tokenizer, which a model from scratch inherits. Files are
tokenised in parallel, one process each; a resumed run skips finished files.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.config.decontaminate import DecontaminateSection
from pipeline.config.tokens import MixtureNode
from pipeline.core.data.rows import batched, files_of
from pipeline.core.data.workers import map_forked
from pipeline.core.manifest import fingerprint, write_json
from pipeline.core.progress import Progress
from pipeline.core.stage import Counts, InputError, Stage, run_stage
from pipeline.decontaminate.ngrams import BenchmarkIndex, build_index
from pipeline.tokens.files import part_path, token_type, write_tokens
from pipeline.tokens.texts import read_texts
from pipeline.training.chat import encode_documents
from pipeline.training.tokenizer import load_tokenizer

DOCUMENTS_PER_BATCH = 512
COUNTED = ("documents", "tokens", "empty")
REMOVED = "removed"  # counted of sources that are decontaminated
DECONTAMINATION = {"ngram": 10, "shortest": 3}  # that stage's defaults, in the key


@dataclass(frozen=True)
class Part:
    """A file of a source and its outputs: `<base>.bin`, `<base>.idx`, and when done `<base>.json`."""

    path: str
    field: str
    tokenizer: str
    base: Path
    clean: bool = False  # whether documents with a benchmark's text are left out


def parts_of(stage: Stage[MixtureNode], tokenizer: str, name: str) -> list[Part]:
    """Return the files of a source; a name under `work` changes with the file: no stale tokens are used."""
    parts = []
    for path in (file for source in stage.inputs.get(f"source.{name}", []) for file in files_of(source)):
        status = os.stat(path) if os.path.exists(path) else None
        identity = fingerprint([path, [status.st_size, status.st_mtime_ns] if status else None])
        base = stage.work / "parts" / name / f"{len(parts):06d}-{identity}"
        source = stage.config.sources[name]
        parts.append(Part(path, source.text, tokenizer, base, source.decontaminate))
    return parts


def leaks_of(texts: list[str], first: int, index: BenchmarkIndex) -> dict[int, dict[str, Any]]:
    """Find the texts that hold a benchmark's text, by number, and what they share; `first`: before them."""
    found = {}
    for number, text in enumerate(texts):
        if matches := index.matches(text):
            match = matches[0]
            leak = {"benchmark": match.benchmark, "item": match.item, "gram": match.gram}
            found[number] = {"document": first + number} | leak
    return found


def tokenise(part: Part, index: BenchmarkIndex | None) -> None:
    """Write a part's token file; count the documents without text and leave them out, and those with a text
    of `index`, if the part is to be clean.
    """
    if part.base.with_suffix(".json").exists():
        return
    part.base.parent.mkdir(parents=True, exist_ok=True)
    tokenizer, empty, seen = load_tokenizer(part.tokenizer), 0, 0
    removed: list[dict[str, Any]] = []

    def batches() -> Iterator[list[list[int]]]:
        nonlocal empty, seen
        for batch in batched(read_texts(part.path, part.field), DOCUMENTS_PER_BATCH):
            leaks = leaks_of(batch, seen, index) if part.clean and index else {}
            removed.extend(leaks.values())
            clean = [text for number, text in enumerate(batch) if number not in leaks]
            kept = [text for text in clean if text.strip()]
            empty, seen = empty + len(clean) - len(kept), seen + len(batch)
            if kept:
                yield encode_documents(tokenizer, kept)

    documents, tokens = write_tokens(part.base, batches(), token_type(len(tokenizer)))
    facts: dict[str, Any] = {"documents": documents, "tokens": tokens, "empty": empty}
    write_json(part.base.with_suffix(".json"), facts | ({REMOVED: removed} if part.clean else {}))


def tokenise_all(parts: list[Part], processes: int, label: str, index: BenchmarkIndex | None) -> None:
    """Tokenise the parts in so many processes, or a single one in so many threads of the tokenizer."""
    alone = processes == 1 or len(parts) == 1
    os.environ |= {"TOKENIZERS_PARALLELISM": str(alone).lower(), "RAYON_NUM_THREADS": str(processes)}
    with Progress(label, len(parts), unit="file") as progress:
        for _ in map_forked(partial(tokenise, index=index), parts, 1 if alone else processes):
            progress.update()


def put_together(folder: Path, name: str, parts: list[Part]) -> dict[str, Any]:
    """Link the token files of a source's parts into a mixture's `folder`; returns what `tokens.json` says of
    them. Files without a document are left out.
    """
    found = [json.loads(part.base.with_suffix(".json").read_text()) for part in parts]
    kept = [(part.base, facts) for part, facts in zip(parts, found, strict=True) if facts["documents"]]
    part_path(folder, name, 0).parent.mkdir(parents=True)
    for number, (base, _) in enumerate(kept):
        for suffix in (".bin", ".idx"):
            os.link(base.with_suffix(suffix), part_path(folder, name, number).with_suffix(suffix))
    sums = {what: sum(facts[what] for facts in found) for what in COUNTED}
    if parts and parts[0].clean:
        with (folder / "removals.jsonl").open("a") as log:
            for part, facts in zip(parts, found, strict=True):
                for row in facts[REMOVED]:
                    line = {"source": name, "file": Path(part.path).name} | row
                    log.write(json.dumps(line, ensure_ascii=False) + "\n")
        sums[REMOVED] = sum(len(facts[REMOVED]) for facts in found)
    return sums | {"parts": [{what: facts[what] for what in ("documents", "tokens")} for _, facts in kept]}


def run(stage: Stage[MixtureNode]) -> Counts:
    """Write the token files of all sources; returns documents, tokens and empty documents of each."""
    source = stage.source("tokenizer")
    tokenizer = load_tokenizer(source)
    parts = {name: parts_of(stage, source, name) for name in stage.config.sources}
    everything = [part for group in parts.values() for part in group]
    clean = any(part.clean for part in everything)
    known = DecontaminateSection.model_validate(DECONTAMINATION | {"fields": stage.config.fields})
    index = build_index(stage.inputs, known) if clean else None
    if index is not None and not len(index):
        raise InputError(f"{stage.instance}: no benchmark to leave out; use --input benchmark.NAME=FILE")
    tokenise_all(everything, int(stage.launch.get("threads", 1)), f"tokens {stage.instance}", index)
    sources: dict[str, dict[str, Any]] = {}
    for name, group in parts.items():
        facts = put_together(stage.partial, name, group)
        if not facts["documents"]:
            paths = ", ".join(part.path for part in group)
            raise InputError(f"{stage.instance}: source {name!r} has no document ({paths})")
        sources[name] = facts | {"share": stage.config.sources[name].share}
    facts = {"vocabulary": len(tokenizer), "dtype": token_type(len(tokenizer)), "sources": sources}
    write_json(stage.partial / "tokens.json", facts)
    tokenizer.save_pretrained(stage.partial / "tokenizer")
    counts = {
        f"{what}.{name}": facts[what]
        for name, facts in sources.items()
        for what in (*COUNTED, REMOVED)
        if what in facts
    }
    return counts | {"vocabulary": len(tokenizer)}


if __name__ == "__main__":
    run_stage("tokens", MixtureNode, run)
