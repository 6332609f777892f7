"""The scored pages of the pool, and which of them may be kept.

A page is never kept, whatever its score, if its owner opted out, its domain is on a blocklist, or a reviewer
found pages under its prefix not to be mathematical. Best score first; equal scores in the order of `tie`, a
hash of the page's id, then of the id.

Blocklists are files of one domain a line, which covers its subdomains.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from pipeline.core.data.database import Database, parquet
from pipeline.core.data.shards import table_schema
from pipeline.crawl.annotations import NOT_MATH, add_annotations, add_prefixes, counted, covered, warn
from pipeline.crawl.opted_out import read_urls

OPT_OUT, BLOCKED = "opt_out", "blocklist"
OWNED = covered("pages", "opt_out", "owned")
RANKED = "ORDER BY score DESC, tie, id"
EXCLUDED = table_schema(id=str, url=str, reason=str)
TABLES = f"""
CREATE TABLE reviewed AS {covered("pages", "annotations")};
CREATE TABLE excluded AS
SELECT id, '{OPT_OUT}' AS reason FROM ({OWNED})
UNION ALL BY NAME
SELECT id, '{BLOCKED}' AS reason FROM blocked WHERE id NOT IN (SELECT id FROM ({OWNED}))
UNION ALL BY NAME
SELECT id, '{NOT_MATH}' AS reason FROM reviewed WHERE verdict = '{NOT_MATH}'
    AND id NOT IN (SELECT id FROM ({OWNED})) AND id NOT IN (SELECT id FROM blocked);
CREATE VIEW candidates AS SELECT * FROM pages WHERE id NOT IN (SELECT id FROM excluded);
"""
ON_LISTED_DOMAINS = """
CREATE TABLE blocked AS
WITH hosts AS (SELECT DISTINCT root(place(url)) AS host FROM pages),
split AS (SELECT host, string_split(regexp_replace(host, ':[0-9]*$', ''), '.') AS parts FROM hosts),
parents AS (
    SELECT host, unnest(list_transform(range(1, len(parts)), start -> array_to_string(parts[start:], '.')))
        AS domain FROM split)
SELECT id FROM pages WHERE root(place(url)) IN (SELECT host FROM parents JOIN blocklist USING (domain))
"""
# Reviewed prefixes without a page, and what has some but for `www.`, else NULL.
UNMATCHED = """
WITH missing AS (
    SELECT prefix, CASE WHEN starts_with(prefix, 'www.') THEN prefix[5:] ELSE 'www.' || prefix END AS other
    FROM annotations WHERE prefix NOT IN (SELECT prefix FROM reviewed)),
tried AS (
    SELECT prefix, name, root(name) AS root
    FROM (SELECT prefix, unnest([prefix, other]) AS name FROM missing)),
found AS (
    SELECT DISTINCT prefix, name FROM (SELECT place(url) AS place FROM pages) JOIN tried ON root(place) = root
    WHERE place = name OR starts_with(place, name || '/') OR starts_with(place, name || '?'))
SELECT prefix, max(name) FROM missing LEFT JOIN found USING (prefix)
GROUP BY prefix HAVING NOT coalesce(bool_or(name = prefix), false) ORDER BY prefix
"""


def add_blocked(database: Database, files: Sequence[str | Path]) -> None:
    """Create `blocked` (id): the rows of `pages` on listed domains. Raises InputError."""
    if not files:
        database.execute("CREATE TABLE blocked (id VARCHAR)")
        return
    domains = {domain.lower() for file in files for domain in read_urls(Path(file))}
    database.register("blocklist", pa.table([pa.array(domains, pa.string())], ["domain"]))
    database.execute(ON_LISTED_DOMAINS)
    database.unregister("blocklist")


def unmatched(database: Database) -> dict[str, str | None]:
    """Warn of reviewed prefixes without a page; returns them, each with the one that has but for `www.`."""
    found = dict(database.execute(UNMATCHED).fetchall())
    names = [f"{prefix} (pages are under {other})" if other else prefix for prefix, other in found.items()]
    if names:
        warn(f"reviewed prefixes match no page, {counted(names)}")
    return found


def add_pages(
    database: Database,
    scores: list[Path],
    annotations: Iterable[Path],
    opted_out: Iterable[str],
    blocklists: Sequence[str | Path] = (),
) -> None:
    """Create `pages` (the rows of all score tables), `reviewed` (id, prefix, verdict) of those under a
    reviewed prefix, `excluded` (id, reason) and `candidates`, the pages that may be kept. `opted_out`:
    prefixes; `blocklists`: files of domains.
    """
    database.execute(f"CREATE VIEW pages AS SELECT * FROM {parquet(*scores)}")
    add_annotations(database, "annotations", *annotations)
    add_prefixes(database, "opt_out", ((prefix, OPT_OUT) for prefix in opted_out), "owned")
    add_blocked(database, blocklists)
    database.execute(TABLES)
