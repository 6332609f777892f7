"""Score texts with a trained classifier and keep those above its cut: `dsm classify`.

The rows of INPUT are texts, as those of `crawl.texts`. For each file OUTPUT gets `kept/NAME`, the rows above
the cut with all their columns and the score as `math_score`, in the kind of file that they came in; and
`scores/NAME.parquet`, for each row its score (null: no text) and whether it is kept. A finished file is not
read again, so a command that was interrupted goes on.
"""

import argparse
import json
import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.atomic import atomic_write
from pipeline.core.data.rows import batched, files_of, read_rows
from pipeline.core.data.shards import ROWS, read_batches, read_table, table_schema, write_table
from pipeline.core.data.workers import map_forked
from pipeline.core.errors import InputError
from pipeline.core.folders import check_writable, held
from pipeline.core.manifest import write_json
from pipeline.core.progress import Progress
from pipeline.corpus.convergence import read_notes
from pipeline.corpus.trained import SCORE, Judgement, TrainedClassifier, open_trained

BATCH = 512  # rows that a worker judges at once
NOTES = "classify.json"
BEGUN = ("kept/.*.partial", "scores/.*.partial", "scores/.*.parquet")  # files of a command that was killed
COMPRESSION = {".gz": "gzip", ".zst": "zstd"}
ROW_SCORES = table_schema(score=float, kept=bool)
Texts = list[Any]  # of rows; some are none
Batch = pa.RecordBatch | list[dict[str, Any]]


def judge_rows(texts: Texts, classifier: TrainedClassifier) -> list[Judgement | None]:
    """Judge texts; None for what is none."""
    return [classifier.judge(text) if isinstance(text, str) and text.strip() else None for text in texts]


def batches_of(path: Path, column: str) -> Iterator[tuple[Texts, Batch]]:
    """Read a file's rows in batches, with their texts. Raises InputError."""
    if path.suffix == ".parquet":
        for number, batch in enumerate(read_batches(path, BATCH)):
            if not number:
                check_columns(path, batch.schema.names, column)
            yield batch.column(column).to_pylist(), batch
        return
    rows = (row for _, row in read_rows(str(path)))
    for number, some in enumerate(batched(rows, BATCH)):
        if not number:
            check_columns(path, list(some[0]), column)
        yield [row.get(column) for row in some], some


def check_columns(path: Path, names: list[str], column: str) -> None:
    """Raise InputError where a file lacks the column of texts, or has the one that is added."""
    if column not in names:
        raise InputError(f"{path}: no column {column!r} (--text); it has {', '.join(names)}"[:500])
    if SCORE in names:
        raise InputError(f"{path}: has a column {SCORE} already; rename it first")


def schema_of(path: Path) -> pa.Schema:
    """Read the schema of a Parquet file. Raises InputError."""
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a readable Parquet file ({error})") from error


@contextmanager
def kept_rows(path: Path, target: Path) -> Iterator[Callable[[Batch, list[Judgement | None]], None]]:
    """Write rows that are kept of a file to another of the same kind, which appears when it is whole."""
    with atomic_write(target) as whole:
        if path.suffix == ".parquet":
            field = pa.field(SCORE, pa.float64())
            schema, waiting = schema_of(path).append(field), list[pa.Table]()
            with pq.ParquetWriter(whole, schema, compression="zstd") as table:

                def write(batch: Batch, found: list[Judgement | None]) -> None:
                    scores = pa.array([one and one.score for one in found], field.type)
                    kept = pa.array([bool(one and one.kept) for one in found], pa.bool_())
                    rows = pa.Table.from_batches([batch]).append_column(field, scores)
                    waiting.append(rows.filter(kept))
                    if sum(map(len, waiting)) >= ROWS:
                        table.write_table(pa.concat_tables(waiting))
                        waiting.clear()

                yield write
                if any(map(len, waiting)):
                    table.write_table(pa.concat_tables(waiting))
            return
        with pa.output_stream(str(whole), compression=COMPRESSION.get(path.suffix)) as lines:

            def write_lines(batch: Batch, found: list[Judgement | None]) -> None:
                for row, one in zip(batch, found, strict=True):
                    if one and one.kept:
                        lines.write(json.dumps(row | {SCORE: one.score}, ensure_ascii=False).encode() + b"\n")

            yield write_lines


def is_made(scores: Path, read: dict[str, str]) -> bool:
    """Whether scores are there, whole, and made from a file of which these facts hold."""
    try:
        found = schema_of(scores).metadata or {}
    except InputError:
        return False
    return all(found.get(name.encode()) == value.encode() for name, value in read.items())


def classify_file(
    path: Path, output: Path, column: str, classifier: TrainedClassifier, processes: int, bar: Progress
) -> Path:
    """Write the kept rows of a file and, last, its scores, unless they are there; returns the scores."""
    scores, kept, status = output / f"scores/{path.name}.parquet", output / "kept" / path.name, path.stat()
    # A file that changed is another.
    read = {"bytes": str(status.st_size), "mtime_ns": str(status.st_mtime_ns)}
    if kept.exists() and is_made(scores, read):
        return scores
    waiting: deque[Batch] = deque()

    def texts() -> Iterator[Texts]:
        for some, batch in batches_of(path, column):
            waiting.append(batch)
            yield some

    with kept_rows(path, kept) as write:

        def rows() -> Iterator[dict[str, Any]]:
            for found in map_forked(partial(judge_rows, classifier=classifier), texts(), processes):
                write(waiting.popleft(), found)
                bar.update(len(found))
                yield from (vars(one) if one else {"kept": False} for one in found)

        part = scores.with_name(f".{scores.name}")
        write_table(part, rows(), ROW_SCORES.with_metadata(read))
    part.rename(scores)
    return scores


def files_in(sources: list[str]) -> list[Path]:
    """List the files of INPUT. Raises InputError for one that is missing, and for two of one name."""
    files = [Path(file) for source in sources for file in files_of(source)]
    names = Counter(file.name for file in files)
    for file in files:
        if not file.is_file():
            raise InputError(f"{file}: no such file")
        if names[file.name] > 1:
            raise InputError(f"{file.name}: two files of this name; OUTPUT needs different names")
    return files


def classify(given: argparse.Namespace) -> str:
    """Classify all files; returns what to say of it. Raises InputError."""
    files, classifier = files_in(given.input), open_trained(given.classifier)
    about = {"classifier": classifier.sha256, "threshold": classifier.threshold, "column": given.text}
    check_writable(given.output)
    with held(given.output):
        notes = given.output / NOTES
        if notes.exists() and read_notes(notes) != about:
            raise InputError(f"{given.output}: made with another classifier or column; name a new folder")
        for pattern in BEGUN if notes.exists() else ():
            for begun in given.output.glob(pattern):
                begun.unlink()
        write_json(notes, about)
        with Progress("classify", None, unit="row") as bar:
            done = [
                classify_file(file, given.output, given.text, classifier, given.processes, bar)
                for file in files
            ]
    kept: Counter[bool] = Counter()
    for scores in done:
        kept.update(read_table(scores, ["kept"])["kept"].to_pylist())
    return f"{given.output}: keeps {kept[True]:,} of {kept.total():,} rows of {len(files):,} files"


def main(argv: list[str] | None = None) -> None:
    """Classify what the command line names."""
    parser = argparse.ArgumentParser(
        prog="dsm classify", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "classifier", type=Path, help="results/<run>/corpus/iteration-2, say, or what `dsm export` made of it"
    )
    parser.add_argument("input", nargs="+", help="*.parquet, *.jsonl[.gz|.zst], or a folder of them")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--text", default="text", metavar="COLUMN", help="column of the texts (text)")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--processes", type=int, default=cores, help="all cores of this machine, or so many")
    given = parser.parse_args(argv)
    try:
        if given.processes < 1:
            raise InputError(f"--processes {given.processes}: must be 1 or more")
        print(classify(given))
    except (InputError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
