"""What `grade`, `score` and `sandbox` share: options, files of JSON lines, bad input in one line."""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pipeline.config.root import ConfigError
from pipeline.core.atomic import atomic_write
from pipeline.core.errors import InputError
from pipeline.core.progress import Progress


def make_parser(name: str, description: str, formats: str) -> argparse.ArgumentParser:
    """Return the parser of `pipeline.evaluate.<name>`; its help ends in the `formats` of its files."""
    return argparse.ArgumentParser(
        prog=f"python -m pipeline.evaluate.{name}",
        description=description,
        epilog=formats,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_sandbox_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that run programs."""
    parser.add_argument("--timeout", type=float, default=10.0, help="wall-clock seconds of each program")
    parser.add_argument(
        "--weak", action="store_true", help="run programs even where the system refuses namespaces"
    )


def run_command(
    parser: argparse.ArgumentParser, work: Callable[[argparse.Namespace], None], words: list[str] | None
) -> None:
    """Do the work that the words ask for; what is wrong with them or a file is one line and exit status 2."""
    options = parser.parse_args(words)
    try:
        if not 0 < getattr(options, "timeout", 1) < math.inf:
            raise InputError(f"--timeout {options.timeout:g}: must be above 0")
        work(options)
    except (InputError, ConfigError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def write_rows(path: Path, rows: Iterable[dict[str, Any]], count: int, unit: str) -> None:
    """Write JSON lines, whole or not at all, with the progress of `count` units."""
    with (
        atomic_write(path) as partial,
        partial.open("w") as file,
        Progress(f"{unit}s", count, unit=unit) as bar,
    ):
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            bar.update()
