"""Score a shard of the pool (paper section 2.1, step 2): every page gets its log-odds of being mathematical.

With `corpus.second_stage` the best pages are judged again. No page is dropped here. `tie`, a hash of the
page's id, orders pages of equal score the same way in every run; `key`, the normalised URL, tells its
domains.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from hashlib import blake2b
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
from datatrove.data import Document

from pipeline.config.corpus import CorpusSection
from pipeline.corpus.classifier import load
from pipeline.corpus.convergence import converged_before, pass_through, read_notes
from pipeline.corpus.cut import LANGUAGE
from pipeline.corpus.normalise import normalise
from pipeline.corpus.scorer import PageScorer
from pipeline.corpus.second_stage import FIRST, TwoStages, embeddings_of, load_second
from pipeline.corpus.tokens import Ratio
from pipeline.crawl.urls import normalise_url
from pipeline.data.shards import read_documents, write_table
from pipeline.protocol.progress import Progress
from pipeline.protocol.stage import Counts, Stage, run_stage

PART = 256  # pages that go to a worker at once
SCORER: PageScorer | TwoStages  # of this process and, whatever the model's size, of those forked from it
RATIO: Ratio | None = None  # likewise
SCORES = pa.schema(
    [
        ("id", pa.string()),
        ("url", pa.string()),
        ("host", pa.string()),
        ("shard", pa.string()),
        ("score", pa.float64()),
        ("tie", pa.uint64()),
        ("tokens", pa.int64()),
        ("key", pa.string()),
    ]
)


def scored(documents: list[Document]) -> list[tuple[float, float | None, int]]:
    """(score, score of the first of two stages, tokens) of each document, by `SCORER` and `RATIO`; without
    `RATIO` the number of words stands for the tokens.
    """
    found = []
    for document in documents:
        text = normalise(document.text)
        words = text.count(" ") + 1 if text else 0
        tokens = words if RATIO is None else RATIO(document.text)
        score = SCORER(text)
        found.append((*score, tokens) if isinstance(score, tuple) else (score, None, tokens))
    return found


def groups(shard: Path, size: int) -> Iterator[list[Document]]:
    documents = read_documents(shard)
    while group := list(islice(documents, size)):
        yield group


def rows(shard: Path, label: str, workers: int) -> Iterator[dict[str, Any]]:
    """One row a page, in the shard's order; `workers` forked processes work on parts of each group. Columns
    that a table lacks are left out when it is written.
    """
    with (
        Progress(label, None, unit="page") as bar,
        ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool,
    ):
        for group in groups(shard, PART * workers):
            parts = [group[start : start + PART] for start in range(0, len(group), PART)]
            results = chain.from_iterable(pool.map(scored, parts) if workers > 1 else map(scored, parts))
            for document, (score, first, tokens) in zip(group, results, strict=True):
                yield {
                    "id": document.id,
                    "url": document.metadata["url"],
                    "host": document.metadata["host"],
                    "shard": shard.name,
                    "score": score,
                    "tie": int.from_bytes(blake2b(document.id.encode(), digest_size=8).digest(), "big"),
                    "tokens": tokens,
                    "key": normalise_url(document.metadata["url"]),
                    "first": first,
                    "language": document.metadata.get("language"),
                }
            bar.update(len(group))


def run(stage: Stage[CorpusSection]) -> Counts:
    """Write `scores.parquet`."""
    if converged_before(stage):
        pass_through(stage.input("previous_score"), stage.partial, ["scores.parquet"])
        return {"converged": 1}
    global SCORER, RATIO
    first, schema = PageScorer(load(stage.input("train"))), SCORES
    SCORER = first
    if stage.config.second_stage.enabled:
        embeddings = embeddings_of(stage.inputs)
        SCORER = load_second(stage.input("train"), first, stage.config.second_stage, embeddings)
        schema = schema.append(FIRST)
    if stage.config.cut_language_pages:
        schema = schema.append(LANGUAGE)
    measured = read_notes(stage.input("train") / "train.json").get("tokens")
    RATIO = Ratio(**measured) if measured else None
    pages = rows(stage.input("shard"), f"corpus {stage.instance}", stage.launch.get("threads", 1))
    count = write_table(stage.partial / "scores.parquet", pages, schema)
    stage.counter("fasttext.scored_pages", count)
    return {"pages": count}


if __name__ == "__main__":
    run_stage("corpus", CorpusSection, run)
