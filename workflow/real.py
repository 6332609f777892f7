"""Write the overlay of `make real`: real pages and benchmarks from two folders, models of a finished run.

The folder of pages holds `*.warc.gz`, `seed_urls.txt` (positives of the first iteration, one URL a line),
`background_urls.txt` (a general sample for negatives), `annotations.tsv` (reviewed URL prefixes) and perhaps
`labels.jsonl` (truth, for measuring only). The folder of benchmarks holds `*.jsonl[.gz]` files whose rows
have `question` and `answer`; files whose rows belong to a train split are left out. All others are kept out
of the corpus; GSM8K and MATH-500 are also asked.
"""

import argparse
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import yaml

ASKED = {"gsm8k": "gsm8k_test", "math500": "math500"}
EXEMPLARS = {"gsm8k": "gsm8k_train", "math500": "math_train_solutions"}
QUESTIONS = 100


def fail(message: str) -> None:
    sys.exit(f"error: {message}")


def needed(folder: Path, name: str) -> str:
    if not (folder / name).is_file():
        fail(f"{folder / name}: not found; `make real` reads it beside the WARC files")
    return str(folder / name)


def pages(folder: Path) -> dict[str, Any]:
    """The sections `crawl`, `corpus` and `report` for a folder of pages."""
    warc = sorted(str(path) for path in folder.glob("*.warc.gz"))
    if not warc:
        fail(f"{folder}: holds no *.warc.gz file")
    lists = {name.split(".")[0]: needed(folder, name) for name in ("seed_urls.txt", "background_urls.txt")}
    truth = folder / "labels.jsonl"
    return {
        "crawl": {"warc": warc},
        "corpus": lists | {"annotations": needed(folder, "annotations.tsv")},
        "report": {"truth": [str(truth)] if truth.is_file() else None},
    }


def first_row(path: Path) -> dict[str, Any]:
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            return json.loads(file.readline())
    except (OSError, json.JSONDecodeError) as error:
        fail(f"{path}: its first line is not a benchmark item ({error})")
        raise


def asked(folder: Path, name: str) -> dict[str, Any]:
    """How a benchmark is put to the models: one exemplar, as the demo's have no room for more."""
    exemplars = [str(path) for path in sorted(folder.glob(f"{EXEMPLARS[name]}.jsonl*"))]
    shots = {"shots": 1, "exemplars": exemplars} if exemplars else {"shots": 0}
    return {"limit": QUESTIONS, "language": "en"} | shots


def benchmarks(folder: Path) -> dict[str, Any]:
    """A node for each benchmark file, named after the file; the two that are asked by their usual names."""
    nodes: dict[str, Any] = {}
    for path in sorted([*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz")]):
        row, stem = first_row(path), path.name.split(".")[0]
        if "question" not in row or row.get("split") == "train" or "_train" in stem:
            continue
        name = next((name for name, file in ASKED.items() if file == stem), stem)
        nodes[name] = {"source": str(path)} | (asked(folder, name) if name in ASKED else {})
    missing = [f"{ASKED[name]}.jsonl.gz" for name in ASKED if name not in nodes]
    if missing:
        fail(f"{folder}: {missing[0]} not found (or without questions)")
    return nodes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--web", type=Path, required=True, help="folder of *.warc.gz and lists")
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
    overlay = {"run": "real", "models": models, "benchmarks": benchmarks(arguments.bench)} | pages(
        arguments.web
    )
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(yaml.safe_dump(overlay, sort_keys=False, allow_unicode=True))


if __name__ == "__main__":
    main()
