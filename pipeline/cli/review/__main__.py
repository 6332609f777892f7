"""Review in a browser: `dsm review results/<run> --output my/rounds/2.tsv`.

It shows the URL prefixes that the last iteration's selection asks about, and their pages. Each verdict is
saved at once, to the annotation file of the next iteration; a file that exists is continued.
"""

import argparse
import getpass
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.cli.review.pages import Pages
from pipeline.cli.review.server import Review, serve
from pipeline.cli.review.verdicts import Verdicts
from pipeline.core.data.database import Database, database
from pipeline.core.errors import InputError
from pipeline.core.identity import read_manifest

MEMORY = 1.0  # GB for joins


def login_name() -> str:
    """Return the user's name, or number where the system knows no name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def last_iteration(run: Path) -> int:
    """Return the last finished iteration of a run. Raises InputError if there is none."""
    folders = [path.parent.parent for path in run.glob("corpus/iteration-*/select/manifest.json")]
    if not folders:
        raise InputError(f"{run}: no finished iteration of the corpus (corpus/iteration-*/select)")
    return max(int(folder.name.rpartition("-")[2]) for folder in folders)


def rounds_of(manifest: Path) -> list[str]:
    """Return the annotation files that a selection has read."""
    return json.loads(manifest.with_name("run.json").read_text())["inputs"].get("annotations", [])


def next_round(manifest: Path) -> Path:
    """Return the file of the next round, beside those that a selection has read and numbered as they are.
    Raises InputError if they are not.
    """
    files = list(map(Path, rounds_of(manifest)))
    if not files or [file.stem for file in files] != [str(number) for number in range(1, len(files) + 1)]:
        raise InputError(
            "--output: name an annotation file; those read so far are not 1.tsv, 2.tsv and so on"
        )
    return files[-1].with_name(f"{len(files) + 1}{files[-1].suffix}")


def open_review(run: Path, iteration: int, joins: Database, verdicts: Verdicts) -> Review:
    """Return the review of an iteration's selection."""
    select = run / f"corpus/iteration-{iteration}/select"
    pages = Pages(joins, select / "data", run / "crawl/dedup/data/pool")
    reviewed = read_manifest(select / "manifest.json")["config"]["reviewed"]
    read_by = len(rounds_of(select / "manifest.json")) + 1
    about = {"run": run.name, "iteration": iteration, "reviewed": reviewed, "read_by": read_by}
    return Review(pages, verdicts, about)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="dsm review",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", type=Path, help="a run's results, e.g. results/demo")
    parser.add_argument(
        "--output",
        type=Path,
        help="the annotation file to write or continue; default: 2.tsv beside 1.tsv, and so on",
    )
    parser.add_argument("--annotator", default=login_name(), help="your name; default: the login name")
    parser.add_argument("--port", type=int, default=0, help="of 127.0.0.1; default: any that is free")
    found = parser.parse_args(words)
    try:
        iteration = last_iteration(found.run)
        select = found.run / f"corpus/iteration-{iteration}/select"
        output = found.output or next_round(select / "manifest.json")
        verdicts = Verdicts(output, found.annotator)
        with (
            TemporaryDirectory() as folder,
            database(Path(folder) / "join", {"join_memory": MEMORY}) as joins,
        ):
            review = open_review(found.run, iteration, joins, verdicts)
            server = serve(review, found.port)
            print(f"Review of {found.run}, iteration {iteration}: {server.address}", flush=True)
            readers = f"iteration {review.about['read_by']} and those after it will read it"
            print(f"Name {output} last in corpus.annotations: {readers}. Ctrl-C ends this.", flush=True)
            with suppress(KeyboardInterrupt):
                server.serve_forever()
    except InputError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
