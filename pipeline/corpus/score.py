"""Score a shard of the pool (paper section 2.1, step 2): every page gets its log-odds of being mathematical.

No page is dropped here. `tie`, a hash of the page's id, orders pages of equal score the same way in every
run; `key`, the normalised URL, tells its domain.
"""

from collections.abc import Iterator
from functools import partial
from hashlib import blake2b
from typing import Any

import pyarrow as pa
from datatrove.data import Document

from pipeline.config.corpus import CorpusSection
from pipeline.core.data.rows import batched
from pipeline.core.data.shards import read_documents, table_schema, write_table
from pipeline.core.data.workers import map_forked
from pipeline.core.progress import Progress
from pipeline.core.stage import Counts, Stage, run_stage
from pipeline.corpus.classifier import PageScorer, load
from pipeline.corpus.convergence import converged_before, pass_through, read_notes
from pipeline.corpus.normalise import normalise
from pipeline.corpus.tokens import Ratio
from pipeline.crawl.urls import normalise_url

PART = 256  # pages that go to a worker at once
SCORES = table_schema(id=str, url=str, host=str, shard=str, score=float, tie=pa.uint64(), tokens=int, key=str)


def score_pages(
    documents: list[Document], shard: str, scorer: PageScorer, ratio: Ratio | None
) -> list[dict[str, Any]]:
    """Return one row a page of a shard. Without a measured `ratio` the number of words stands for the
    tokens.
    """
    rows = []
    for document in documents:
        text, url = normalise(document.text), document.metadata["url"]
        words = text.count(" ") + 1 if text else 0
        row = {
            "id": document.id,
            "url": url,
            "host": document.metadata["host"],
            "shard": shard,
            "score": scorer(text),
            "tie": int.from_bytes(blake2b(document.id.encode(), digest_size=8).digest(), "big"),
            "tokens": words if ratio is None else ratio(document.text),
            "key": normalise_url(url),
        }
        rows.append(row)
    return rows


def run(stage: Stage[CorpusSection]) -> Counts:
    """Write `scores.parquet`."""
    if converged_before(stage):
        pass_through(stage.input("previous_score"), stage.partial, ["scores.parquet"])
        return {"converged": 1}
    scorer = PageScorer(load(stage.input("train")))
    measured = read_notes(stage.input("train") / "train.json").get("tokens")
    shard, ratio = stage.input("shard"), Ratio(**measured) if measured else None
    by_part = partial(score_pages, shard=shard.name, scorer=scorer, ratio=ratio)

    def rows() -> Iterator[dict[str, Any]]:
        parts = batched(read_documents(shard), PART)
        for part in map_forked(by_part, parts, stage.launch.get("threads", 1)):
            yield from part
            bar.update(len(part))

    with Progress(f"corpus {stage.instance}", None, unit="page") as bar:
        count = write_table(stage.partial / "scores.parquet", rows(), SCORES)
    stage.counter("fasttext.scored_pages", count)
    return {"pages": count}


if __name__ == "__main__":
    run_stage("corpus", CorpusSection, run)
