"""A new round of review: what its verdicts teach before the next classifier is trained (paper section 2.1,
step 4).

`corpus.annotations` names a file for each round; iteration n reads the first n. Selection learns from the
rounds that its own iteration reads. The file that is new in an iteration was written after the iteration
before, so it is applied to that one's ranking, whose results stay as they are. Of a large pool jobs of
`learn` have done that before, each for a part.
"""

from itertools import chain
from pathlib import Path

from pipeline.config.corpus import CorpusSection
from pipeline.corpus.blocklists import files_of
from pipeline.corpus.candidates import add_pages, matched, unmatched
from pipeline.corpus.domains import add_mathematical, growth, learn
from pipeline.corpus.lists import GROWN, Survivors, current_urls, write_urls
from pipeline.data.database import Database, database, parquet
from pipeline.data.shards import tables
from pipeline.protocol.stage import Stage


def learnt_pages(joins: Database, stage: Stage[CorpusSection], kept: list[Path]) -> str:
    """Create `learnt`: the scored pages that the annotations teach; returns SQL, the reviewed prefixes and
    what has pages. `kept`: tables of those that the previous iteration kept.
    """
    scores = [Path(path) / "scores.parquet" for path in stage.inputs["previous_score"]]
    annotations = [Path(path) for path in stage.inputs["annotations"]]
    add_pages(joins, scores, annotations, current_urls(stage, "opt_out"), files_of(stage))
    joins.execute(f"CREATE VIEW kept AS SELECT * FROM {parquet(*kept)}")
    domains = parquet(stage.input("previous") / "domains.parquet")
    add_mathematical(joins, joins.execute(f"SELECT domain, share FROM {domains} WHERE math").fetchall())
    learn(joins, stage.config)
    return matched(joins)


def learn_round(stage: Stage[CorpusSection], survivors: Survivors) -> dict[str, int]:
    """Write the lists of the previous iteration with what the annotations add to them; returns the number of
    URLs added to each.
    """
    parts = list(map(Path, stage.inputs.get("learn", [])))
    lists = {name: current_urls(stage, name) for name in GROWN}
    known = survivors.keys(chain(*lists.values()))
    with database(stage.work / "join", stage.launch) as joins:
        if parts:
            found = parquet(*(part / "learnt.parquet" for part in parts))
            joins.execute(f"CREATE VIEW learnt AS SELECT * FROM {found}")
            unmatched(joins, parquet(*(part / "prefixes.parquet" for part in parts)))
        else:
            kept = tables(stage.input("previous"), "kept")
            unmatched(joins, f"({learnt_pages(joins, stage, kept)})")
        grown = growth(joins, known)
    survivors.keys([*grown.seed, *grown.not_math])  # all at once
    added = dict(zip(GROWN, (grown.seed, grown.not_math), strict=True))
    for name, urls in lists.items():
        write_urls(stage.partial, name, [*urls, *added[name]])
    return {name: len(urls) for name, urls in added.items()}
