"""`make bench-corpus`: the corpus stages beside their peers, in one run, on the same pages and one core."""

import tempfile
from pathlib import Path

import after_extraction
import extraction
from sources import find_sources
from table import data_folder, publish, use_one_core


def main() -> None:
    data = data_folder(__doc__)
    use_one_core()
    with tempfile.TemporaryDirectory() as folder:
        sources = find_sources(data, Path(folder))
        rows = [*extraction.rows(sources, Path(folder)), *after_extraction.rows(sources, Path(folder))]
    publish("corpus", rows, "one used")


if __name__ == "__main__":
    main()
