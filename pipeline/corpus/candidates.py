"""The scored pages of the pool, and which of them may be kept.

A page is never kept, whatever its score, if its owner opted out or a reviewer found pages under its prefix
not to be mathematical. Best score first; equal scores in the order of `tie`, a hash of the page's id, then
of the id.
"""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from pipeline.common.database import Database, parquet, save
from pipeline.crawl.annotations import add_annotations, add_prefixes, covered

OPT_OUT, NOT_MATH = "opt_out", "not_math"
RANKED = "ORDER BY score DESC, tie, id"
EXCLUDED = pa.schema([("id", pa.string()), ("url", pa.string()), ("reason", pa.string())])
TABLES = f"""
CREATE TABLE reviewed AS {covered("pages", "annotations")};
CREATE TABLE excluded AS
SELECT id, '{OPT_OUT}' AS reason FROM ({covered("pages", "opt_out")})
UNION ALL BY NAME
SELECT id, '{NOT_MATH}' AS reason FROM reviewed WHERE verdict = '{NOT_MATH}'
    AND id NOT IN (SELECT id FROM ({covered("pages", "opt_out")}));
CREATE VIEW candidates AS SELECT * FROM pages WHERE id NOT IN (SELECT id FROM excluded);
"""


def add_pages(
    database: Database, scores: list[Path], annotations: Iterable[Path], opted_out: Iterable[str]
) -> None:
    """Create `pages` (the rows of all score tables), `reviewed` (id, prefix, verdict) of those under a
    reviewed prefix, `excluded` (id, reason) and `candidates`, the pages that may be kept. `opted_out`:
    prefixes.
    """
    database.execute(f"CREATE VIEW pages AS SELECT * FROM {parquet(*scores)}")
    add_annotations(database, "annotations", *annotations)
    add_prefixes(database, "opt_out", ((prefix, OPT_OUT) for prefix in opted_out))
    database.execute(TABLES)


def write_excluded(path: Path, database: Database) -> dict[str, int]:
    """Write the pages that are never kept; returns their number by reason."""
    save(
        path,
        database.execute(f"SELECT id, url, reason FROM pages JOIN excluded USING (id) {RANKED}"),
        EXCLUDED,
    )
    counts = "SELECT reason, count(*) FROM excluded GROUP BY reason ORDER BY reason"
    return dict(database.execute(counts).fetchall())
