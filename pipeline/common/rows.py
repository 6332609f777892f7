"""Rows of any source of data: shards, JSON lines, Parquet and hub data sets, in order, in constant memory."""

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from pipeline.common.stage import InputError

HUB = "hub:"
FORMATS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
Row = dict[str, Any]


def files_of(source: str) -> list[str]:
    """The parts of a source that can be read apart: a folder's files in name order, or the source itself."""
    path = Path(source)
    if source.startswith(HUB) or not path.is_dir():
        return [source]
    files = sorted(str(file) for file in path.iterdir() if file.name.endswith(FORMATS))
    if not files:
        raise InputError(f"{path}: no {', '.join(FORMATS)} file in this folder")
    return files


def read_rows(source: str) -> Iterator[tuple[str, Row]]:
    """(place, row) for each row of a file, of a folder's files in name order, or of
    hub:<id>[/<config>]:<split>.

    `place` names file and line for messages. Raises InputError for a source that is missing or cannot be
    read.
    """
    if source.startswith(HUB):
        yield from _hub(source)
        return
    for file in files_of(source):
        path = Path(file)
        if not path.exists():
            raise InputError(f"{path}: no such file")
        if not path.name.endswith(FORMATS):
            raise InputError(f"{path}: unknown kind of file; known: {', '.join(FORMATS)}")
        yield from _parquet(path) if path.suffix == ".parquet" else _json_lines(path)


def _json_lines(path: Path) -> Iterator[tuple[str, Row]]:
    number = 0
    try:
        with path.open("rb") as file:
            stream: Any = file
            if path.suffix == ".gz":
                stream = gzip.GzipFile(fileobj=file)
            elif path.suffix == ".zst":
                stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
            for number, line in enumerate(io.TextIOWrapper(stream, encoding="utf-8"), start=1):
                if line.strip():
                    yield f"{path}: line {number}", _object(line, f"{path}: line {number}")
    except (OSError, EOFError, ValueError, zstandard.ZstdError) as error:
        raise InputError(f"{path}: cannot be read after line {number} ({error})") from error


def _object(line: str, place: str) -> Row:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{place}: not JSON ({error.msg})") from error
    if not isinstance(row, dict):
        raise InputError(f"{place}: expected a JSON object")
    return row


def _parquet(path: Path) -> Iterator[tuple[str, Row]]:
    number = 0
    try:
        for batch in pq.ParquetFile(path).iter_batches(batch_size=1024):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}: row {number}", row
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"{path}: cannot be read after row {number} ({error})") from error


def _hub(source: str) -> Iterator[tuple[str, Row]]:
    from datasets import load_dataset  # seconds to import, and most sources are files

    name, separator, split = source.removeprefix(HUB).partition(":")
    owner, _, rest = name.partition("/")
    dataset, _, configuration = rest.partition("/")
    if not (separator and dataset and split):
        raise InputError(f"{source}: expected hub:<owner>/<name>[/<config>]:<split>")
    try:
        rows = load_dataset(f"{owner}/{dataset}", configuration or None, split=split, streaming=True)
        for number, row in enumerate(rows, start=1):
            yield f"{source}: row {number}", dict(row)
    except Exception as error:  # the library raises many kinds; all mean that the data cannot be had
        raise InputError(f"{source}: cannot be loaded ({type(error).__name__}: {error})") from error
