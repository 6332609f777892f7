"""Reviewed URL prefixes (paper section 2.1, step 4): verdicts on all pages below them.

A prefix ends with a part of the path: `a.org/b` covers `a.org/b`, `a.org/b/c` and `a.org/b?c`, not
`a.org/bc`. `www.` counts, scheme, fragment and the host's case do not. The longest prefix of a URL decides.
"""

import csv
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from pipeline.common.database import Database
from pipeline.common.stage import InputError

VERDICTS = ("math", "not_math")
# place(url): host, path and query, as prefixes are written; root(place): its host.
MACROS = """
CREATE OR REPLACE MACRO bare(url) AS
    split_part(coalesce(nullif(substr(url, nullif(strpos(url, '://'), 0) + 3), ''), url), '#', 1);
CREATE OR REPLACE MACRO host(bare) AS split_part(bare, '/', 1);
CREATE OR REPLACE MACRO place(url) AS rtrim(
    lower(host(bare(url))) || substr(bare(url), length(host(bare(url))) + 1), '/');
CREATE OR REPLACE MACRO root(place) AS regexp_extract(place, '^[^/?]*');
"""
FIND = """
SELECT id, max_by(prefix, length(prefix)) AS prefix, max_by(verdict, length(prefix)) AS verdict
FROM (SELECT id, place(url) AS place FROM {pages}) JOIN {prefixes} ON root(place) = root
WHERE place = prefix OR starts_with(place, prefix || '/') OR starts_with(place, prefix || '?')
GROUP BY id
"""


def add_prefixes(database: Database, table: str, rows: Iterable[tuple[str, str]]) -> None:
    """Create `table` (prefix, verdict, root) from (prefix, verdict) pairs."""
    schema = pa.schema([("url", pa.string()), ("verdict", pa.string())])
    given = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
    database.execute(MACROS)
    database.register("given", given)
    database.execute(
        f"CREATE TABLE {table} AS SELECT DISTINCT place(url) AS prefix, verdict, root(place(url)) AS root"
        " FROM given WHERE place(url) <> ''"
    )
    database.unregister("given")


def covered(pages: str, prefixes: str) -> str:
    """SQL: (id, prefix, verdict) of each row of `pages` (id, url) whose URL a prefix of `prefixes` covers."""
    return FIND.format(pages=pages, prefixes=prefixes)


def add_annotations(database: Database, table: str, *paths: Path) -> None:
    """`add_prefixes` of files `prefix, verdict, annotator, date, evidence`, tab-separated with a header.
    Raises InputError that names the line.
    """
    rows = [(path, *row) for path in paths for row in _rows(path)]
    add_prefixes(database, table, ((prefix, verdict) for _, _, prefix, verdict in rows))
    twice = f"SELECT prefix FROM {table} GROUP BY prefix HAVING count(*) > 1"
    again = {prefix for (prefix,) in database.execute(twice).fetchall()}
    seen: dict[str, str] = {}
    for path, line, prefix, verdict in rows if again else ():
        ((place,),) = database.execute("SELECT place(?)", [prefix]).fetchall()
        if place in again and seen.setdefault(place, verdict) != verdict:
            raise InputError(f"{path}: line {line}: {prefix} has another verdict further up")


def _rows(path: Path) -> Iterable[tuple[int, str, str]]:
    """(line, prefix, verdict) of an annotation file."""
    try:
        with path.open(newline="") as file:
            reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            if not {"prefix", "verdict"} <= set(reader.fieldnames or ()):
                raise InputError(
                    f"{path}: its first line must name the columns prefix and verdict, tab-separated"
                )
            for row in reader:
                prefix, verdict = row["prefix"].strip(), row["verdict"]
                if not prefix or verdict not in VERDICTS:
                    raise InputError(
                        f"{path}: line {reader.line_num}: expected a prefix and one of {VERDICTS}, "
                        f"got {prefix!r}, {verdict!r}"
                    )
                yield reader.line_num, prefix, verdict
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error
