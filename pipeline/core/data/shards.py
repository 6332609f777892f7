"""Document shards and tables: how stages hand pages to each other.

A shard is a `*.jsonl.zst` file with one datatrove `Document` a line, exactly as datatrove's `JsonlWriter`
writes it, so that datatrove's readers and blocks work on it. A table is a Parquet file with a fixed schema.
Both appear under their names only when complete. They hold no times or paths: equal content, equal bytes.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from datatrove.data import Document

from pipeline.core.atomic import atomic_write
from pipeline.core.data.rows import batched, raw_lines
from pipeline.core.stage import InputError

SUFFIX = ".jsonl.zst"
ZSTD_LEVEL = 3  # higher levels cost more time than the smaller shards save
ROWS = 65536  # of a table in memory, and of a row group
COLUMNS = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


class DocumentWriter(ExitStack):
    """Writes documents to a shard, which appears when the block of `with` ends without an error."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.count = path, 0

    def __enter__(self) -> Self:
        file = self.enter_context(self.enter_context(atomic_write(self.path)).open("wb"))
        compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
        self.stream = self.enter_context(compressor.stream_writer(file, closefd=False))
        return self

    def write(self, document: Document) -> None:
        """Append one document, without its empty fields, as datatrove does."""
        fields = {name: getattr(document, name) for name in ("text", "id", "media", "metadata")}
        filled = {name: value for name, value in fields.items() if value}
        self.write_line(orjson.dumps(filled, option=orjson.OPT_APPEND_NEWLINE))

    def write_line(self, line: bytes) -> None:
        """Append a document's line of another shard (`read_lines`)."""
        self.stream.write(line)
        self.count += 1


def join_shards(paths: Iterable[Path], target: Path) -> None:
    """Write the documents of several shards to one, which appears when it is complete."""
    with DocumentWriter(target) as writer:
        for path in paths:
            with path.open("rb") as file:
                zstandard.ZstdDecompressor().copy_stream(file, writer.stream)


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of one shard, a document each, in constant memory.

    Raises InputError with the file's name if the shard is missing or cut.
    """
    try:
        yield from raw_lines(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such shard; run the stage that writes it") from error
    except OSError as error:
        raise InputError(
            f"{path}: not a complete zstd shard ({error}); delete it and rerun its stage"
        ) from error


def read_documents(path: Path) -> Iterator[Document]:
    """Yield the documents of one shard, in order, in constant memory.

    Raises InputError with the file's name if the shard is missing, cut or not a document shard.
    """
    for number, line in enumerate(read_lines(path), start=1):
        try:
            fields = orjson.loads(line)
            media, metadata = fields.get("media", []), fields.get("metadata", {})
            text, identity = fields.get("text", ""), fields["id"]
            if not (isinstance(text, str) and isinstance(identity, str) and isinstance(metadata, dict)):
                raise TypeError("`text` and `id` must be texts, `metadata` an object")
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{path}: line {number} is not a document ({error}); delete it and rerun its stage"
            ) from error
        yield Document(text, identity, media, metadata)


def shard_paths(folder: Path) -> list[Path]:
    """Return the shards of a folder, in name order. Raises InputError if there is none."""
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    if not paths:
        raise InputError(f"{folder}: holds no *{SUFFIX}; expected a folder of document shards")
    return paths


def table_schema(**columns: type | pa.DataType) -> pa.Schema:
    """Make the schema of a table from its columns in order, with types of Python or of Arrow."""
    return pa.schema([(name, COLUMNS.get(kind, kind)) for name, kind in columns.items()])


def write_table(
    path: Path, rows: Iterable[dict[str, Any]], schema: pa.Schema, rows_per_group: int = ROWS
) -> int:
    """Write rows (dicts with the columns of `schema`) to a Parquet file; returns their number.

    Holds at most `rows_per_group` rows in memory.
    """
    groups = (pa.Table.from_pylist(some, schema) for some in batched(rows, rows_per_group))
    return write_row_groups(path, groups, schema)


def write_row_groups(path: Path, groups: Iterable[pa.Table], schema: pa.Schema) -> int:
    """Write tables to a Parquet file, each as a row group; returns the number of rows."""
    count = 0
    with atomic_write(path) as partial, pq.ParquetWriter(partial, schema, compression="zstd") as writer:
        for group in groups:
            writer.write_table(group)
            count += len(group)
    return count


def tables(folder: Path, name: str) -> list[Path]:
    """Return the files of a table that is one file, NAME.parquet, or parts in a folder, NAME/*.parquet."""
    parts = sorted((folder / name).glob("*.parquet"))
    return parts or [folder / f"{name}.parquet"]


def put_table(folder: Path, name: str, parts: list[Path]) -> None:
    """Make a table of finished parts by `link_file`; a single part is the whole table."""
    folder = folder if len(parts) == 1 else folder / name
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(parts):
        link_file(part, folder / (f"{name}.parquet" if len(parts) == 1 else f"{number:04d}.parquet"))


def link_file(path: Path, target: Path) -> None:
    """Give a finished file a second name; copy it to another file system. Raises InputError without it."""
    try:
        os.link(path.resolve(), target)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; make it again") from error
    except OSError:
        shutil.copyfile(path, target)


def read_table(path: Path, columns: list[str] | None = None) -> pa.Table:
    """Read a Parquet file, or some of its columns. Raises InputError with its name if it cannot be read."""
    with _readable(path):
        return pq.ParquetFile(path).read(columns=columns)


def rows_of(path: Path, shard: str, columns: list[str]) -> pa.Table:
    """Read some columns of a table's rows whose pages are in a shard of the pool. Raises InputError."""
    with _readable(path):
        return pq.read_table(path, columns=columns, filters=[("shard", "=", shard)])


def read_batches(path: Path, rows: int) -> Iterator[pa.RecordBatch]:
    """Return the rows of a Parquet file in order, at most `rows` at a time; one empty batch if there are
    none. Raises InputError as `read_table` does.
    """
    with _readable(path), pq.ParquetFile(path) as file:
        if not file.metadata.num_rows:
            yield pa.RecordBatch.from_pylist([], file.schema_arrow)
        yield from file.iter_batches(rows)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such table; run the stage that writes it") from error
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a readable Parquet file ({error})") from error
