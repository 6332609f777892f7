"""Choose pages by two rules instead of the loop: English, with a formula in TeX (ours, for comparison).

They stand for the first filters of OpenWebMath (Paster et al. 2023): mathematical markup and language. Its
classifier, its filter by perplexity and its manual lists are left out. Inputs: `pool`, `opt_out`,
`blocklists`. Output: `kept.parquet`, in the form in which an iteration of the loop writes it; all scores are
0.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.config.corpus import CorpusSection
from pipeline.core.data.shards import read_documents, shard_paths, write_table
from pipeline.core.stage import Counts, Stage, run_stage
from pipeline.corpus.convergence import KEPT
from pipeline.corpus.normalise import normalise
from pipeline.crawl.opted_out import NOTHING, OptedOut

LANGUAGE = "en"
DOLLARS = re.compile(r"\$[^$\n\\^_=]*+[\\^_=][^$\n]*+\$")
BRACKETS = ((r"\(", r"\)"), (r"\[", r"\]"))


def has_formula(text: str) -> bool:
    """Whether there is TeX between delimiters; in time that grows with the text alone, whatever is in it."""
    places = ((text.find(opening), closing) for opening, closing in BRACKETS)
    around = any(start >= 0 and text.find(closing, start + 3) > 0 for start, closing in places)
    return around or DOLLARS.search(text) is not None


def rows(pool: Path, opted_out: OptedOut = NOTHING) -> Iterator[dict[str, Any]]:
    """Yield a row for each page that the rules keep."""
    for shard in shard_paths(pool / "pool"):
        for document in opted_out.allowed(read_documents(shard)):
            if document.metadata.get("language") == LANGUAGE and has_formula(document.text):
                yield {
                    "id": document.id,
                    "url": document.metadata["url"],
                    "host": document.metadata["host"],
                    "shard": shard.name,
                    "score": 0.0,
                    "tokens": len(normalise(document.text).split(" ")),
                    "iteration": 0,
                }


def run(stage: Stage[CorpusSection]) -> Counts:
    """Write `kept.parquet`; returns the number of pages, and of those that opted out."""
    opted_out = OptedOut.of(stage.inputs)
    pages = write_table(stage.partial / "kept.parquet", rows(stage.input("pool"), opted_out), KEPT)
    return {"kept_pages": pages} | opted_out.counts


if __name__ == "__main__":
    run_stage("corpus", CorpusSection, run)
