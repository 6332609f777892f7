"""Read only the WARC records that an index lists by file name and byte range.

The index is Parquet (Common Crawl's columnar index, or columns url, filename, offset, length), a CDX(J) file
as Common Crawl's index server writes it, or JSON lines; the last two may be gzip-compressed. `crawl.warc`
lists it like a WARC file, and one job reads it; split it to use several jobs.
"""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.crawl.remote import RemoteFile
from pipeline.crawl.sources import file_name, follow, open_source, read_lines
from pipeline.crawl.warc import INCOMPLETE, Page, ReadCounts, read_stream
from pipeline.protocol.addresses import is_remote, public
from pipeline.protocol.stage import InputError

SUFFIXES = (".parquet", ".cdx", ".cdxj", ".cdx.gz", ".cdxj.gz", ".jsonl", ".jsonl.gz")
COLUMNS = {"filename": "warc_filename", "offset": "warc_record_offset", "length": "warc_record_length"}


@dataclass(frozen=True, order=True)
class Range:
    """One record: its place in stored bytes, and its URL according to the index."""

    filename: str
    offset: int
    length: int
    url: str = ""


def is_index(path: str) -> bool:
    """Whether a source is an index, not a WARC file."""
    return public(path).endswith(SUFFIXES)


def read_index(path: str) -> list[Range]:
    """Read the distinct records of an index, sorted by file and offset. Raises InputError."""
    rows = _parquet_rows(path) if public(path).endswith(".parquet") else _line_rows(path)
    ranges = set()
    for number, row in enumerate(rows, start=1):
        try:
            name, offset, length = (row[own if own in row else theirs] for own, theirs in COLUMNS.items())
            ranges.add(Range(str(name), int(offset), int(length), str(row["url"])))
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(
                f"{public(path)}: row {number}: needs url, filename, offset and length"
                " (or Common Crawl's names)"
            ) from error
    return sorted(ranges)


def _parquet_rows(path: str) -> Iterator[dict[str, object]]:
    names = {"url", *COLUMNS, *COLUMNS.values()}
    try:
        with open_source(path) as stream:
            file = pq.ParquetFile(stream)
            present = [name for name in file.schema_arrow.names if name in names]
            for batch in file.iter_batches(columns=present):
                yield from batch.to_pylist()
    except (OSError, ValueError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno:  # of the disk, not of what is in the file
            raise
        raise InputError(f"{public(path)}: not a readable Parquet file ({error})") from error


def _line_rows(path: str) -> Iterator[dict[str, object]]:
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip():
            try:
                yield orjson.loads(line[line.index("{") :])  # behind the key and time of a CDXJ line
            except (ValueError, json.JSONDecodeError) as error:
                raise InputError(f"{public(path)}: line {number}: no JSON object in it") from error


def read_indexed_pages(path: str, base_url: str, max_bytes: int, counts: ReadCounts) -> Iterator[Page]:
    """Yield a page for each record that an index lists; a missing record is a page with a flaw."""
    opened, file = "", None
    for record in read_index(path):
        address = _address(record.filename, path, base_url)
        if address != opened:
            opened, file = address, RemoteFile(address) if is_remote(address) else open_source(address)
        if isinstance(file, RemoteFile):
            data = file.read_range(record.offset, record.length)
        else:
            file.seek(record.offset)
            data = file.read(record.length)
        yield _one_page(data, record, max_bytes, counts)


def _one_page(data: bytes, record: Range, max_bytes: int, counts: ReadCounts) -> Page:
    name, within = file_name(record.filename), ReadCounts()
    found = next(read_stream(io.BytesIO(data), name, max_bytes, within), None)
    counts.records += 1
    if found is None:
        counts.lost_bytes += len(data)
        found = Page(record.url.encode(), name, 0, 0, "", b"", is_text=False, flaw=INCOMPLETE)
    found.offset, found.length = record.offset, record.length
    return found


def _address(name: str, index: str, base_url: str) -> str:
    """Find a file that an index names: as given, beside the index, or below `base_url`."""
    if is_remote(index) or is_remote(name) or Path(name).is_file():
        return follow(name, index, base_url)
    beside = Path(index).parent / name
    return str(beside) if beside.is_file() else base_url + name
