"""What listed URLs mean, by a part of the duplicates: `listed-<number>` (paper section 2.1, step 1).

A URL may be that of a copy, and then it means the page that stays. So the URLs that an iteration asks for are
looked up among all duplicates, each part of their table once; `wanted` puts together what the parts say.

Inputs: `duplicates`, the tables of the part; `seed_urls` (of the first iteration), `background_urls`,
`previous` (its grown lists), `out_of_distribution.<name>`; where a round of review is new, `new_round`, its
file, and `learn`, what it may add to the lists. Writes `duplicates.parquet`, the duplicates of listed URLs.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from pipeline.config.corpus import CorpusSection
from pipeline.corpus.convergence import converged_before
from pipeline.corpus.lists import LEARNT_FROM, Survivors, current_urls
from pipeline.corpus.out_of_distribution import urls_of
from pipeline.data.shards import read_table
from pipeline.protocol.stage import Counts, InputError, Stage, run_stage


def listed_urls(stage: Stage[CorpusSection]) -> Iterator[str]:
    """The URLs whose pages an iteration asks for, but those that a new round of review adds."""
    for name in LEARNT_FROM:
        yield from current_urls(stage, name)
    yield from urls_of(stage.inputs)


def looked_up(stage: Stage[CorpusSection]) -> Survivors:
    """What the listed URLs mean: all are looked up at once, because that reads all duplicates."""
    survivors = Survivors.of(stage)
    survivors.keys(listed_urls(stage))
    return survivors


def run(stage: Stage[CorpusSection]) -> Counts:
    """Write the duplicates of listed URLs in a part of the table; returns their number."""
    if converged_before(stage):
        return {"converged": 1}
    duplicates = list(map(Path, stage.inputs.get("duplicates", [])))
    if not duplicates:
        raise InputError("--input duplicates: none given")
    learnt = (Path(folder) / "learnt.parquet" for folder in stage.inputs.get("learn", []))
    added = (url for path in learnt for url in read_table(path, ["url"])["url"].to_pylist())
    survivors = Survivors(duplicates, stage.work, stage.launch)
    survivors.keys(chain(listed_urls(stage), added))
    return {"duplicates": survivors.save(stage.partial)}


if __name__ == "__main__":
    run_stage("corpus", CorpusSection, run)
