"""`make bench-corpus`: the corpus stages beside their peers, in one run, on the same pages and one core."""

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests/benchmarks")]

import after_extraction  # noqa: E402
import extraction  # noqa: E402
from sources import find_sources  # noqa: E402
from table import data_folder, publish  # noqa: E402


def main() -> None:
    data = data_folder(__doc__)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        sources = find_sources(data, Path(folder))
        rows = [*extraction.rows(sources, Path(folder)), *after_extraction.rows(sources, Path(folder))]
    publish("corpus", rows, "one used")


if __name__ == "__main__":
    main()
