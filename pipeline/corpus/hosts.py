"""Judge the domains of a part of the hosts: `hosts-<number>` (paper section 2.1, steps 3 and 4).

A domain lies in one part, so `domains.py` and `review_queue.py` say of a part what they would say of all.
Writes `domains.parquet`, the domains with a kept page; `learnt.parquet`, what reviewed prefixes teach;
`review.parquet`, the prefixes that nobody has reviewed, and `queue.parquet`, their pages; `hosts.json`.
"""

from pathlib import Path

from pipeline.config.corpus import CorpusSection
from pipeline.corpus.convergence import converged_before, read_notes
from pipeline.corpus.cut import CUT, NOTES, is_kept
from pipeline.corpus.domains import DOMAINS, LEARNT, judge, learn
from pipeline.corpus.review_queue import REVIEW, review_queue, save_queue
from pipeline.crawl.annotations import MACROS
from pipeline.crawl.signed import number_of
from pipeline.data.database import Database, database, parquet, save
from pipeline.data.shards import write_table
from pipeline.protocol.manifest import write_json
from pipeline.protocol.stage import Counts, Stage, run_stage

# The tables that `candidates.py` makes of all pages, and `kept`.
TABLES = """
CREATE VIEW part AS SELECT * FROM {pages} WHERE part = {number};
CREATE VIEW pages AS SELECT id, url, host, shard, key, score, tie, tokens FROM part;
CREATE VIEW candidates AS SELECT * FROM part WHERE reason IS NULL;
CREATE TABLE excluded AS SELECT id, reason FROM part WHERE reason IS NOT NULL;
CREATE TABLE reviewed AS SELECT id, prefix, verdict FROM part WHERE prefix IS NOT NULL;
CREATE TABLE kept AS SELECT id, host, key FROM part WHERE {kept};
"""
NEW_HOSTS = """
SELECT count(DISTINCT host) FROM kept WHERE host NOT IN (SELECT host FROM part WHERE before IS NOT NULL)
"""


def add_tables(joins: Database, ranks: list[Path], number: int, kept: str) -> None:
    """Create the tables of a part's pages from what all `rank` jobs wrote; `kept`: SQL, which are kept."""
    pages = parquet(*(path / "pages.parquet" for path in ranks))
    joins.execute(f"{MACROS}; {TABLES.format(pages=pages, number=number, kept=kept)}")


def run(stage: Stage[CorpusSection]) -> Counts:
    """Judge a part's domains; returns the numbers of domains and of prefixes to review."""
    if converged_before(stage):
        return {"converged": 1}
    notes = read_notes(stage.input("cut") / CUT, *NOTES)
    number = number_of(stage, stage.config.select_jobs)
    with database(stage.work / "join", stage.launch) as joins:
        add_tables(joins, list(map(Path, stage.inputs["rank"])), number, is_kept(notes["cuts"]))
        domains = judge(joins, stage.config)
        write_table(stage.partial / "domains.parquet", (domain.row() for domain in domains), DOMAINS)
        learn(joins, stage.config)
        save(stage.partial / "learnt.parquet", joins.execute("SELECT * FROM learnt ORDER BY url"), LEARNT)
        queue = review_queue(joins, stage.config)
        write_table(stage.partial / "review.parquet", queue, REVIEW)
        save_queue(stage.partial / "queue.parquet", joins)
        ((new,),) = joins.execute(NEW_HOSTS).fetchall()
    write_json(stage.partial / "hosts.json", {"new_hosts": new})
    return {"domains": len(domains), "prefixes": len(queue)}


if __name__ == "__main__":
    run_stage("corpus", CorpusSection, run)
