"""Out-of-distribution sets: labelled pages or texts that classifiers are measured on and never see.

Held-out pages come from the same lists as the training pages; a set made in another way tells whether the
classifier knows mathematics or only those lists.
"""

from dataclasses import dataclass, field
from pathlib import Path

from pipeline.common.rows import read_rows
from pipeline.common.stage import InputError
from pipeline.corpus.classifier import Example
from pipeline.corpus.lists import Survivors
from pipeline.corpus.normalise import normalise

PREFIX = "out_of_distribution."
LABELS = ("math", "not_math", "unsure")


@dataclass
class Unseen:
    """A set: texts that it brings, and keys of pages of the pool, by whether they are mathematical."""

    texts: list[Example] = field(default_factory=list)
    keys: dict[bool, set[str]] = field(default_factory=lambda: {True: set(), False: set()})


def read_set(sources: list[str], name: str, survivors: Survivors) -> Unseen:
    """Read rows with `label` and `text` or `url`; those labelled unsure are left out."""
    found = Unseen()
    for source in sources:
        for place, row in read_rows(source):
            if row.get("label") not in LABELS or not (row.get("text") or row.get("url")):
                raise InputError(f"{place}: expected `label` (one of {LABELS}) and `text` or `url`")
            math = row["label"] == "math"
            if row["label"] == "unsure":
                continue
            if row.get("text"):
                host = row.get("source") or name
                text = normalise(str(row["text"]))
                found.texts.append(Example(row.get("url") or place, host, text, math, row.get("language")))
            else:
                found.keys[math].add(survivors.key(row["url"]))
    return found


def read_sets(inputs: dict[str, list[str]], pool: Path) -> dict[str, Unseen]:
    """The sets among a stage's inputs, by name."""
    names = sorted(key for key in inputs if key.startswith(PREFIX))
    survivors = Survivors(pool / "duplicates.parquet")
    return {
        name.removeprefix(PREFIX): read_set(inputs[name], name.removeprefix(PREFIX), survivors)
        for name in names
    }


def keys_of(sets: dict[str, Unseen]) -> set[str]:
    """Keys of all pages of the pool that any of the sets holds."""
    return {key for given in sets.values() for keys in given.keys.values() for key in keys}
