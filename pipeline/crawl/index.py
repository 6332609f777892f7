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
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.core.addresses import is_remote, public
from pipeline.core.data.rows import batched
from pipeline.core.data.shards import table_schema
from pipeline.core.stage import InputError
from pipeline.crawl.remote import RemoteFile
from pipeline.crawl.sources import file_name, follow, open_source, read_lines
from pipeline.crawl.warc import INCOMPLETE, Page, ReadCounts, read_stream

SUFFIXES = (".parquet", ".cdx", ".cdxj", ".cdx.gz", ".cdxj.gz", ".jsonl", ".jsonl.gz")
COLUMNS = {"filename": "warc_filename", "offset": "warc_record_offset", "length": "warc_record_length"}
RECORDS = table_schema(file=pa.int32(), offset=int, length=int, url=pa.large_string())
BATCH = 10_000  # records that are objects at a time
MOST = 2**62  # bytes of a file


@dataclass(frozen=True)
class Range:
    """One record: its place in stored bytes, and its URL according to the index."""

    filename: str
    offset: int
    length: int
    url: str = ""


def is_index(path: str) -> bool:
    """Whether a source is an index, not a WARC file."""
    return public(path).endswith(SUFFIXES)


@dataclass(frozen=True)
class Index:
    """The distinct records of an index, by file, offset, length and URL. A table holds them, since millions
    of objects take gigabytes; its column `file` has numbers in `names`.
    """

    path: str
    names: list[str]
    table: pa.Table

    def __iter__(self) -> Iterator[Range]:
        last = None
        for batch in self.table.to_batches(BATCH):
            for file, *rest in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                record = Range(self.names[file], *rest)
                if record != last:
                    yield record
                last = record


def read_index(path: str) -> Index:
    """Read the records of an index. Raises InputError."""
    numbers: dict[str, int] = {}

    def batch(some: list[Range]) -> pa.RecordBatch:
        rows = [vars(one) | {"file": numbers.setdefault(one.filename, len(numbers))} for one in some]
        return pa.RecordBatch.from_pylist(rows, RECORDS)

    table, names = pa.Table.from_batches(map(batch, batched(_ranges(path), BATCH)), RECORDS), sorted(numbers)
    place = {name: number for number, name in enumerate(names)}
    files = pc.take(pa.array([place[name] for name in numbers], pa.int32()), table["file"])
    table = table.set_column(0, RECORDS.field("file"), files)
    return Index(path, names, table.sort_by([(name, "ascending") for name in RECORDS.names]))


def _ranges(path: str) -> Iterator[Range]:
    rows = _parquet_rows(path) if public(path).endswith(".parquet") else _line_rows(path)
    for number, row in enumerate(rows, start=1):
        try:
            name, offset, length = (row[own if own in row else theirs] for own, theirs in COLUMNS.items())
            record = Range(str(name), int(offset), int(length), str(row["url"]))
            if not (0 <= record.offset <= MOST and 0 <= record.length <= MOST):
                raise ValueError
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(
                f"{public(path)}: row {number}: needs url, filename, offset and length"
                " (or Common Crawl's names)"
            ) from error
        yield record


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


def read_indexed_pages(index: Index, base_url: str, max_bytes: int, counts: ReadCounts) -> Iterator[Page]:
    """Yield a page for each record that an index lists; a missing record is a page with a flaw."""
    opened, file = "", None
    for record in index:
        address = _address(record.filename, index.path, base_url)
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
