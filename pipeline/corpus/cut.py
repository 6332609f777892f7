"""Where the ranking is cut: by a token budget as in the paper (section 2.1, step 2), by score, or by an
estimated precision, in all languages together or in each; and what precision any cut promises, on which
sample.

A histogram of the scores tells it. Only a token budget may end between two pages of a bin, and the pages of
that bin alone are sorted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, nextafter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.config.corpus import CorpusSection
from pipeline.corpus.candidates import RANKED
from pipeline.corpus.second_stage import LANGUAGE
from pipeline.data.database import Database
from pipeline.data.shards import read_table
from pipeline.intervals import share_interval
from pipeline.protocol.stage import InputError

Scores = NDArray[np.float64]
Thresholds = Mapping[str | None, float | None]  # least scores by language; None, any other, and nothing kept
SAMPLE = "held-out pages of the training lists that are not mathematical"
# Scores in bins of 1/256, which `steps` (`steps_of`) divide further, by language where each has a cut. Of 0.0
# and -0.0, which are equal, threads decide which one `min` returns: + 0.0 makes both 0.0.
HISTOGRAM = """
WITH own AS (SELECT DISTINCT language FROM steps WHERE language <> ''),
parted AS (
    SELECT score, tokens, coalesce(own.language, '') AS language
    FROM (SELECT score, tokens, {language} AS language FROM candidates) LEFT JOIN own USING (language))
SELECT nullif(parted.language, ''), floor(greatest(-1e6, least(1e6, parted.score)) * 256)::BIGINT AS bin,
    coalesce(above, 0) AS above, count(*), sum(tokens)::BIGINT, min(parted.score) + 0.0
FROM parted ASOF LEFT JOIN steps ON parted.language = steps.language AND parted.score <= steps.score
GROUP BY parted.language, bin, above ORDER BY bin DESC, above
"""
# The pages of one bin that fit into what is left of a token budget.
WITHIN = """
CREATE OR REPLACE TABLE within AS
SELECT score, tie, id
FROM (
    SELECT *, sum(tokens) OVER (ROWS UNBOUNDED PRECEDING) AS used
    FROM (
        SELECT score, tie, id, tokens FROM candidates
        WHERE {between} {ranked}))
WHERE used <= $left
"""
LAST = "SELECT score, tie, id FROM within ORDER BY score, tie DESC, id DESC LIMIT 1"


@dataclass(frozen=True)
class Bin:
    """Candidates of a language, as `Cut` has it, in the same `bin` of scores, the `least` among them; as many
    steps are `above` each of them.
    """

    language: str | None
    bin: int
    above: int
    pages: int
    tokens: int
    least: float


@dataclass(frozen=True)
class Cut:
    """A cut of the candidates of a language or, with None, of all languages that have none of their own: the
    score of the last page kept (None: nothing is), the number of candidates and of those kept. Of equal
    scores all are kept or, with `tie` and `id` of the last page kept, those up to it.
    """

    language: str | None
    least: float | None
    pages: int
    kept: int
    tie: int | None = None
    id: str | None = None


def _negatives(train: Path, *columns: str) -> pa.Table:
    """Scores and `columns` of the held-out pages that are not mathematical. Raises InputError."""
    if not (train / "held_out.parquet").exists():
        raise InputError(
            "corpus.cut: `precision` is estimated on held-out pages: set corpus.folds to 2 or more"
        )
    table = read_table(train / "held_out.parquet", ["math", "score", *columns])
    return table.filter(pc.invert(table["math"]))


def own_languages(config: CorpusSection, train: Path) -> list[str]:
    """Return the languages that have a cut of their own: those with enough held-out pages."""
    if not config.cut_language_pages:
        return []
    counts = Counter(_negatives(train, "language")["language"].to_pylist())
    return sorted(name for name, pages in counts.items() if name and pages >= config.cut_language_pages)


def _language_parts(other: pa.Table, own: Iterable[str | None]) -> dict[str | None, pa.Table]:
    """Held-out pages by language; under None those of all languages that are not in `own`."""
    names = [name for name in own if name]
    if not names:
        return {None: other}
    rest = pc.fill_null(pc.invert(pc.is_in(other["language"], pa.array(names, pa.string()))), True)
    parts: dict[str | None, pa.Table] = {
        name: other.filter(pc.equal(other["language"], name)) for name in names
    }
    return parts | {None: other.filter(rest)}


def reached(config: CorpusSection, train: Path) -> dict[str | None, Scores]:
    """By language the scores at which a cut may be, ascending; some are equal. A token budget may end
    anywhere, so it has none. `train`: the trained classifier's folder. Raises InputError for a cut by
    precision without held-out pages.
    """
    match config.cut:
        case "tokens":
            return {None: np.empty(0)}
        case "score":
            return {None: np.array([nextafter(config.threshold, -inf)])}
    own = own_languages(config, train)
    parts = _language_parts(_negatives(train, *(["language"] if own else [])), own)
    return {name: np.sort(part["score"].to_numpy()) for name, part in parts.items()}


def steps_of(config: CorpusSection, train: Path) -> pa.Table:
    """(language, score, above) of each score of `reached`: so many of its language reach it. The language is
    empty for all that have no cut of their own.
    """
    columns: dict[str, list[Any]] = {"language": [], "score": [], "above": []}
    for language, scores in reached(config, train).items():
        values, first = np.unique(scores, return_index=True)  # sorted, so `first` counts those below
        columns["language"] += [language or ""] * len(values)
        columns["score"] += values.tolist()
        columns["above"] += (len(scores) - first).tolist()
    schema = pa.schema([LANGUAGE, ("score", pa.float64()), ("above", pa.int64())])
    return pa.table(columns, schema)


def _sql(score: float) -> str:
    """Write a score in SQL, to the bit."""
    return f"'{score!r}'::DOUBLE"


def _between(least: float, above: float | None) -> str:
    """Write in SQL whether a score is at least the first and less than the other, if there is one."""
    return f"score >= {_sql(least)}" + ("" if above is None else f" AND score < {_sql(above)}")


def _reaches(cut: Cut) -> str:
    """Write in SQL whether a page stands at or before the last one that a cut keeps."""
    if cut.least is None:
        return "false"
    reaches, least = _between(cut.least, None), _sql(cut.least)
    if cut.id is None:
        return reaches
    name = cut.id.replace("'", "''")
    return f"{reaches} AND (score > {least} OR tie < {cut.tie} OR (tie = {cut.tie} AND id <= '{name}'))"


def is_kept(cuts: Sequence[Cut]) -> str:
    """Write in SQL whether a candidate is kept."""
    *own, rest = cuts
    if not own:
        return _reaches(rest)
    names = [str(cut.language).replace("'", "''") for cut in own]
    cases = [f"WHEN '{name}' THEN {_reaches(cut)}" for name, cut in zip(names, own, strict=True)]
    return f"CASE language {' '.join(cases)} ELSE {_reaches(rest)} END"


def is_above(score: float, language: str | None, thresholds: Thresholds) -> bool:
    """Whether a score reaches the cut of its language or, under None, that of all others."""
    least = thresholds.get(language, thresholds[None])
    return least is not None and score >= least


def bins_of(joins: Database, config: CorpusSection, train: Path) -> list[Bin]:
    """Count the candidates by score, best first."""
    joins.register("steps", steps_of(config, train))
    query = HISTOGRAM.format(language="language" if config.cut_language_pages else "NULL::VARCHAR")
    return [Bin(*row) for row in joins.execute(query).fetchall()]


def find_cuts(
    joins: Database, bins: Sequence[Bin], config: CorpusSection, train: Path, iteration: int
) -> list[Cut]:
    """Find the cut of each language that has its own, then that of the rest. `bins`: best first."""
    if config.cut == "tokens":
        return [within_budget(joins, bins, config, iteration)]
    found = []
    for language, steps in reached(config, train).items():
        own = [one for one in bins if one.language == language]
        if config.cut == "score":
            size = sum(one.pages for one in own if not one.above)
        else:
            counts = np.zeros(len(steps) + 1, np.int64)
            np.add.at(counts, [one.above for one in own], [one.pages for one in own])
            size = at_precision(counts, config.precision)
        ends = np.cumsum([one.pages for one in own])
        least = own[int(np.searchsorted(ends, size))].least if size else None
        found.append(Cut(language, least, sum(one.pages for one in own), size))
    return found


def within_budget(joins: Database, bins: Sequence[Bin], config: CorpusSection, iteration: int) -> Cut:
    """Find where the top candidates no longer fit into the token budget of an iteration (counted from 1)."""
    left = config.budget_tokens[min(iteration, len(config.budget_tokens)) - 1]
    number, size, above = sum(one.pages for one in bins), 0, None
    for one in bins:
        if one.tokens > left:
            joins.execute(WITHIN.format(between=_between(one.least, above), ranked=RANKED), {"left": left})
            ((more,),) = joins.execute("SELECT count(*) FROM within").fetchall()
            for score, tie, page in joins.execute(LAST).fetchall():
                return Cut(None, score, number, size + more, tie, page)
            break
        size, left, above = size + one.pages, left - one.tokens, one.least
    return Cut(None, above, number, size)


def expected_precision(
    ends: NDArray[np.int64], above: NDArray[np.int64], negatives: int, total_other: float
) -> NDArray[np.float64]:
    """Estimated precision (K,) of the first `ends` (K,) pages of a ranking.

    `above` (K,) of the held-out `negatives` reach the score of the last of these pages. Just above the next
    one of them, a page like them is expected with chance (above + 1) / (negatives + 1), and so is each of the
    pool's `total_other` pages that are not mathematical.
    """
    return np.maximum(0.0, 1 - (above + 1) / (negatives + 1) * total_other / ends)


def at_precision(counts: NDArray[np.int64], target: float) -> int:
    """Find the largest number of top pages whose estimated precision is at least `target`; `counts` (M + 1,)
    are the numbers of pages whose score 0, 1, ... of M held-out negatives reach.

    Fixed-point iteration from zero positives: each cut gives an estimate of the pool's mathematical pages,
    which gives the next cut. If cuts repeat in a cycle, the smallest of the cycle counts. Between two
    neighbouring scores of negatives the estimate rises with each page, so the numbers of pages between them
    are all that is needed.
    """
    above = np.flatnonzero(counts)
    ends = np.cumsum(counts)[above]
    pages = int(counts.sum())
    sizes, total_other = [0], float(pages)
    while sizes[-1] not in sizes[:-1]:
        precision = expected_precision(ends, above, len(counts) - 1, total_other)
        good = np.flatnonzero(precision >= target)
        if not len(good):
            return 0
        sizes.append(int(ends[good[-1]]))
        total_other = pages - sizes[-1] * float(precision[good[-1]])
    return min(sizes[sizes.index(sizes[-1]) :])


def promise(train: Path, cuts: Sequence[Cut], by_language: bool) -> dict[str, Any] | None:
    """Estimate the precision of the kept pages: the share of held-out negatives that reach the last one's
    score is expected of the pool's other pages. With its 95 % interval over the negatives' hosts; None
    without held-out pages or without kept ones. Where languages have cuts of their own, each has its promise,
    and that of all is their mean by kept pages, as are the ends of its interval.

    The promise holds for a pool whose other pages are like the negatives, which no one can know.
    """
    size = sum(cut.kept for cut in cuts)
    if not size or not (train / "held_out.parquet").exists():
        return None
    if not by_language:
        return _promised(cuts[0], _negatives(train, "host")) | {"sample": SAMPLE}
    other = _negatives(train, "host", "language")
    parts = _language_parts(other, [own.language for own in cuts])
    rows = [
        {"language": own.language, "kept": own.kept, "threshold": own.least}
        | (_promised(own, parts[own.language]) if own.kept else {})
        for own in cuts
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
    """Estimate the precision of one cut by the held-out pages `other`."""
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
