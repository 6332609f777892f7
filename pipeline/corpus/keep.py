"""Gather the kept pages of a part of the pool: `keep-<number>` has the shards of `rank-<number>`.

Writes `kept.parquet`, best first, from what `order` wrote for all ranges of scores.
"""

from pathlib import Path

from pipeline.config.corpus import CorpusSection
from pipeline.corpus.convergence import KEPT, converged_before
from pipeline.crawl.signed import number_of
from pipeline.data.database import database, parquet, save
from pipeline.protocol.stage import Counts, Stage, run_stage


def run(stage: Stage[CorpusSection]) -> Counts:
    """Write the kept pages of a part; returns their number."""
    if converged_before(stage):
        return {"converged": 1}
    number = number_of(stage, stage.config.select_jobs)
    ordered = parquet(*(Path(path) / "kept.parquet" for path in stage.inputs["order"]))
    with database(stage.work / "join", stage.launch) as joins:
        own = joins.execute(
            f"SELECT * EXCLUDE (source) FROM {ordered} WHERE source = $number ORDER BY rank",
            {"number": number},
        )
        return {"pages": save(stage.partial / "kept.parquet", own, KEPT)}


if __name__ == "__main__":
    run_stage("corpus", CorpusSection, run)
