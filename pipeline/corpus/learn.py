"""What a new round of review teaches, of a part of the pool: `learn-<number>` (paper section 2.1, step 4).

Inputs: `previous`, the selection of the previous iteration, `kept`, its table for the part, and
`previous_score`, the scores of the shards of the part; `new_round`, the file of the round, `annotations` (all
rounds so far), `opt_out`, `blocklists`. Writes `learnt.parquet`, the pages that reviewed prefixes of
mathematical domains teach, and `prefixes.parquet`, which reviewed prefixes have pages here. `listed` looks up
their URLs, and `wanted` adds those that are not listed yet to the lists.
"""

from pipeline.config.corpus import CorpusSection
from pipeline.corpus.domains import LEARNT
from pipeline.corpus.rank import PREFIXES
from pipeline.corpus.rounds import learnt_pages
from pipeline.data.database import database, save
from pipeline.protocol.stage import Counts, Stage, run_stage


def run(stage: Stage[CorpusSection]) -> Counts:
    """Write what the annotations teach; returns the number of pages."""
    with database(stage.work / "join", stage.launch) as joins:
        matched = learnt_pages(joins, stage, [stage.input("kept")])
        save(stage.partial / "prefixes.parquet", joins.execute(matched), PREFIXES)
        pages = joins.execute("SELECT * FROM learnt ORDER BY url")
        return {"pages": save(stage.partial / "learnt.parquet", pages, LEARNT)}


if __name__ == "__main__":
    run_stage("corpus", CorpusSection, run)
