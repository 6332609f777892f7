"""Measure how well a model predicts documents: bits per byte of each. The paper has no such measure.

Inputs: `model` (folder or hub id), `documents` (rows with `id` and `text`). Output: `documents.jsonl`, rows
{id, bytes, tokens, bits}. A document stands alone behind BOS, as in pre-training (EOS where the tokenizer has
no BOS), and its end is not counted. One process; weights in fp32. Shape suffixes: B = 1 document, T tokens.
"""

import pipeline.training.environment  # noqa: F401  # isort: skip  # before torch

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from pipeline.config.likelihood import FILE, LikelihoodSection
from pipeline.data.rows import read_rows, write_lines
from pipeline.protocol.progress import Progress
from pipeline.protocol.stage import Counts, InputError, Stage, label, run_stage
from pipeline.training.chat import encode
from pipeline.training.model import TokenLogprobs, context_length, load_model
from pipeline.training.tokenizer import load_tokenizer


@dataclass(frozen=True)
class Text:
    """A document, its name, and the place of its row for messages."""

    id: str
    text: str
    place: str


def load_documents(sources: list[str]) -> list[Text]:
    """Read the documents of all files. Raises InputError for a row without text or an `id` used twice."""
    found: dict[str, Text] = {}
    for place, row in (pair for source in sources for pair in read_rows(source)):
        name, text = row.get("id"), row.get("text")
        if not isinstance(name, str) or not isinstance(text, str) or not text.strip():
            raise InputError(f"{place}: a document needs an `id` and a `text`, both texts")
        if name in found:
            raise InputError(f"{place}: `id` {name!r} stands twice, first in {found[name].place}")
        found[name] = Text(name, text, place)
    if not found:
        raise InputError(f"{', '.join(sources)}: no documents to measure")
    return list(found.values())


def predict(source: str, documents: list[Text]) -> Iterator[dict[str, Any]]:
    """Yield a row for each document. Raises InputError for one that is longer than the model's context."""
    tokenizer, longest = load_tokenizer(source), context_length(source)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = TokenLogprobs(load_model(source)).eval().to(device)
    start = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    for document, ids in zip(documents, encode(tokenizer, [one.text for one in documents]), strict=True):
        if len(ids) > longest:
            raise InputError(f"{document.place}: {len(ids):,} tokens; {source} was made for {longest:,}")
        tokens_BT, targets_BT = (torch.tensor([row], device=device) for row in ([start, *ids[:-1]], ids))
        positions_BT = torch.arange(len(ids), device=device)[None]
        with torch.inference_mode():
            logprobs_BT = model(tokens_BT, positions_BT, targets_BT)
        bits = -float(logprobs_BT.double().sum()) / math.log(2)
        yield {"id": document.id, "bytes": len(document.text.encode()), "tokens": len(ids), "bits": bits}


def run(stage: Stage[LikelihoodSection]) -> Counts:
    """Write the rows; returns numbers of documents, bytes and tokens, and the bits per byte of all."""
    torch.set_num_threads(int(stage.launch.get("threads", 1)))
    documents, rows = load_documents(stage.inputs.get("documents", [])), []
    with Progress(label(stage), len(documents), unit="document") as bar:
        for row in predict(stage.source("model"), documents):
            rows.append(row)
            bar.update()
    write_lines(stage.partial / FILE, rows)
    total = {name: sum(row[name] for row in rows) for name in ("bytes", "tokens", "bits")}
    per_byte = round(total["bits"] / total["bytes"], 4)
    return {
        "documents": len(rows),
        **{name: total[name] for name in ("bytes", "tokens")},
        "bits_per_byte": per_byte,
    }


if __name__ == "__main__":
    run_stage("likelihood", LikelihoodSection, run)
