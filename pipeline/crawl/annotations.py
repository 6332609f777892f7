"""Reviewed URL prefixes (paper section 2.1, step 4): verdicts on all pages below them.

`math`: the pages are mathematics. `not_math`: none is. `unsure`: somebody looked, and the classifier shall
decide page by page.

A prefix ends with a part of the path: `a.org/b` covers `a.org/b`, `a.org/b/c` and `a.org/b?c`, not
`a.org/bc`. `www.` counts, scheme, fragment and the host's case do not. The longest prefix of a URL decides.
"""

import csv
import sys
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from pipeline.core.data.database import Database
from pipeline.core.stage import InputError

MATH, NOT_MATH, UNSURE = VERDICTS = ("math", "not_math", "unsure")  # nothing follows from the last
NAMED = 5  # prefixes that a message names
# place(url): host, path and query, as prefixes are written; owned(url): without `www.` and port, because an
# owner opts out of all alike; root(place): its host.
MACROS = """
CREATE OR REPLACE MACRO bare(url) AS
    split_part(regexp_replace(url, '^[A-Za-z][A-Za-z0-9+.-]*://', ''), '#', 1);
CREATE OR REPLACE MACRO host(bare) AS split_part(bare, '/', 1);
CREATE OR REPLACE MACRO place(url) AS rtrim(
    lower(host(bare(url))) || substr(bare(url), length(host(bare(url))) + 1), '/');
CREATE OR REPLACE MACRO owned(url) AS regexp_replace(place(url), '^(?:www[.])?([^/?:]*)(?::[0-9]*)?', '\\1');
CREATE OR REPLACE MACRO root(place) AS regexp_extract(place, '^[^/?]*');
"""
FIND = """
SELECT id, max_by(prefix, length(prefix)) AS prefix, max_by(verdict, length(prefix)) AS verdict
FROM (SELECT id, {place}(url) AS place FROM {pages}) JOIN {prefixes} ON root(place) = root
WHERE place = prefix OR starts_with(place, prefix || '/') OR starts_with(place, prefix || '?')
GROUP BY id
"""


def add_prefixes(
    database: Database, table: str, rows: Iterable[tuple[str, str]], place: str = "place"
) -> None:
    """Create `table` (prefix, verdict, root) from (prefix, verdict) pairs; `place`: the macro that counts."""
    schema = pa.schema([("url", pa.string()), ("verdict", pa.string())])
    given = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
    database.execute(MACROS)
    database.register("given", given)
    database.execute(
        f"CREATE TABLE {table} AS SELECT DISTINCT {place}(url) AS prefix, verdict, root({place}(url)) AS root"
        f" FROM given WHERE {place}(url) <> ''"
    )
    database.unregister("given")


def covered(pages: str, prefixes: str, place: str = "place") -> str:
    """Give SQL for (id, prefix, verdict) of rows of `pages` (id, url) that a prefix of `prefixes` covers."""
    return FIND.format(pages=pages, prefixes=prefixes, place=place)


def add_annotations(database: Database, table: str, *paths: Path) -> None:
    """`add_prefixes` of files `prefix, verdict, annotator, date, evidence`, tab-separated with a header.

    Prefixes without a verdict are left out; where annotators disagree, the verdict is `unsure`. Both are
    said.
    Raises InputError that names the line.
    """
    database.execute(MACROS)
    given: dict[str, dict[str, str]] = {}  # place -> annotator -> verdict
    for path in paths:
        rows = list(read_annotations(path))
        for row, prefix in zip(rows, places(database, [row["prefix"] for _, row in rows]), strict=True):
            number, verdict = row[0], row[1]["verdict"]
            found = given.setdefault(prefix, {}) if verdict else {}
            if found.setdefault(row[1]["annotator"], verdict) != verdict:
                raise InputError(f"{path}: line {number}: {row[1]['prefix']} has another verdict further up")
        if missing := sum(not row["verdict"] for _, row in rows):
            warn(f"{path}: {missing} of {len(rows)} prefixes have no verdict; they are left out")
    disputed = {prefix: found for prefix, found in given.items() if len(set(found.values())) > 1}
    if disputed:
        names = [
            f"{prefix} ({', '.join(map(': '.join, found.items()))})" for prefix, found in disputed.items()
        ]
        warn(f"annotators disagree on {counted(names)}; these count as {UNSURE}")
    decided = {
        prefix: UNSURE if prefix in disputed else next(iter(found.values()))
        for prefix, found in given.items()
    }
    add_prefixes(database, table, decided.items())


def places(database: Database, urls: list[str]) -> list[str]:
    """Host, path and query of each URL, as prefixes are compared. `MACROS` come first."""
    if not urls:
        return []
    return [place for (place,) in database.execute("SELECT place(unnest(?))", [urls]).fetchall()]


def counted(names: list[str]) -> str:
    """Count prefixes and name the first of them."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{len(names)} prefix{'es' * (len(names) > 1)}: {', '.join(names[:NAMED])}{more}"


def warn(text: str) -> None:
    """Say it where the log is kept."""
    print(f"warning: {text}", file=sys.stderr, flush=True)


def read_annotations(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, row) of an annotation file, as an editor or a spreadsheet saves it: with or without byte-order
    mark, in UTF-8 or UTF-16. `verdict` and `annotator` may be empty. Raises InputError.
    """
    try:
        with path.open("rb") as file:
            encoding = "utf-16" if file.read(2) in (BOM_UTF16_LE, BOM_UTF16_BE) else "utf-8-sig"
        with path.open(newline="", encoding=encoding) as file:
            reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            if not {"prefix", "verdict"} <= set(reader.fieldnames or ()):
                raise InputError(
                    f"{path}: its first line must name the columns prefix and verdict, tab-separated"
                )
            for line in reader:
                cells = {name: _cell(value) for name, value in line.items() if isinstance(name, str)}
                row = {"annotator": ""} | cells
                if not any(cells.values()):
                    continue
                if not row["prefix"] or row["verdict"] not in ("", *VERDICTS):
                    raise InputError(
                        f"{path}: line {reader.line_num}: expected a prefix and one of {VERDICTS} or none, "
                        f"got {row['prefix']!r}, {row['verdict']!r}"
                    )
                yield reader.line_num, row
    except (OSError, UnicodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error


def _cell(value: str | None) -> str:
    """Return a cell without the quotes that a spreadsheet puts around a comma."""
    text = (value or "").strip()
    return text[1:-1].replace('""', '"') if len(text) > 1 and text[0] == text[-1] == '"' else text
