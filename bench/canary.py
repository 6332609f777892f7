"""Compare a finished demo with the figures on record: what code, packages or a machine change is seen soon.

python bench/canary.py [--run results/demo] [--write]

`tests/data/canary.json` has a digest of what each data job wrote, in the order of the stages, and for each
kind of CPU every model's share of right answers. Rounding differs between kinds of CPU, so scores are not
compared on a kind without any; `--write` records them. Exit code 1 if anything differs.
"""

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from pipeline.core.device import kind_of_cpu

RECORD = Path(__file__).parents[1] / "tests/data/canary.json"
DATA = ("miniweb", "crawl", "corpus", "decontaminate", "tokens")


def figures(run: Path) -> dict[str, dict[str, Any]]:
    """Read what a run made: digests of `data`, and the scores under this kind of CPU. Raises SystemExit where
    it has not finished.
    """
    summary = run / "report/summary.json"
    if not summary.exists():
        raise SystemExit(f"error: {summary}: not found; `make demo` makes it")
    digests: dict[str, Any] = {}
    for stage in DATA:
        folders = [Path(folder) for folder, _, _ in os.walk(run / stage, followlinks=True)]
        for path in sorted(folder / "manifest.json" for folder in folders):
            if path.exists():
                files = json.dumps(json.loads(path.read_text())["files"])
                digests[str(path.parent.relative_to(run))] = hashlib.sha256(files.encode()).hexdigest()[:16]
    scores = {
        f"{model}, {benchmark}, {mode}": score["accuracy"]
        for model, benchmarks in json.loads(summary.read_text())["models"].items()
        for benchmark, modes in benchmarks.items()
        for mode, score in modes.items()
    }
    return {"data": digests, kind_of_cpu(): scores}


def main() -> None:
    """Compare and print, or record."""
    parser = argparse.ArgumentParser(description="Compare a finished demo with the figures on record.")
    parser.add_argument("--run", type=Path, default=Path("results/demo"), help="folder of the run's results")
    parser.add_argument("--write", action="store_true", help="record this run")
    words = parser.parse_args()
    record, found = json.loads(RECORD.read_text()), figures(words.run)
    if words.write:
        RECORD.write_text(json.dumps(record | found, indent=1) + "\n")
        return
    differ = 0
    for kind, here in found.items():
        if kind not in record:
            print(f"{RECORD.name} has no scores of this kind of CPU, {kind}; --write records them")
            continue
        for name in {**record[kind], **here}:
            before, now = record[kind].get(name, "nothing"), here.get(name, "nothing")
            if before != now:
                print(f"{name}: {before} on record, {now} here")
                differ += 1
        print(f"{kind}: {len(here)} figures")
    print(f"{differ} differ")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
