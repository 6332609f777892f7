"""Which pages of a large pool training will read: the first of the programs that share the reading.

Inputs: those of `train`. Lists name pages by URL, and a sample draws them by a hash; what a listed URL means
is in the duplicates of the whole pool. So this is found once: `learn-<number>` finds what a new round of
review teaches of a part of the pool, `listed-<number>` what listed URLs mean by a part of the duplicates, and
`read-<number>` looks for the pages in the shards of a part. Given what they wrote, as `learn` and `listed`,
this program only puts it together. `train` reads what it and `read` write.

Outputs: `wanted.json`, for each purpose the fields of `Wanted` but its keys, and what a new round of review
adds to the lists; `keys.parquet`, the keys; `duplicates.parquet`, those of listed URLs; the lists with what a
new round adds.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.config.corpus import CorpusSection
from pipeline.corpus.convergence import converged_before, read_notes
from pipeline.corpus.examples import NOTES, TRAINING, Wanted, wanted_pages
from pipeline.corpus.grades import PURPOSE, of_pool
from pipeline.corpus.listed import looked_up
from pipeline.corpus.out_of_distribution import PREFIX, keys_of, read_sets
from pipeline.corpus.rounds import learn_round
from pipeline.corpus.texts import example_texts
from pipeline.data.database import ROWS
from pipeline.data.shards import read_batches, write_table
from pipeline.protocol.manifest import write_json
from pipeline.protocol.stage import Counts, InputError, Stage, run_stage

KEYS = pa.schema([("purpose", pa.string()), ("kind", pa.string()), ("key", pa.string())])
KINDS = ("math", "other", "without")  # fields of `Wanted` that hold keys
OTHERS = ("everything", "most", "seed", "below")


def read_wanted(folder: Path, kept: Path | None) -> dict[str, Wanted]:
    """What is wanted for each purpose; `kept`: the selection of the previous iteration. Raises InputError."""
    notes, keys = read_notes(folder / NOTES, "purposes")["purposes"], dict[tuple[str, str], set[str]]()
    for batch in read_batches(folder / "keys.parquet", ROWS, KEYS.names):
        for purpose, kind, key in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            keys.setdefault((purpose, kind), set()).add(key)
    try:
        return {purpose: _wanted(purpose, values, keys, kept) for purpose, values in notes.items()}
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(f"{folder / NOTES}: cannot be read ({error!r}); make it again") from error


def _wanted(
    purpose: str, values: dict[str, Any], keys: dict[tuple[str, str], set[str]], kept: Path | None
) -> Wanted:
    fields: dict[str, Any] = {kind: keys.get((purpose, kind), set()) for kind in KINDS}
    fields |= {name: values[name] for name in OTHERS} | {"kept": kept if values["kept"] else None}
    most = fields["most"]
    return Wanted(**fields | {"most": most and (int(most[0]), int(most[1]))})


def run(stage: Stage[CorpusSection]) -> Counts:
    """Say which pages are wanted; returns how many keys name them, by purpose."""
    if converged_before(stage):
        return {"converged": 1}
    survivors = looked_up(stage)
    reviewed = learn_round(stage, survivors) if stage.inputs.get("new_round") else None
    sets = read_sets(stage.inputs, survivors)
    texts = example_texts(stage.inputs, stage.config)
    asked = {TRAINING: wanted_pages(stage, survivors, keys_of(sets), texts, stage.partial)}
    asked |= {PREFIX + name: given.wanted() for name, given in sets.items() if any(given.keys.values())}
    if stage.config.second_stage.enabled and (graded := of_pool(stage, keys_of(sets))):
        asked[PURPOSE] = Wanted(graded, ())
    rows = (
        {"purpose": purpose, "kind": kind, "key": key}
        for purpose, wanted in asked.items()
        for kind in KINDS
        for key in sorted(getattr(wanted, kind))
    )
    count = write_table(stage.partial / "keys.parquet", rows, KEYS)
    survivors.save(stage.partial)
    notes = {
        purpose: {name: getattr(wanted, name) for name in OTHERS} | {"kept": wanted.kept is not None}
        for purpose, wanted in asked.items()
    }
    write_json(stage.partial / NOTES, {"purposes": notes, "new_round": reviewed})
    return {"keys": count, "purposes": len(asked)}


if __name__ == "__main__":
    run_stage("corpus", CorpusSection, run)
