"""Run programs from a file: `python -m pipeline.evaluate.sandbox --input PROGRAMS --output RESULTS`."""

import argparse
from dataclasses import asdict
from pathlib import Path

from sealedpy.pool import Sandbox

from pipeline.core.data.rows import read_rows
from pipeline.core.errors import InputError
from pipeline.evaluate.commands import add_sandbox_options, make_parser, run_command, write_rows

FORMATS = """\
Input, one JSON object per line: "id", "code" (a Python program).
Output, in the same order: "id", "status" (ok, error: an exception or exit status, timeout, limit: memory,
output or file size), "stdout", "stderr". Programs have no network, no files but Python's libraries and an
empty scratch folder, and leave no process behind. Where the system refuses namespaces they do not run, unless
--weak accepts the protection that remains; what is missing is named on standard error at the start."""


def parser() -> argparse.ArgumentParser:
    parser = make_parser("sandbox", "Run untrusted Python programs.", FORMATS)
    parser.add_argument("--input", type=Path, required=True, help="programs, JSON lines (.gz allowed)")
    parser.add_argument("--output", type=Path, required=True, help="results, JSON lines")
    parser.add_argument("--workers", type=int, help="programs at the same time; default: one per core")
    add_sandbox_options(parser)
    return parser


def run_programs(options: argparse.Namespace) -> None:
    """Write the outcomes of all programs."""
    rows = list(read_rows(str(options.input)))
    for place, row in rows:
        if not isinstance(row.get("code"), str):
            raise InputError(f"{place}: `code` is missing or not a string")
    if options.workers is not None and options.workers < 1:
        raise InputError(f"--workers {options.workers}: must be above 0")
    with Sandbox(options.workers, options.weak) as sandbox:
        outcomes = sandbox.run([row["code"] for _, row in rows], options.timeout)
        results = (
            {"id": row.get("id", place), **asdict(outcome)}
            for (place, row), outcome in zip(rows, outcomes, strict=True)
        )
        write_rows(options.output, results, len(rows), "program")


def main(argv: list[str] | None = None) -> None:
    run_command(parser(), run_programs, argv)


if __name__ == "__main__":
    main()
