"""Score a shard of the pool (paper section 2.1, step 2): every page gets its log-odds of being mathematical.

No page is dropped here. `tie` is a hash of the page's id: it orders pages of equal score, the same way in
every run.
"""

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.common.progress import Progress
from pipeline.common.shards import read_documents, write_table
from pipeline.common.stage import Counts, Stage, run_stage
from pipeline.config.corpus import CorpusSection
from pipeline.corpus.classifier import Scorer
from pipeline.corpus.normalise import normalise
from pipeline.corpus.passing import converged_before, pass_through

SCORES = pa.schema(
    [
        ("id", pa.string()),
        ("url", pa.string()),
        ("host", pa.string()),
        ("shard", pa.string()),
        ("score", pa.float64()),
        ("tie", pa.uint64()),
        ("tokens", pa.int64()),
    ]
)


def rows(score: Scorer, shard: Path, label: str) -> Iterator[dict[str, Any]]:
    """One row a page, in the shard's order."""
    with Progress(label, None, unit="page") as bar:
        for document in read_documents(shard):
            text = normalise(document.text)
            yield {
                "id": document.id,
                "url": document.metadata["url"],
                "host": document.metadata["host"],
                "shard": shard.name,
                "score": score(text),
                "tie": int.from_bytes(blake2b(document.id.encode(), digest_size=8).digest(), "big"),
                "tokens": text.count(" ") + 1 if text else 0,
            }
            bar.update(1)


def run(stage: Stage[CorpusSection]) -> Counts:
    """Write `scores.parquet`."""
    if converged_before(stage):
        pass_through(stage.input("previous_score"), stage.partial, ["scores.parquet"])
        return {"converged": 1}
    import fasttext

    score = Scorer(fasttext.load_model(str(stage.input("train") / "classifier.bin")))
    pages = rows(score, stage.input("shard"), f"corpus {stage.instance}")
    count = write_table(stage.partial / "scores.parquet", pages, SCORES)
    stage.counter("fasttext.scored_pages", count)
    return {"pages": count}


if __name__ == "__main__":
    run_stage("corpus", CorpusSection, run)
