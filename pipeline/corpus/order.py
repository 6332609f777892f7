"""Rank the kept pages of a range of scores: `order-<number>` (paper section 2.1, step 2).

`cut` has divided the scores of the kept pages into ranges of about as many pages each, and says how many
pages are before each range. Writes `kept.parquet`: the kept pages of a range with their ranks, those of each
part of the pool (`source`) together, so that `keep` finds its own.
"""

from pathlib import Path

import pyarrow as pa

from pipeline.config.corpus import CorpusSection
from pipeline.corpus.candidates import RANKED
from pipeline.corpus.convergence import KEPT, converged_before, iteration_of, read_notes
from pipeline.corpus.cut import CUT, NOTES, between, is_kept
from pipeline.crawl.signed import number_of
from pipeline.data.database import database, parquet, save
from pipeline.protocol.stage import Counts, Stage, run_stage

GROUP = 8192
ORDERED = pa.schema([("source", pa.int32()), *KEPT])
RANGE = """
SELECT source, id, url, host, shard, score, $first + row_number() OVER () AS rank, tokens,
    coalesce(before, $iteration) AS iteration
FROM (SELECT * FROM {pages} WHERE {kept} AND {between} {ranked})
ORDER BY source, rank
"""


def run(stage: Stage[CorpusSection]) -> Counts:
    """Rank the kept pages of a range; returns their number."""
    if converged_before(stage):
        return {"converged": 1}
    notes = read_notes(stage.input("cut") / CUT, *NOTES)
    own = number_of(stage, stage.config.select_jobs)
    beyond = own >= len(notes["ranges"])  # fewer ranges than jobs: nothing is left for this one
    above, least, first = (None, 0.0, 0) if beyond else notes["ranges"][own]
    query = RANGE.format(
        pages=parquet(*(Path(path) / "pages.parquet" for path in stage.inputs["rank"])),
        kept="false" if beyond else is_kept(notes["cuts"]),
        between=between(least, above),
        ranked=RANKED,
    )
    with database(stage.work / "join", stage.launch) as joins:
        found = joins.execute(query, {"first": first, "iteration": iteration_of(stage)})
        return {"pages": save(stage.partial / "kept.parquet", found, ORDERED, GROUP)}


if __name__ == "__main__":
    run_stage("corpus", CorpusSection, run)
