"""Rows of data: read from any source (shards, JSON lines, Parquet, hub data sets) in order and in constant
memory, or saved as batches that survive a kill. A JSON array is read as a whole.
"""

import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from pipeline.core.atomic import atomic_write
from pipeline.core.manifest import fingerprint
from pipeline.core.stage import InputError

T = TypeVar("T")
HUB = "hub:"
COLUMN = re.compile(r"\{([\w.]+)\}")  # in a value of `fields`
LACKING = object()  # the value of a column that a row lacks
FORMATS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
BOM = b"\xef\xbb\xbf"
NAMED = (".json", ".json.gz", ".json.zst")  # read where a source names the file: folders hold other ones too
BATCH_BYTES = 16 << 20  # of Parquet rows in memory, before they are decoded


def files_of(source: str) -> list[str]:
    """Return the parts of a source that can be read apart: a folder's files by name, or the source itself."""
    path = Path(source)
    if source.startswith(HUB) or not path.is_dir():
        return [source]
    files = sorted(str(file) for file in path.iterdir() if file.name.endswith(FORMATS))
    if not files:
        raise InputError(f"{path}: no {', '.join(FORMATS)} file in this folder")
    return files


def read_rows(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) for each row of a file, of a folder's files in name order, or of
    hub:<id>[/<config>]:<split>.

    `place` names file and line for messages. Raises InputError for a source that is missing or cannot be
    read, and for a line that is no row.
    """
    for place, row in read_rows_and_flaws(source):
        if isinstance(row, InputError):
            raise row
        yield place, row


def read_rows_and_flaws(source: str) -> Iterator[tuple[str, dict[str, Any] | InputError]]:
    """Return the same, with a line that is no row as the InputError that names it; the next lines follow."""
    if source.startswith(HUB):
        yield from _hub(source)
        return
    for file in files_of(source):
        path = Path(file)
        if not path.exists():
            raise InputError(f"{path}: no such file")
        if not path.name.endswith((*FORMATS, *NAMED)):
            raise InputError(f"{path}: unknown kind of file; known: {', '.join((*FORMATS, *NAMED))}")
        if path.suffix == ".parquet":
            yield from _parquet(path)
        else:
            yield from _json_array(path) if _is_array(path) else _json_lines(path)


def read_as(kind: type[T], source: str) -> Iterator[tuple[str, T]]:
    """(place, object) for each row of a source, as a dataclass. Raises InputError naming place and key."""
    adapter = TypeAdapter(kind)
    for place, row in read_rows(source):
        try:
            yield place, adapter.validate_python(row)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(f"{place}: not a {kind.__name__}, {where}: {first['msg']}") from error


def renamed(place: str, row: dict[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the row with `fields` (our name -> its column) applied; a renamed column loses its old name.

    A column's name may lead into objects: reward_model.ground_truth. Of a list of turns, which stands for a
    text, the user's last words are taken. Names in braces stand for their texts: {prompt} or {text}; of a
    list, one line for each. A row without a column keeps its value of our name; InputError if a text in
    braces lacks one and the row has no such value.
    """
    taken, values = set(fields.values()), {}
    for ours, theirs in fields.items():
        columns = COLUMN.findall(theirs)
        lacking = [column for column in columns or [theirs] if _value(row, column) is LACKING]
        if not lacking:
            values[ours] = (
                COLUMN.sub(lambda name: _lines(_value(row, name[1])), theirs)
                if columns
                else _last_question(_value(row, theirs), ours)
            )
        elif columns and ours not in row:
            has = ", ".join(row)
            raise InputError(f"{place}: no column {lacking[0]!r}, which `fields` names; the row has {has}")
    return {name: value for name, value in row.items() if name not in taken} | values


def _value(row: dict[str, Any], column: str) -> Any:
    """Return a column's value; a name with dots may lead into objects. `LACKING` if there is none."""
    if column in row:
        return row[column]
    value: Any = row
    for name in column.split("."):
        value = value.get(name, LACKING) if isinstance(value, dict) else LACKING
    return value


def _last_question(value: Any, ours: str) -> Any:
    """Return the user's last words where a list of turns stands for a text."""
    if ours in ("messages", "conversations") or not isinstance(value, list):
        return value
    turns = [turn for turn in value if isinstance(turn, dict) and turn.get("role") == "user"]
    return turns[-1].get("content") if turns else value


def _lines(value: Any) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of `size`; the last may be shorter."""
    rest = iter(items)
    return iter(lambda: list(islice(rest, size)), [])


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as JSON lines."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def raw_lines(path: Path) -> Iterator[bytes]:
    """Get the lines of a plain, gzip or zstd file (by suffix). Raises OSError if missing, damaged or cut."""
    with pa.input_stream(str(path), compression="detect") as stream:
        yield from io.BufferedReader(stream, 1 << 18)


def batch_path(folder: Path, name: str, settings: Any) -> Path:
    """Return the file of batch `name`. Its name ends in a hash of `settings`, which must hold all that
    decides the content: a changed setting makes a new batch, an unchanged one finds the earlier file.
    """
    return folder / f"{name}-{fingerprint(settings)}.jsonl"


def saved_batch(path: Path, make: Callable[[], list[Any]]) -> list[Any]:
    """Return the JSON rows of a batch: read from `path` (see `batch_path`), or made and saved there.

    The file appears whole or not at all, and ends in a digest; a damaged one is made again.
    """
    if path.exists() and (rows := _saved(path)) is not None:
        return rows
    made = [json.loads(json.dumps(row)) for row in make()]
    with atomic_write(path, durable=True) as partial, partial.open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in [*made, {"digest": fingerprint(made)}])
    return made


def _saved(path: Path) -> list[Any] | None:
    """Return the rows of a saved batch; None, told in one line, if they are not what was saved."""
    try:
        *rows, last = [json.loads(line) for line in raw_lines(path)]
        if last == {"digest": fingerprint(rows)}:
            return rows
    except (OSError, ValueError):
        pass
    print(f"{path}: damaged; this batch is made again", file=sys.stderr, flush=True)
    return None


def _json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any] | InputError]]:
    number = 0
    try:
        for number, line in enumerate(raw_lines(path), start=1):
            if line.strip():
                place = f"{path}: line {number}"
                try:
                    # Windows marks the first line
                    row = _object(line.decode("utf-8-sig" if number == 1 else "utf-8"), place)
                except UnicodeDecodeError as error:
                    yield place, InputError(f"{place}: not UTF-8 ({error.reason}); save it as UTF-8")
                except InputError as error:
                    yield place, error
                else:
                    yield place, row
    except (OSError, ValueError, MemoryError) as error:
        raise InputError(f"{path}: cannot be read after line {number} ({error or 'no memory'})") from error


def _is_array(path: Path) -> bool:
    """Say whether a file of JSON holds one array; a file of lines may have the same suffix."""
    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            return path.name.endswith(NAMED) and stream.read(4096).removeprefix(BOM).lstrip()[:1] == b"["
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error})") from error


def _json_array(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    place = f"{path}: item 1"
    try:
        rows = json.loads(b"".join(raw_lines(path)).decode("utf-8-sig"))
        for number, row in enumerate(rows, start=1):
            place = f"{path}: item {number}"
            json.dumps(row, ensure_ascii=False).encode()
            if not isinstance(row, dict):
                raise InputError(f"{place}: expected a JSON object in the array")
            yield place, row
    except UnicodeEncodeError as error:
        raise InputError(f"{place}: not Unicode, it has half of a surrogate pair") from error
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{path}: cannot be read as a JSON array ({error or 'no memory'})") from error


def _object(line: str, place: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
        if "\\ud" in line.lower():  # half of a surrogate pair is no character and cannot be written
            json.dumps(row, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        lines = "; each line is one object" if line.strip() in ("{", "[") else ""
        raise InputError(f"{place}: not JSON ({error.msg}){lines}") from error
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise InputError(f"{place}: not Unicode, it has half of a surrogate pair ({half!a})") from error
    except RecursionError as error:
        raise InputError(f"{place}: nested too deeply") from error
    if not isinstance(row, dict):
        raise InputError(f"{place}: expected a JSON object, one on each line")
    return row


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    number = 0
    try:
        file = pq.ParquetFile(path, buffer_size=1 << 20)
        groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
        largest = max((group.total_byte_size / max(group.num_rows, 1) for group in groups), default=1)
        for batch in file.iter_batches(batch_size=max(1, min(1024, int(BATCH_BYTES / max(largest, 1))))):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}: row {number}", row
    except (OSError, ValueError, OverflowError, MemoryError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read after row {number} ({error})") from error


def _hub(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    from datasets import load_dataset  # seconds to import, and most sources are files

    name, separator, split = source.removeprefix(HUB).partition(":")
    split, _, revision = split.partition("@")
    owner, _, rest = name.partition("/")
    dataset, _, configuration = rest.partition("/")
    if not (separator and dataset and split):
        raise InputError(f"{source}: expected hub:<owner>/<name>[/<config>]:<split>[@<revision>]")
    try:
        where = {"split": split, "revision": revision or None, "streaming": True}
        rows = load_dataset(f"{owner}/{dataset}", configuration or None, **where)
        for number, row in enumerate(rows, start=1):
            yield f"{source}: row {number}", dict(row)
    except Exception as error:  # the library raises many kinds; all mean that the data is not available
        raise InputError(f"{source}: cannot be loaded ({type(error).__name__}: {error})") from error
