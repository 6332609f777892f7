"""Tokenise a mixture's sources into memory-mapped files for continued pre-training (paper section 2.3).

Inputs: `tokenizer` (folder; absent if the mixture names another), `source.<name>` (files, folders of shards,
hub ids). Output: `parts/<name>/` with a token file for each file of a source, `tokens.json`, which lists
them, and the tokenizer, which a model from scratch inherits. Files are tokenised in parallel, one process
each; a resumed run skips finished files.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pipeline.config.tokens import MixtureNode
from pipeline.data.rows import files_of
from pipeline.data.workers import map_forked
from pipeline.protocol.manifest import fingerprint, write_json
from pipeline.protocol.progress import Progress
from pipeline.protocol.stage import Counts, InputError, Stage, run_stage
from pipeline.tokens.files import part_path, token_type, write_tokens
from pipeline.tokens.texts import read_texts
from pipeline.training.chat import encode_documents
from pipeline.training.tokenizer import load_tokenizer

DOCUMENTS_PER_BATCH = 512
COUNTED = ("documents", "tokens", "empty")


@dataclass(frozen=True)
class Part:
    """A file of a source and its outputs: `<base>.bin`, `<base>.idx`, and when done `<base>.json`."""

    path: str
    field: str
    tokenizer: str
    base: Path


def parts_of(stage: Stage[MixtureNode], tokenizer: str, name: str) -> list[Part]:
    """Return the files of a source. The name under `work` changes with the file, so stale tokens are never
    used.
    """
    parts = []
    for path in (file for source in stage.inputs.get(f"source.{name}", []) for file in files_of(source)):
        status = os.stat(path) if os.path.exists(path) else None
        identity = fingerprint([path, [status.st_size, status.st_mtime_ns] if status else None])
        base = stage.work / "parts" / name / f"{len(parts):06d}-{identity}"
        parts.append(Part(path, stage.config.sources[name].text, tokenizer, base))
    return parts


def tokenise(part: Part) -> None:
    """Write a part's token file; count the documents without text and leave them out."""
    if part.base.with_suffix(".json").exists():
        return
    part.base.parent.mkdir(parents=True, exist_ok=True)
    tokenizer, empty = load_tokenizer(part.tokenizer), 0

    def batches() -> Iterator[list[list[int]]]:
        nonlocal empty
        texts = read_texts(part.path, part.field)
        while batch := list(islice(texts, DOCUMENTS_PER_BATCH)):
            kept = [text for text in batch if text.strip()]
            empty += len(batch) - len(kept)
            if kept:
                yield encode_documents(tokenizer, kept)

    documents, tokens = write_tokens(part.base, batches(), token_type(len(tokenizer)))
    write_json(part.base.with_suffix(".json"), {"documents": documents, "tokens": tokens, "empty": empty})


def tokenise_all(parts: list[Part], processes: int, label: str) -> None:
    """Tokenise the parts in so many processes, or a single one in so many threads of the tokenizer."""
    alone = processes == 1 or len(parts) == 1
    os.environ |= {"TOKENIZERS_PARALLELISM": str(alone).lower(), "RAYON_NUM_THREADS": str(processes)}
    with Progress(label, len(parts), unit="file") as progress:
        for _ in map_forked(tokenise, parts, 1 if alone else processes):
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
    return sums | {"parts": [{what: facts[what] for what in ("documents", "tokens")} for _, facts in kept]}


def run(stage: Stage[MixtureNode]) -> Counts:
    """Write the token files of all sources; returns documents, tokens and empty documents of each."""
    own = stage.config.tokenizer == "corpus"
    source = str(stage.input("tokenizer")) if own else stage.config.tokenizer
    tokenizer = load_tokenizer(source)
    parts = {name: parts_of(stage, source, name) for name in stage.config.sources}
    everything = [part for group in parts.values() for part in group]
    tokenise_all(everything, int(stage.launch.get("threads", 1)), f"tokens {stage.instance}")
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
    counts = {f"{what}.{name}": facts[what] for name, facts in sources.items() for what in COUNTED}
    return counts | {"vocabulary": len(tokenizer)}


if __name__ == "__main__":
    run_stage("tokens", MixtureNode, run)
