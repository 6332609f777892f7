"""Where the ranking is cut: by a token budget as in the paper (section 2.1, step 2), by score, or by an
estimated precision, in all languages together or in each; and what precision any cut promises, on which
sample.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.common.database import ROWS, Database
from pipeline.common.shards import read_table
from pipeline.common.stage import InputError
from pipeline.config.corpus import CorpusSection
from pipeline.corpus.candidates import RANKED
from pipeline.corpus.intervals import share_interval

Scores = NDArray[np.float64]
LANGUAGE = pa.field("language", pa.string())  # of tables, where languages have cuts of their own
SAMPLE = "held-out pages of the training lists that are not mathematical"
# `parted`: the candidates with their `part`, the language if it has a cut of its own, else null.
PARTED = """
CREATE VIEW parted AS SELECT candidates.*, own.language AS part FROM candidates LEFT JOIN own USING (language)
"""
PART = "FROM parted WHERE part IS NOT DISTINCT FROM $language"
LEAST = f"SELECT min(score) FROM (SELECT score {PART} ORDER BY score DESC LIMIT $size)"
REACHED = """
CREATE OR REPLACE VIEW reached AS
SELECT parted.* EXCLUDE (part) FROM parted JOIN cuts ON part IS NOT DISTINCT FROM cuts.language
WHERE score >= least
"""


@dataclass(frozen=True)
class Cut:
    """A cut of the candidates of a language or, with None, of all languages that have none of their own: the
    score of the last page kept (None: nothing is), the number of candidates and of those kept.
    """

    language: str | None
    least: float | None
    pages: int
    kept: int


def cut(database: Database, train: Path, config: CorpusSection, iteration: int) -> int:
    """How many of the candidates are kept, as `corpus.cut` says; `train`: the trained classifier's folder.

    Raises InputError for a cut by precision without held-out pages.
    """
    match config.cut:
        case "tokens":
            return within_budget(database, config, iteration)
        case "score":
            count = "SELECT count(*) FROM candidates WHERE score >= ?"
            return int(database.execute(count, [config.threshold]).fetchall()[0][0])
    if not (train / "held_out.parquet").exists():
        raise InputError(
            "corpus.cut: `precision` is estimated on held-out pages: set corpus.folds to 2 or more"
        )
    if config.cut_language_pages:
        return cut_by_language(database, train, config)
    other = _negatives(train)["score"].to_numpy()
    batches = database.execute("SELECT score FROM candidates").fetch_record_batch(ROWS)
    return at_precision((batch["score"].to_numpy() for batch in batches), other, config.precision)


def _negatives(train: Path, *columns: str) -> pa.Table:
    """Scores and `columns` of the held-out pages that are not mathematical."""
    table = read_table(train / "held_out.parquet", ["math", "score", *columns])
    return table.filter(pc.invert(table["math"]))


def _language_parts(other: pa.Table, own: Iterable[str | None]) -> dict[str | None, pa.Table]:
    """Held-out pages by language; under None those of all languages that are not in `own`."""
    names = [name for name in own if name]
    rest = pc.fill_null(pc.invert(pc.is_in(other["language"], pa.array(names, pa.string()))), True)
    parts: dict[str | None, pa.Table] = {
        name: other.filter(pc.equal(other["language"], name)) for name in names
    }
    return parts | {None: other.filter(rest)}


def cut_by_language(database: Database, train: Path, config: CorpusSection) -> int:
    """Cut each language that has enough held-out pages, and the others together, at the estimated precision;
    creates `cuts`, and `reached` anew. Returns how many candidates are kept.
    """
    other = _negatives(train, "language")
    counts = Counter(other["language"].to_pylist())
    own = sorted(name for name, pages in counts.items() if name and pages >= config.cut_language_pages)
    database.register("own", pa.table([pa.array(own, pa.string())], ["language"]))
    database.execute(PARTED)
    for language, pages in _language_parts(other, own).items():
        given = {"language": language}
        batches = database.execute(f"SELECT score {PART}", given).fetch_record_batch(ROWS)
        scores = (batch["score"].to_numpy() for batch in batches)
        size = at_precision(scores, pages["score"].to_numpy(), config.precision)
        ((least,),) = database.execute(LEAST, given | {"size": size}).fetchall()
        ((count,),) = database.execute(f"SELECT count(*) {PART}", given).fetchall()
        database.execute("INSERT INTO cuts VALUES (?, ?, ?, ?)", [language, least, count, size])
    database.execute(REACHED)
    return sum(found.kept for found in cuts(database))


def cuts(database: Database) -> list[Cut]:
    """The cut of each language, the rest last; none where one cut holds for all."""
    query = "SELECT language, least, pages, kept FROM cuts ORDER BY language NULLS LAST"
    return [Cut(*row) for row in database.execute(query).fetchall()]


def within_budget(database: Database, config: CorpusSection, iteration: int) -> int:
    """How many of the top candidates fit into the token budget of an iteration (counted from 1)."""
    budget = config.budget_tokens[min(iteration, len(config.budget_tokens)) - 1]
    ranked = f"SELECT tokens FROM candidates {RANKED}"  # a window without an order takes rows as they come
    used = f"SELECT sum(tokens) OVER (ROWS UNBOUNDED PRECEDING) AS used FROM ({ranked})"
    return int(database.execute(f"SELECT count(*) FROM ({used}) WHERE used <= ?", [budget]).fetchall()[0][0])


def expected_precision(
    ends: NDArray[np.int64], above: NDArray[np.int64], negatives: int, total_other: float
) -> NDArray[np.float64]:
    """Estimated precision (K,) of the first `ends` (K,) pages of a ranking.

    `above` (K,) of the held-out `negatives` reach the score of the last of these pages. Just above the next
    one of them, a page like them is expected with chance (above + 1) / (negatives + 1), and so is each of the
    pool's `total_other` pages that are not mathematical.
    """
    return np.maximum(0.0, 1 - (above + 1) / (negatives + 1) * total_other / ends)


def at_precision(batches: Iterable[Scores], other: Scores, target: float) -> int:
    """The largest number of top pages whose estimated precision is at least `target`; `batches` are the
    pages' scores in any order, `other` (M,) those of held-out negatives.

    Fixed-point iteration from zero positives: each cut gives an estimate of the pool's mathematical pages,
    which gives the next cut. If cuts repeat in a cycle, the smallest of the cycle counts. Between two
    neighbouring scores of `other` the estimate rises with each page, so the numbers of pages between them
    are all that is needed.
    """
    other = np.sort(other)
    counts = np.zeros(len(other) + 1, np.int64)  # by how many of `other` are at or above the score
    for scores in batches:
        above = len(other) - np.searchsorted(other, scores, side="left")
        counts += np.bincount(above, minlength=len(counts))
    above = np.flatnonzero(counts)
    ends = np.cumsum(counts)[above]
    pages = int(counts.sum())
    sizes, total_other = [0], float(pages)
    while sizes[-1] not in sizes[:-1]:
        precision = expected_precision(ends, above, len(other), total_other)
        good = np.flatnonzero(precision >= target)
        if not len(good):
            return 0
        sizes.append(int(ends[good[-1]]))
        total_other = pages - sizes[-1] * float(precision[good[-1]])
    return min(sizes[sizes.index(sizes[-1]) :])


def promise(database: Database, train: Path, size: int) -> dict[str, Any] | None:
    """The precision that the first `size` candidates promise: the share of held-out negatives that reach the
    last one's score is expected of the pool's other pages. With its 95 % interval over the negatives' hosts;
    None without held-out pages or without kept ones. Where languages have cuts of their own, each has its
    promise, and that of all is their mean by kept pages, as are the ends of its interval.

    The promise holds for a pool whose other pages are like the negatives, which no one can know.
    """
    if not size or not (train / "held_out.parquet").exists():
        return None
    found = cuts(database)
    if not found:
        ranked = f"SELECT score FROM (SELECT score FROM candidates {RANKED} LIMIT ?) ORDER BY score LIMIT 1"
        ((least,),) = database.execute(ranked, [size]).fetchall()
        ((pages,),) = database.execute("SELECT count(*) FROM candidates").fetchall()
        return _promised(Cut(None, least, pages, size), _negatives(train, "host")) | {"sample": SAMPLE}
    other = _negatives(train, "host", "language")
    parts = _language_parts(other, [own.language for own in found])
    rows = [
        {"language": own.language, "kept": own.kept, "threshold": own.least}
        | (_promised(own, parts[own.language]) if own.kept else {})
        for own in found
    ]
    kept = [row for row in rows if row["kept"]]

    def mean(values: Iterable[float]) -> float:
        return round(sum(row["kept"] * value for row, value in zip(kept, values, strict=True)) / size, 6)

    return {
        "precision": mean(row["precision"] for row in kept),
        "ci95": [mean(row["ci95"][end] for row in kept) for end in (0, 1)],
        "sample": SAMPLE,
        "pages": len(other),
        "hosts": len(set(other["host"].to_pylist())),
        "languages": rows,
    }


def _promised(cut: Cut, other: pa.Table) -> dict[str, Any]:
    """What a cut promises by the held-out pages `other`."""
    above, hosts = (other["score"].to_numpy() >= cut.least).tolist(), other["host"].to_pylist()

    def precision(share: float) -> float:  # p with: kept (1 - p) = share (pages - kept p)
        return (
            float(min(1.0, max(0.0, (1 - share * cut.pages / cut.kept) / (1 - share)))) if share < 1 else 0.0
        )

    low, high = map(precision, share_interval(above, hosts)[::-1])
    return {
        "precision": round(precision(sum(above) / len(above)), 6),
        "ci95": [round(low, 6), round(high, 6)],
        "pages": len(above),
        "hosts": len(set(hosts)),
    }
