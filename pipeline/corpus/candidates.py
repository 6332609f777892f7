"""All pages of the pool in rank order, and which of them may be kept.

A page is never kept, whatever its score, if its owner opted out or a reviewer found pages under its prefix
not to be mathematical.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.common.shards import write_table
from pipeline.common.stage import Stage
from pipeline.config.corpus import CorpusSection
from pipeline.corpus.annotations import Annotations, place
from pipeline.corpus.domains import PoolPage
from pipeline.corpus.lists import Survivors, read_urls
from pipeline.corpus.ranking import Ranking, rank

OPT_OUT, NOT_MATH = "opt_out", "not_math"
EXCLUDED = pa.schema([("id", pa.string()), ("url", pa.string()), ("reason", pa.string())])


def exclusion(url: str, opted_out: Annotations, annotations: Annotations) -> str | None:
    """Why a URL is never kept: `OPT_OUT`, whatever reviewers say, or `NOT_MATH`; None if it may be kept."""
    if opted_out.find(url):
        return OPT_OUT
    found = annotations.find(url)
    return NOT_MATH if found and found[1] == NOT_MATH else None


def rank_pool(stage: Stage[CorpusSection], survivors: Survivors, annotations: Annotations) -> Ranking:
    """All pages, with the columns `key` (of `Survivors`) and `excluded` (`exclusion`; null: a candidate)."""
    prefixes = read_urls(stage.input("opt_out")) if stage.inputs.get("opt_out") else []
    opted_out = Annotations({place(prefix): OPT_OUT for prefix in prefixes})

    def prepare(pages: pa.Table) -> pa.Table:
        urls = pages["url"].to_pylist()
        keys = pa.array(map(survivors.key, urls), pa.string())
        reasons = pa.array((exclusion(url, opted_out, annotations) for url in urls), pa.string())
        return pages.append_column("key", keys).append_column("excluded", reasons)

    scores = [Path(path) / "scores.parquet" for path in stage.inputs["score"]]
    return rank(scores, stage.work / "ranking", prepare)


def candidates(ranking: Ranking) -> Iterator[pa.RecordBatch]:
    """The pages that may be kept, in rank order."""
    return (batch.filter(pc.is_null(batch["excluded"])) for batch in ranking)


def top(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """The first `size` pages."""
    for batch in batches:
        if size <= 0:
            return
        yield batch.slice(0, size)
        size -= len(batch)


def pool_pages(ranking: Ranking, size: int) -> Iterator[PoolPage]:
    """All pages in rank order except those opted out; the first `size` candidates are kept."""
    position = 0
    for batch in ranking:
        columns = (batch[name].to_pylist() for name in ("url", "key", "excluded"))
        for url, key, reason in zip(*columns, strict=True):
            if reason != OPT_OUT:
                yield PoolPage(url, key, reason is None and position < size, reason == NOT_MATH)
            position += reason is None


def write_excluded(path: Path, ranking: Ranking) -> dict[str, int]:
    """Write the pages that are never kept; returns their number by reason."""
    counts: Counter[str] = Counter()

    def rows() -> Iterator[dict[str, Any]]:
        for batch in ranking:
            for row in batch.filter(pc.is_valid(batch["excluded"])).to_pylist():
                counts[row["excluded"]] += 1
                yield {"id": row["id"], "url": row["url"], "reason": row["excluded"]}

    write_table(path, rows(), EXCLUDED)
    return dict(sorted(counts.items()))
