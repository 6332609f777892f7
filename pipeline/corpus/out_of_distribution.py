"""Out-of-distribution sets: labelled pages or texts that classifiers are measured on and never learn from.

Held-out pages come from the same lists as the training pages; a set made in another way shows whether the
classifier knows mathematics or only those lists.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.config.corpus import CorpusSection
from pipeline.corpus.cut import Thresholds, is_above
from pipeline.corpus.measures import measures
from pipeline.corpus.normalise import normalise
from pipeline.corpus.second_stage import LANGUAGE
from pipeline.corpus.training_set import LabelledPage, Wanted, pages_of_pool
from pipeline.corpus.url_lists import Survivors
from pipeline.crawl.annotations import UNSURE, VERDICTS
from pipeline.data.rows import read_rows
from pipeline.data.shards import read_table, table_schema, write_table
from pipeline.protocol.stage import InputError, Stage

PREFIX = "out_of_distribution."
TABLE = "out_of_distribution.parquet"
SCORED = table_schema(set=str, math=bool, score=float)
NO_LANGUAGES: Thresholds = {}


@dataclass
class LabelledSet:
    """A set: texts of its own, and keys of pages of the pool, by whether they are mathematical."""

    texts: list[LabelledPage] = field(default_factory=list)
    keys: dict[bool, set[str]] = field(default_factory=lambda: {True: set(), False: set()})

    def wanted(self) -> Wanted:
        """Its pages of the pool."""
        return Wanted(self.keys[True], self.keys[False])


def read_set(sources: list[str], name: str, survivors: Survivors) -> LabelledSet:
    """Read a set from files of rows. Raises InputError."""
    found = LabelledSet()
    urls: dict[bool, list[str]] = {True: [], False: []}
    for place, row in _rows(sources):
        math = row["label"] == "math"
        if row.get("text"):
            url, host = row.get("url") or place, row.get("source") or name
            text = normalise(row["text"])
            found.texts.append(LabelledPage(url, host, text, math, row.get("language")))
        else:
            urls[math].append(row["url"])
    found.keys = {math: survivors.keys(given) if given else set() for math, given in urls.items()}
    return found


def _rows(sources: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) of each row with `label`, not unsure, and `text` or `url`. Raises InputError."""
    for source in sources:
        for place, row in read_rows(source):
            if row.get("label") not in VERDICTS or not (row.get("text") or row.get("url")):
                raise InputError(f"{place}: expected `label` (one of {VERDICTS}) and `text` or `url`")
            for field_name in ("text", "url", "source", "language"):
                if not isinstance(row.get(field_name), str | None):
                    raise InputError(f"{place}: `{field_name}` must be a text")
            if row["label"] != UNSURE:
                yield place, row


def urls_of(inputs: dict[str, list[str]]) -> Iterator[str]:
    """Yield the URLs of pages of the pool in all sets among a stage's inputs. Raises InputError."""
    sources = (source for key in sorted(inputs) if key.startswith(PREFIX) for source in inputs[key])
    return (row["url"] for _, row in _rows(list(sources)) if not row.get("text"))


def read_sets(inputs: dict[str, list[str]], survivors: Survivors) -> dict[str, LabelledSet]:
    """Read the sets among a stage's inputs, by name."""
    names = sorted(key.removeprefix(PREFIX) for key in inputs if key.startswith(PREFIX))
    return {name: read_set(inputs[PREFIX + name], name, survivors) for name in names}


def keys_of(sets: dict[str, LabelledSet]) -> set[str]:
    """Keys of all pages of the pool that any of the sets holds."""
    return {key for given in sets.values() for keys in given.keys.values() for key in keys}


def measure_sets(
    stage: Stage[CorpusSection],
    sets: dict[str, LabelledSet],
    score: Callable[[LabelledPage], float],
    threshold: float,
) -> dict[str, dict[str, Any]]:
    """Measures of each set at the threshold of the held-out pages. If there is one, the scores go to `TABLE`
    in the stage's results. Raises InputError for an empty set.
    """
    found, rows = {}, []
    for name, given in sets.items():
        pages = list(given.texts)
        if any(given.keys.values()):
            pages += pages_of_pool(stage, PREFIX + name, given.wanted())
        if not pages:
            raise InputError(f"corpus.out_of_distribution.{name}: none of its URLs is a page of the pool")
        scores = list(map(score, pages))
        found[name] = measures(pages, scores, threshold)
        rows += [
            {"set": name, "math": page.math, "score": value, "language": page.language}
            for page, value in zip(pages, scores, strict=True)
        ]
    if rows:
        schema = SCORED.append(LANGUAGE) if stage.config.cut_language_pages else SCORED
        write_table(stage.partial / TABLE, rows, schema)
    return found


def recall_at(
    train: Path, threshold: float | None, by_language: Thresholds = NO_LANGUAGES
) -> dict[str, float]:
    """Return the share of each set's mathematical pages whose score is at least `threshold` (None: none is),
    by the classifier in the folder `train`; where languages have cuts of their own, at least that of its
    language or, under None, that of all others.
    """
    if not (train / TABLE).exists():
        return {}
    found: dict[str, list[bool]] = {}
    for row in read_table(train / TABLE).to_pylist():
        if row["math"]:
            kept = is_above(row["score"], row.get("language"), by_language or {None: threshold})
            found.setdefault(row["set"], []).append(kept)
    return {name: round(sum(kept) / len(kept), 6) for name, kept in found.items()}
