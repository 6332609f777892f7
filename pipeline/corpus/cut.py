"""Where the ranking is cut: by a token budget as in the paper (section 2.1, step 2), or by score; and what
precision any cut promises, on which sample.

A histogram of the scores tells where a budget ends, and only the pages of the bin in which it ends are
sorted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from pipeline.config.corpus import CorpusSection
from pipeline.core.data.database import Database
from pipeline.core.data.shards import read_table
from pipeline.corpus.candidates import RANKED
from pipeline.intervals import share_interval

SAMPLE = "held-out pages of the training lists that are not mathematical"
# Scores in bins of 1/256. Of 0.0 and -0.0, which are equal, threads decide which one `min` returns: + 0.0
# makes both 0.0.
HISTOGRAM = """
SELECT count(*), sum(tokens)::BIGINT, min(score) + 0.0 FROM candidates
GROUP BY floor(greatest(-1e6, least(1e6, score)) * 256) ORDER BY 3 DESC
"""
ABOVE = """
SELECT min(score) FILTER (score >= $threshold) + 0.0, count(*), count(*) FILTER (score >= $threshold)
FROM candidates
"""
# The pages of one bin that fit into what is left of a token budget.
WITHIN = """
CREATE OR REPLACE TABLE within AS
SELECT score, tie, id
FROM (
    SELECT *, sum(tokens) OVER (ROWS UNBOUNDED PRECEDING) AS used
    FROM (
        SELECT score, tie, id, tokens FROM candidates
        WHERE {between} {ranked}))
WHERE used <= $left
"""
LAST = "SELECT score, tie, id FROM within ORDER BY score, tie DESC, id DESC LIMIT 1"


@dataclass(frozen=True)
class Bin:
    """Candidates with scores in one bin, the `least` score among them."""

    pages: int
    tokens: int
    least: float


@dataclass(frozen=True)
class Cut:
    """The score of the last page kept (None: nothing is), the number of candidates and of those kept. Of
    equal scores all are kept or, with `tie` and `id` of the last page kept, those up to it.
    """

    least: float | None
    pages: int
    kept: int
    tie: int | None = None
    id: str | None = None


def _sql(score: float) -> str:
    """Write a score in SQL, to the bit."""
    return f"'{score!r}'::DOUBLE"


def _between(least: float, above: float | None) -> str:
    """Write in SQL whether a score is at least the first and less than the other, if there is one."""
    return f"score >= {_sql(least)}" + ("" if above is None else f" AND score < {_sql(above)}")


def is_kept(cut: Cut) -> str:
    """Write in SQL whether a candidate stands at or before the last one that a cut keeps."""
    if cut.least is None:
        return "false"
    reaches, least = _between(cut.least, None), _sql(cut.least)
    if cut.id is None:
        return reaches
    name = cut.id.replace("'", "''")
    return f"{reaches} AND (score > {least} OR tie < {cut.tie} OR (tie = {cut.tie} AND id <= '{name}'))"


def bins_of(joins: Database) -> list[Bin]:
    """Count the candidates by score, best first."""
    return [Bin(*row) for row in joins.execute(HISTOGRAM).fetchall()]


def find_cut(joins: Database, config: CorpusSection, iteration: int) -> Cut:
    """Find the cut of an iteration (counted from 1)."""
    if config.cut == "tokens":
        budget = config.budget_tokens[min(iteration, len(config.budget_tokens)) - 1]
        return within_budget(joins, bins_of(joins), budget)
    ((least, pages, kept),) = joins.execute(ABOVE, {"threshold": config.threshold}).fetchall()
    return Cut(least, pages, kept)


def within_budget(joins: Database, bins: Sequence[Bin], left: int) -> Cut:
    """Find where the top candidates no longer fit into the tokens that are `left`. `bins`: best first."""
    number, size, above = sum(one.pages for one in bins), 0, None
    for one in bins:
        if one.tokens > left:
            joins.execute(WITHIN.format(between=_between(one.least, above), ranked=RANKED), {"left": left})
            ((more,),) = joins.execute("SELECT count(*) FROM within").fetchall()
            for score, tie, page in joins.execute(LAST).fetchall():
                return Cut(score, number, size + more, tie, page)
            break
        size, left, above = size + one.pages, left - one.tokens, one.least
    return Cut(above, number, size)


def promise(train: Path, cut: Cut) -> dict[str, Any] | None:
    """Estimate the precision of the kept pages: the share of held-out negatives that reach the last one's
    score is expected of the pool's other pages. With its 95 % interval over the negatives' hosts; None
    without held-out pages or without kept ones.

    The promise holds for a pool whose other pages are like the negatives, which no one can know.
    """
    if not cut.kept or not (train / "held_out.parquet").exists():
        return None
    table = read_table(train / "held_out.parquet", ["math", "score", "host"])
    other = table.filter(pc.invert(table["math"]))
    above, hosts = (other["score"].to_numpy() >= cut.least).tolist(), other["host"].to_pylist()

    def precision(share: float) -> float:  # p with: kept (1 - p) = share (pages - kept p)
        return (
            float(min(1.0, max(0.0, (1 - share * cut.pages / cut.kept) / (1 - share)))) if share < 1 else 0.0
        )

    low, high = map(precision, share_interval(above, hosts)[::-1])
    return {
        "precision": round(precision(sum(above) / len(above)), 6),
        "ci95": [round(low, 6), round(high, 6)],
        "pages": len(above),
        "hosts": len(set(hosts)),
        "sample": SAMPLE,
    }
