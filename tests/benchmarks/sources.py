"""Pages and benchmark questions for `make bench-corpus`: real ones where `DATA=` has them, else generated."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from table import ROOT, larger_set

from pipeline.data.rows import read_rows

PAGES = "web/pages-00.warc.gz"
TESTS = ("gsm8k_test", "math_test", "cmath_test", "gaokao_mathcloze", "gaokao_mathqa")
GENERATED = ("test", "heldout", "drill", "rl")


@dataclass(frozen=True)
class Sources:
    """A WARC file of pages, and (benchmark, question, answer or solution) of benchmark items."""

    warc: Path
    pages: str  # name of the set of pages
    items: list[tuple[str, str, str]]
    questions: str  # name of the set of items


def generated_web(folder: Path) -> Path:
    """The demo's web and questions, written to `folder`."""
    places = ["--work", folder / "work", "--output", folder / "web", "--manifest", folder / "manifest.json"]
    command = [sys.executable, "-m", "pipeline.miniweb", *map(str, places)]
    subprocess.run(command, check=True, cwd=ROOT)
    return folder / "web"


def find_sources(data: Path | None, folder: Path) -> Sources:
    """Real pages and questions from `data`; for each that is missing, generated ones, written to `folder`."""
    warc = larger_set(data, PAGES, "generated pages")
    files = [larger_set(data, f"bench/{name}.jsonl.gz", "generated questions") for name in TESTS]
    pages, questions = f"real pages ({PAGES})", "GSM8K, MATH, CMATH, Gaokao"
    if warc is None or None in files:
        web = generated_web(folder)
        if warc is None:
            warc, pages = min(web.glob("warc/*.warc.gz")), "generated pages"
        if None in files:
            files, questions = [web / f"{name}.jsonl" for name in GENERATED], "generated questions"
    rows = ((path.name, row) for path in files for _, row in read_rows(str(path)))
    items = [(name, row["question"], str(row.get("solution") or row["answer"])) for name, row in rows]
    return Sources(warc, pages, items, questions)
