"""Files of rows of texts."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

Row = dict[str, Any]


def write(path: Path, rows: list[Row]) -> Path:
    """Write rows to a file of the kind that its name says."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=100)
    else:
        lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
        packed = {".zst": zstandard.compress, ".gz": gzip.compress}.get(path.suffix, bytes)
        path.write_bytes(packed(lines))
    return path


def counted(folder: Path) -> Row:
    return json.loads((folder / "manifest.json").read_text())["counts"]
