"""Run programs from a file: `python -m pipeline.evaluate.sandbox --input PROGRAMS --output RESULTS`."""

import argparse
import json
import math
import sys
from dataclasses import asdict
from pathlib import Path

from pipeline.data.rows import read_rows
from pipeline.protocol.atomic import atomic_write
from pipeline.protocol.progress import Progress
from pipeline.protocol.stage import InputError
from pipeline.sandbox.pool import Sandbox

HELP = """\
Input, one JSON object per line: "id", "code" (a Python program).
Output, in the same order: "id", "status" (ok, error: an exception or exit status, timeout, limit: memory,
output or file size), "stdout", "stderr". Programs have no network, no files but Python's libraries and an
empty scratch folder, and leave no process behind. Where the system refuses namespaces they do not run, unless
--weak accepts the protection that remains; what is missing is named on standard error at the start."""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.evaluate.sandbox",
        description="Run untrusted Python programs.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--input", type=Path, required=True, help="programs, JSON lines (.gz allowed)")
    parser.add_argument("--output", type=Path, required=True, help="results, JSON lines")
    parser.add_argument("--timeout", type=float, default=10.0, help="wall-clock seconds of each program")
    parser.add_argument(
        "--weak", action="store_true", help="run them even where the system refuses namespaces"
    )
    parser.add_argument("--workers", type=int, help="programs at the same time; default: one per core")
    return parser


def main(argv: list[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    try:
        rows = list(read_rows(str(arguments.input)))
        for place, row in rows:
            if not isinstance(row.get("code"), str):
                raise InputError(f"{place}: `code` is missing or not a string")
        if not 0 < arguments.timeout < math.inf:
            raise InputError(f"--timeout {arguments.timeout:g}: must be above 0")
        if arguments.workers is not None and arguments.workers < 1:
            raise InputError(f"--workers {arguments.workers}: must be above 0")
        with (
            Sandbox(arguments.workers, arguments.weak) as sandbox,
            Progress("programs", len(rows), unit="program") as bar,
            atomic_write(arguments.output) as partial,
            partial.open("w") as file,
        ):
            outcomes = sandbox.run([row["code"] for _, row in rows], arguments.timeout)
            for (place, row), outcome in zip(rows, outcomes, strict=True):
                result = {"id": row.get("id", place), **asdict(outcome)}
                file.write(json.dumps(result, ensure_ascii=False) + "\n")
                bar.update()
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
