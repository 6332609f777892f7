"""Records by an index: only the WARC records that a table of file names and byte ranges lists are read.

The table is Parquet (Common Crawl's columnar index, or columns url, filename, offset, length), a CDX(J) file
as Common Crawl's index server gives it, or JSON lines; the last two may be gzip-compressed. It stands among
the WARC files of `crawl.warc`; to spread the work, split it.
"""

import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.common.stage import InputError
from pipeline.crawl.sources import RemoteFile, file_name, is_remote, open_source
from pipeline.crawl.warc import INCOMPLETE, Page, ReadCounts, read_stream

SUFFIXES = (".parquet", ".cdx", ".cdxj", ".cdx.gz", ".cdxj.gz", ".jsonl", ".jsonl.gz")
COLUMNS = {
    "url": ("url",),
    "filename": ("filename", "warc_filename"),
    "offset": ("offset", "warc_record_offset"),
    "length": ("length", "warc_record_length"),
}


@dataclass(frozen=True, order=True)
class Range:
    """One record: where it is, in stored bytes, and which URL the index says it has."""

    filename: str
    offset: int
    length: int
    url: str = ""


def is_index(path: str) -> bool:
    """Whether a source is a table of records, not a WARC file."""
    return path.endswith(SUFFIXES)


def read_index(path: str) -> list[Range]:
    """The records that an index lists, without repetition, by file and offset. Raises InputError."""
    rows = _parquet_rows(path) if path.endswith(".parquet") else _line_rows(path)
    ranges = set()
    for number, row in enumerate(rows, start=1):
        try:
            name, offset, length, url = (
                next(row[name] for name in COLUMNS[column] if name in row)
                for column in ("filename", "offset", "length", "url")
            )
            ranges.add(Range(str(name), int(offset), int(length), str(url)))
        except (StopIteration, RuntimeError, ValueError, TypeError, KeyError) as error:
            raise InputError(
                f"{path}: row {number}: needs url, filename, offset and length (or Common Crawl's names)"
            ) from error
    return sorted(ranges)


def _parquet_rows(path: str) -> Iterator[dict[str, object]]:
    names = {name for column in COLUMNS.values() for name in column}
    try:
        with open_source(path) as stream:
            file = pq.ParquetFile(stream)
            present = [name for name in file.schema_arrow.names if name in names]
            for batch in file.iter_batches(columns=present):
                yield from batch.to_pylist()
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: not a readable Parquet file ({error})") from error


def _line_rows(path: str) -> Iterator[dict[str, object]]:
    with open_source(path) as stream:
        data = stream.read()
    try:
        lines = (gzip.decompress(data) if path.endswith(".gz") else data).splitlines()
    except (OSError, EOFError) as error:
        raise InputError(f"{path}: not a whole gzip file ({error})") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield orjson.loads(line[line.index(b"{") :])  # behind the key and time of a CDXJ line
            except (ValueError, json.JSONDecodeError) as error:
                raise InputError(f"{path}: line {number}: no JSON object in it") from error


def read_indexed_pages(path: str, base_url: str, max_bytes: int, counts: ReadCounts) -> Iterator[Page]:
    """Yield a page for each record that an index lists; what is not there is a page with a flaw."""
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
    """Where a file of the index is: as named, beside the index, or behind `base_url`."""
    if is_remote(name) or Path(name).is_file():
        return name
    beside = "" if is_remote(index) else str(Path(index).parent / name)
    return beside if beside and Path(beside).is_file() else base_url + name
