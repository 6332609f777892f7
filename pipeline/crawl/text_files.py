"""Read files of texts as pages: Parquet or JSON lines whose rows have a text and a URL (ours: FineWeb,
OpenWebMath or an extraction of one's own enters the corpus without WARC files).

A row is to such a file what a record is to a WARC file: it becomes a page or a rejection with a reason, and
its number, from 0, is its place.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.crawl.sources import file_name
from pipeline.crawl.warc import Page, ReadCounts, digest_of
from pipeline.data.rows import read_rows
from pipeline.protocol.errors import InputError

COLUMNS = {"text": "text", "url": "url"}  # unless they are given
NO_TEXT, BAD_TYPE, REPEATED_ID = "no_text", "bad_type", "repeated_id"  # why rows are rejected


def read_text_pages(
    path: str, fields: Mapping[str, str], max_bytes: int, counts: ReadCounts
) -> Iterator[Page]:
    """Yield the rows of a file in order, and count them; a text of more than `max_bytes` is rejected.
    `fields`: what `crawl.fields` says.

    Raises InputError that names the file and the column where the first row lacks a column.
    """
    columns = COLUMNS | dict(fields)
    name, seen = file_name(path), set[str | int]()
    for number, (place, row) in enumerate(read_rows(path)):
        if number == 0:
            _check_columns(place, row, columns)
        counts.records += 1
        values = {key: row.get(column) for key, column in columns.items()}
        url = None if values["url"] is None else str(values["url"]).encode()
        page = Page(url, name, number, 0, "", b"", is_text=True, flaw=_flaw(values, seen))
        if page.flaw is None:
            page.payload = values["text"].encode()
            page.digest = digest_of(page.payload)
            page.language = values.get("language")
            page.flaw = "too_large" if len(page.payload) > max_bytes else None
        yield page


def _check_columns(place: str, row: dict[str, Any], columns: dict[str, str]) -> None:
    for key, column in columns.items():
        if column not in row:
            found = ", ".join(row)
            raise InputError(f"{place}: no column {column!r} (crawl.fields.{key}); it has {found}"[:500])


def _flaw(values: dict[str, Any], seen: set[str | int]) -> str | None:
    """Say why a row is no page, if it is none; `seen`: the ids before it, to which its own is added."""
    if values["text"] is None:
        return NO_TEXT
    identity, language = values.get("id"), values.get("language")
    if not isinstance(values["text"], str) or not isinstance(language, str | None):
        return BAD_TYPE
    if not isinstance(identity, str | int | None):
        return BAD_TYPE
    if identity in seen:
        return REPEATED_ID
    if identity is not None:
        seen.add(identity)
    return None
