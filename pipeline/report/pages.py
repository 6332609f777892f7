"""The page browser: `pages.html` beside the report, which shows any page of the crawl, its score in each
iteration, and why it was kept or not.

It loads the files in `pages/`, as `shards.py` describes them, when they are needed:

- `index.js`: a list for each property of the pages, in the order of the pool, then of those that never got
  there;
- `text-<n>.js`: the texts of `TEXTS` pages.

Of a large crawl the first shards of the pool are shown, up to MOST pages, and as many rejected pages and
duplicates; the page says so.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from markupsafe import Markup

from pipeline.core.data.database import Database, database, parquet
from pipeline.core.data.shards import read_documents, tables
from pipeline.core.section import parts_of
from pipeline.crawl.text_files import NO_HOST
from pipeline.report.collect import Finished, Run
from pipeline.report.page import TEMPLATES, environment, script, script_hash
from pipeline.report.shards import encode, write

MOST, TEXTS, CHARACTERS = 20_000, 100, 20_000
FOLDER = "pages"
BECAME = "decontaminate/pages"  # the result that says what became of each page
KEPT, ABSENT = 1, 0  # what an iteration made of a page
EXCLUDED = {"opt_out": -1, "not_math": -2, "blocklist": -3}  # the same, by why it is never kept
SHOWN = """
CREATE TABLE shown AS
SELECT id, url, shard, row_number() OVER (ORDER BY shard, file_row_number) AS place
FROM {scores} ORDER BY place LIMIT {most}
"""
OUTCOMES = """
SELECT coalesce(round(scores.score, 2), 0) AS score,
    CASE WHEN kept.id IS NOT NULL THEN {own} ELSE coalesce(CASE excluded.reason {excluded} END, {absent}) END
FROM shown LEFT JOIN {scores} AS scores USING (id) LEFT JOIN {kept} AS kept USING (id)
    LEFT JOIN {reasons} AS excluded USING (id)
ORDER BY place
"""
FATES = """
SELECT any_value(status), any_value(reason), any_value(contaminated_by), any_value(language)
FROM shown LEFT JOIN (SELECT * FROM {pages} WHERE status NOT IN ('rejected', 'duplicate')) USING (url)
GROUP BY place ORDER BY place
"""
LANGUAGES = """
SELECT language, count(*) FROM {pages} WHERE status = 'kept' GROUP BY language ORDER BY 2 DESC, 1
"""
HOSTS = """
SELECT count(DISTINCT host)
FROM (SELECT regexp_extract(url, '^[a-z]+://([^/?#]+)', 1) AS host FROM {pages} WHERE status = 'kept')
WHERE NOT ends_with(host, '{none}')
"""
OTHERS = """
SELECT url, status, reason, duplicate_of, language
FROM {pages} WHERE status IN ('rejected', 'duplicate') LIMIT {most}
"""


def kept_by_language(run: Run, work: Path, launch: dict[str, Any]) -> tuple[dict[str, int], int]:
    """Count the pages of the clean corpus by language, the most first, and their hosts; nothing where the run
    has not said what became of each page.
    """
    if (fates := run.finished.get(BECAME)) is None:
        return {}, 0
    with database(work / "kept", launch) as joins:
        pages = parquet(*tables(fates.data, "pages"))
        languages = joins.execute(LANGUAGES.format(pages=pages)).fetchall()
        ((hosts,),) = joins.execute(HOSTS.format(pages=pages, none=NO_HOST)).fetchall()
    return {language or "unknown": number for language, number in languages}, hosts


def write_pages(run: Run, root: Path, work: Path, launch: dict[str, Any]) -> None:
    """Write the page and its files below `root`, where the run has said what became of each page."""
    fates, pool = run.finished.get(BECAME), run.finished.get("crawl/dedup")
    if not (fates and pool and run.iterations):
        return
    with database(work / "join", launch) as joins:
        index = _index(joins, run, fates)
        shards = joins.execute("SELECT shard, count(*) FROM shown GROUP BY shard ORDER BY shard").fetchall()
    for number, texts in enumerate(_texts(pool.data / "pool", shards)):
        write(root, f"{FOLDER}/text-{number}", [encode(text) for text in texts])
    write(root, f"{FOLDER}/index", [encode(index)])
    own = script("tex.js", "load.js", "pages.js")
    page = (
        environment()
        .get_template("pages.html.j2")
        .render(
            run=run.name,
            style=Markup((TEMPLATES / "page.css").read_text()),
            script=Markup(own),
            policy=script_hash(own),
        )
    )
    (root / "pages.html").write_text(page)


def _scores(run: Run, select: Finished) -> list[Path]:
    """Return the score tables of a selection's iteration, in the order of the shards."""
    names = sorted(result.name for result in run.of("corpus"))
    start = f"{select.name.removesuffix('select')}score-"
    return [run.finished[name].data / "scores.parquet" for name in names if name.startswith(start)]


def _index(joins: Database, run: Run, fates: Finished) -> dict[str, Any]:
    """Return the properties of all pages that are shown. Creates `shown`: those of the pool, with their
    place.
    """
    last = _scores(run, run.iterations[-1])
    sizes = [pq.ParquetFile(path).metadata.num_rows for path in last]
    number = next((n for n in range(1, len(sizes)) if sum(sizes[:n]) >= MOST), len(sizes))
    joins.execute(SHOWN.format(scores=parquet(*last[:number], file_row_number=True), most=MOST))
    files = tables(fates.data, "pages")
    parts = parts_of(len(sizes), len(files))  # as the jobs that wrote them shared the pool's shards
    pages = parquet(*files[: sum(part.start < number for part in parts)])
    urls = [url for (url,) in joins.execute("SELECT url FROM shown ORDER BY place").fetchall()]
    status, reason, contaminated, language = _columns(joins, FATES.format(pages=pages), 4)
    url, other_status, other_reason, original, other_language = _columns(
        joins, OTHERS.format(pages=pages, most=MOST), 5
    )
    return {
        "url": urls + url,
        "status": status + other_status,
        "reason": reason + other_reason,
        "contaminated": contaminated,
        "original": original,
        "language": language + other_language,
        "iterations": [_iteration(joins, run, select, number) for select in run.iterations],
        "texts": TEXTS,
        "records": joins.execute(f"SELECT count(*) FROM {parquet(*files)}").fetchall()[0][0],
    }


def _columns(joins: Database, query: str, count: int) -> list[list[Any]]:
    """Return the columns of a query's rows."""
    rows = joins.execute(query).fetchall()
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(count)]


def _iteration(joins: Database, run: Run, select: Finished, shards: int) -> dict[str, Any]:
    """Read scores and outcomes of the pages shown in one iteration, and the lowest score that it keeps."""
    kept = parquet(select.data / "kept.parquet")
    query = OUTCOMES.format(
        scores=parquet(*_scores(run, select)[:shards]),
        kept=kept,
        reasons=parquet(select.data / "excluded.parquet"),
        excluded=" ".join(f"WHEN '{reason}' THEN {code}" for reason, code in EXCLUDED.items()),
        own=KEPT,
        absent=ABSENT,
    )
    score, outcome = _columns(joins, query, 2)
    ((cut,),) = joins.execute(f"SELECT min(score) + 0.0 FROM {kept}").fetchall()
    return {"number": select.metrics["iteration"], "cut": cut, "score": score, "outcome": outcome}


def _texts(pool: Path, shards: list[tuple[str, int]]) -> Iterator[list[str]]:
    """Return the texts of the first pages of each shard, `TEXTS` at a time, in the order of `shown`."""
    texts = (
        document.text if len(document.text) <= CHARACTERS else f"{document.text[:CHARACTERS]} […]"
        for shard, count in shards
        for document in islice(read_documents(pool / shard), count)
    )
    while part := list(islice(texts, TEXTS)):
        yield part
