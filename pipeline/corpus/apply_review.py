"""Add pages under newly reviewed prefixes to the seed and negative lists before a classifier is trained
(paper section 2.1, step 4).

`corpus.annotations` names a file for each round; iteration n reads the first n. Selection learns from the
rounds that its own iteration reads. The file that is new in an iteration was written after the iteration
before, so it is applied to that one's scores, whose results stay as they are.
"""

from itertools import chain
from pathlib import Path

from pipeline.config.corpus import CorpusSection
from pipeline.corpus.blocklists import files_of
from pipeline.corpus.candidates import add_pages, unmatched
from pipeline.corpus.domains import add_mathematical, growth, learn
from pipeline.corpus.url_lists import GROWN, Survivors, current_urls, write_urls
from pipeline.data.database import database, parquet
from pipeline.protocol.stage import Stage


def apply_review(stage: Stage[CorpusSection], survivors: Survivors) -> dict[str, int]:
    """Write the lists of the previous iteration with what the annotations add to them; returns the number of
    URLs added to each.
    """
    lists = {name: current_urls(stage, name) for name in GROWN}
    known = survivors.keys(chain(*lists.values()))
    scores = [Path(path) / "scores.parquet" for path in stage.inputs["previous_score"]]
    annotations, previous = [Path(path) for path in stage.inputs["annotations"]], stage.input("previous")
    with database(stage.work / "join", stage.launch) as joins:
        add_pages(joins, scores, annotations, current_urls(stage, "opt_out"), files_of(stage))
        joins.execute(f"CREATE VIEW kept AS SELECT * FROM {parquet(previous / 'kept.parquet')}")
        domains = f"SELECT domain, share FROM {parquet(previous / 'domains.parquet')} WHERE math"
        add_mathematical(joins, joins.execute(domains).fetchall())
        learn(joins, stage.config)
        unmatched(joins)
        grown = growth(joins, known)
    survivors.keys([*grown.seed, *grown.not_math])  # all at once
    added = dict(zip(GROWN, (grown.seed, grown.not_math), strict=True))
    for name, urls in lists.items():
        write_urls(stage.partial, name, [*urls, *added[name]])
    return {name: len(urls) for name, urls in added.items()}
