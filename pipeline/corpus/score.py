"""Score a shard of the pool (paper section 2.1, step 2): every page gets its log-odds of being mathematical.

fastText's probabilities saturate; their log-odds rank further, and a hash of the page's id breaks ties.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.common.progress import Progress
from pipeline.common.shards import read_documents, write_table
from pipeline.common.stage import Counts, Stage, run_stage
from pipeline.config.corpus import CorpusSection
from pipeline.corpus.normalise import normalise
from pipeline.corpus.passing import converged_before, pass_through

SCORES = pa.schema(
    [
        ("id", pa.string()),
        ("url", pa.string()),
        ("host", pa.string()),
        ("score", pa.float64()),
        ("tokens", pa.int64()),
    ]
)
SMALLEST = 1e-9  # fastText's own floor of a probability is about 1e-5


def log_odds(labels: tuple[str, ...], probabilities: Any) -> float:
    """log p(math) - log p(other), finite."""
    found = dict(zip(labels, (float(value) for value in probabilities), strict=True))
    math_, other = (max(found.get(f"__label__{name}", 0.0), SMALLEST) for name in ("math", "other"))
    return math.log(math_) - math.log(other)


def rows(model: Any, shard: Path, label: str) -> Iterator[dict[str, Any]]:
    """One row a page, in the shard's order."""
    with Progress(label, None, unit="page") as bar:
        for document in read_documents(shard):
            text = normalise(document.text)
            labels, probabilities = model.predict(text, k=2)
            yield {
                "id": document.id,
                "url": document.metadata["url"],
                "host": document.metadata["host"],
                "score": log_odds(labels, probabilities),
                "tokens": text.count(" ") + 1,
            }
            bar.update(1)


def run(stage: Stage[CorpusSection]) -> Counts:
    """Write `scores.parquet`."""
    if converged_before(stage):
        pass_through(stage.input("previous_score"), stage.partial, ["scores.parquet"])
        return {"converged": 1}
    import fasttext

    model = fasttext.load_model(str(stage.input("train") / "classifier.bin"))
    pages = rows(model, stage.input("shard"), f"corpus {stage.instance}")
    count = write_table(stage.partial / "scores.parquet", pages, SCORES)
    stage.counter("fasttext.scored_pages", count)
    return {"pages": count}


if __name__ == "__main__":
    run_stage("corpus", CorpusSection, run)
