"""Read the pages that training wants from a part of the pool: `read-<number>` (paper section 2.1, step 1).

Inputs: `wanted`, which says what they are; `shard`, the shards of the part; `previous`, whose kept pages are
no negatives. Writes `examples.parquet`, the pages' normalised texts, at most as many as training takes.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.config.corpus import CorpusSection
from pipeline.corpus.convergence import converged_before
from pipeline.corpus.examples import ROWS, TABLE, labelled_pages
from pipeline.corpus.wanted import read_wanted
from pipeline.data.shards import write_table
from pipeline.protocol.stage import Counts, InputError, Stage, label, run_stage

EXAMPLES = pa.schema(
    [
        *((name, pa.string()) for name in ("purpose", "url", "host")),
        ("math", pa.bool_()),
        *((name, pa.string()) for name in ("language", "text")),
    ]
)


def run(stage: Stage[CorpusSection]) -> Counts:
    """Write the wanted pages of a part of the pool; returns their number."""
    if converged_before(stage):
        return {"converged": 1}
    shards = list(map(Path, stage.inputs.get("shard", [])))
    if not shards:
        raise InputError("--input shard: none given")
    previous = stage.input("previous") if "previous" in stage.inputs else None
    asked = read_wanted(stage.input("wanted"), previous)

    def rows() -> Iterator[dict[str, Any]]:
        for purpose, wanted in asked.items():
            how = stage.launch.get("threads", 1), f"{label(stage)}: {purpose}", stage.work / "texts" / purpose
            for page in labelled_pages(shards, wanted, *how):
                yield {name: getattr(page, name) for name in EXAMPLES.names[1:]} | {"purpose": purpose}

    return {"pages": write_table(stage.partial / TABLE, rows(), EXAMPLES, ROWS)}


if __name__ == "__main__":
    run_stage("corpus", CorpusSection, run)
