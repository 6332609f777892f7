"""Tokenise a mixture's sources into memory-mapped files (paper section 2.3: what continued pre-training
reads).

Inputs: `tokenizer` (folder; absent where the mixture names another), `source.<name>` (files, folders of
shards, hub ids). Output: `<name>.bin` and `<name>.idx` per source, `tokens.json`, and the tokenizer, which a
model from scratch inherits.
"""

import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

from pipeline.common.chat import encode_documents
from pipeline.common.manifest import write_json
from pipeline.common.model import load_tokenizer
from pipeline.common.progress import Progress
from pipeline.common.stage import Counts, InputError, Stage, run_stage
from pipeline.config.tokens import MixtureNode
from pipeline.tokens.files import token_type, write_tokens
from pipeline.tokens.texts import read_texts

DOCUMENTS_PER_BATCH = 512


def tokenised(tokenizer: Any, paths: list[str], field: str, label: str) -> Iterator[list[list[int]]]:
    """Batches of documents as token ids; empty documents are left out."""
    texts = (text for path in paths for text in read_texts(path, field) if text)
    with Progress(label, None, unit="document") as progress:
        while batch := list(islice(texts, DOCUMENTS_PER_BATCH)):
            yield encode_documents(tokenizer, batch)
            progress.update(len(batch))


def run(stage: Stage[MixtureNode]) -> Counts:
    """Write one token file per source; returns documents and tokens of each."""
    threads = int(stage.launch.get("threads", 1))
    os.environ |= {"TOKENIZERS_PARALLELISM": str(threads > 1).lower(), "RAYON_NUM_THREADS": str(threads)}
    own = stage.config.tokenizer == "corpus"
    tokenizer = load_tokenizer(stage.input("tokenizer") if own else stage.config.tokenizer)
    dtype = token_type(len(tokenizer))
    sources: dict[str, dict[str, int | float]] = {}
    for name, source in stage.config.sources.items():
        paths = stage.inputs.get(f"source.{name}", [])
        batches = tokenised(tokenizer, paths, source.text, f"tokens {stage.instance}/{name}")
        documents, tokens = write_tokens(stage.partial / name, batches, dtype)
        if not documents:
            raise InputError(f"{stage.instance}: source {name!r} has no document ({', '.join(paths)})")
        sources[name] = {"documents": documents, "tokens": tokens, "share": source.share}
    facts = {"vocabulary": len(tokenizer), "dtype": dtype, "sources": sources}
    write_json(stage.partial / "tokens.json", facts)
    tokenizer.save_pretrained(stage.partial / "tokenizer")
    return {
        f"{what}.{name}": facts[what] for name, facts in sources.items() for what in ("documents", "tokens")
    } | {"vocabulary": len(tokenizer)}


if __name__ == "__main__":
    run_stage("tokens", MixtureNode, run)
