"""Joins of tables that need not fit into memory: DuckDB on Parquet files.

What a query gives must not depend on threads or memory: each one whose order counts says ORDER BY, over
columns that decide it.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.data.shards import ROWS, write_row_groups
from pipeline.core.errors import InputError

Database = duckdb.DuckDBPyConnection
LEAST_MEMORY = 0.2  # GB of each thread, below which DuckDB gives up
READ: list[str] = []  # Parquet files that queries of the open database name

# What bad files and too little memory or disk end in; a damaged header of a page ends in the plain class.
INPUT = (duckdb.IOException, duckdb.InvalidInputException, duckdb.OutOfMemoryException, duckdb.Error)


@contextmanager
def database(folder: Path, launch: dict[str, Any]) -> Iterator[Database]:
    """Return an empty database that holds at most `launch["join_memory"]` GB; what is above goes to `folder`,
    which is emptied at the start and goes at the end.

    Raises InputError for a file that is missing or cannot be read: with its name where it is damaged, and
    DuckDB's first line.
    """
    READ.clear()
    rmtree(folder, ignore_errors=True)
    threads, memory = launch.get("threads", 1), launch.get("join_memory", 1.0)
    settings = {
        "threads": max(1, min(threads, int(memory / LEAST_MEMORY))),
        "memory_limit": f"{memory:g}GB",
        "temp_directory": str(folder),
        "autoinstall_known_extensions": False,  # nothing is downloaded
        "autoload_known_extensions": False,
    }
    try:
        with duckdb.connect(config=settings) as connection:
            connection.execute("SET enable_progress_bar = false")
            yield connection
    except duckdb.Error as error:
        if type(error) not in INPUT:
            raise
        raise InputError(f"{_damaged()}{str(error).splitlines()[0]} (DuckDB)") from error
    finally:
        rmtree(folder, ignore_errors=True)


def _damaged() -> str:
    """Name the file that Arrow cannot read either, which DuckDB seldom does; some of all if it reads each."""
    for path in dict.fromkeys(READ):
        try:
            for _ in pq.ParquetFile(path).iter_batches():
                pass
        except (OSError, pa.ArrowException):
            return f"{path}: "
    names = list(dict.fromkeys(READ))
    return f"one of {len(names)} tables ({', '.join(names[:5])}): " if names else ""


def parquet(*paths: Path | str, **options: bool) -> str:
    """Write SQL that reads Parquet files of one schema as a table; `options`: as `filename` of DuckDB."""
    READ.extend(map(str, paths))
    given = [quoted(paths), *(f"{key} = {value}" for key, value in options.items())]
    return f"read_parquet({', '.join(given)})"


def quoted(paths: Iterable[Path | str]) -> str:
    """Return the list of these paths in SQL."""
    return "[{}]".format(", ".join("'{}'".format(str(path).replace("'", "''")) for path in paths))


def save(path: Path, query: duckdb.DuckDBPyConnection, schema: pa.Schema) -> int:
    """Write the rows of an executed query to a Parquet file, as `write_table` does; returns their number."""
    batches = query.fetch_record_batch(ROWS)
    return write_row_groups(path, (pa.Table.from_batches([batch]).cast(schema) for batch in batches), schema)
