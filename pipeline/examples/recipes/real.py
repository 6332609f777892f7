"""Write the overlay of `make real`: real pages and benchmarks from two folders, models of a finished run.

The folder of pages holds `*.warc.gz` (with `--kind texts` Parquet or JSON lines with `text` and `url`),
`seed_urls.txt` (positives of the first iteration, one URL a line), `background_urls.txt` (a general sample
for negatives), `annotations.tsv` (reviewed URL prefixes) and perhaps `labels.jsonl` (truth, to measure by).
The folder of benchmarks holds `*.jsonl[.gz]` files whose rows have `question` and `answer`, all of them kept
out of the corpus but those of a train split; GSM8K and MATH-500 are also asked.
"""

import argparse
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import yaml

from pipeline.core.data.rows import FORMATS

ASKED = {"gsm8k": "gsm8k_test", "math500": "math500"}
EXEMPLARS = {"gsm8k": "gsm8k_train", "math500": "math_train_solutions"}
QUESTIONS = 100
KINDS = {"warc": (".warc.gz",), "texts": FORMATS}  # of the files of pages


class Folder:
    """A folder that the user names; `problems` collects what is missing in it."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        self.path, self.problems = path, problems
        if not path.is_dir():
            problems.append(f"{path}: no such folder")

    def needed(self, name: str) -> str:
        if not (self.path / name).is_file():
            self.problems.append(f"{self.path / name}: not found; `make real` reads it beside the pages")
        return str(self.path / name)

    def first_row(self, path: Path) -> dict[str, Any]:
        try:
            with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
                row = json.loads(file.readline())
            if isinstance(row, dict):
                return row
            reason = "no JSON object"
        except (OSError, ValueError, EOFError) as error:
            reason = str(error)
        self.problems.append(f"{path}: its first line is not a benchmark item ({reason})")
        return {}


def pages(folder: Folder, key: str) -> dict[str, Any]:
    """Build the sections `crawl`, `corpus` and `report` for a folder of pages; `key`: `warc` or `texts`."""
    truth, kinds = folder.path / "labels.jsonl", KINDS[key]
    there = sorted(path for path in folder.path.glob("*") if path.name.endswith(kinds) and path != truth)
    if not there:
        folder.problems.append(f"{folder.path}: holds no *{', *'.join(kinds)} file")
    lists = {name.split(".")[0]: folder.needed(name) for name in ("seed_urls.txt", "background_urls.txt")}
    return {
        "crawl": {key: list(map(str, there))},
        "corpus": lists | {"annotations": folder.needed("annotations.tsv")},
        "report": {"truth": [str(truth)] if truth.is_file() else None},
    }


def asked(folder: Path, name: str) -> dict[str, Any]:
    """Say how a benchmark is put to the models: one exemplar, as the demo's have no room for more."""
    exemplars = [str(path) for path in sorted(folder.glob(f"{EXEMPLARS[name]}.jsonl*"))]
    shots = {"shots": 1, "exemplars": exemplars} if exemplars else {"shots": 0}
    return {"limit": QUESTIONS, "language": "en"} | shots


def benchmarks(folder: Folder) -> dict[str, Any]:
    """Build a node for each benchmark file, named after it; the two that are asked by their usual names."""
    nodes: dict[str, Any] = {}
    for path in sorted([*folder.path.glob("*.jsonl"), *folder.path.glob("*.jsonl.gz")]):
        row, stem = folder.first_row(path), path.name.split(".")[0]
        if "question" not in row or row.get("split") == "train" or "_train" in stem:
            continue
        name = next((name for name, file in ASKED.items() if file == stem), stem)
        nodes[name] = {"source": str(path)} | (asked(folder.path, name) if name in ASKED else {})
    folder.problems += [
        f"{folder.path}: {ASKED[name]}.jsonl.gz not found (or without questions)"
        for name in ASKED
        if name not in nodes
    ]
    return nodes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--web", type=Path, required=True, help="folder of pages and lists")
    parser.add_argument("--kind", choices=KINDS, default="warc", help="what its pages are in")
    parser.add_argument("--bench", type=Path, required=True, help="folder of benchmark files")
    parser.add_argument(
        "--models",
        type=Path,
        nargs="+",
        required=True,
        help="results that are evaluated, as RUN/STAGE/NAME",
    )
    parser.add_argument("--output", type=Path, required=True, help="overlay to write")
    arguments = parser.parse_args()
    models = {
        path.name: {
            "stage": path.parent.name,
            "init": str(path / "data"),
            "train": False,
            "benchmarks": list(ASKED),
        }
        for path in arguments.models
    }
    problems: list[str] = []
    overlay = {"run": "real", "models": models} | pages(Folder(arguments.web, problems), arguments.kind)
    overlay["benchmarks"] = benchmarks(Folder(arguments.bench, problems))
    if problems:
        sys.exit("\n".join(f"error: {problem}" for problem in problems))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(yaml.safe_dump(overlay, sort_keys=False, allow_unicode=True))


if __name__ == "__main__":
    main()
