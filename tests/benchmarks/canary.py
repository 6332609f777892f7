"""Compare a finished demo with the figures on record: what code, packages or a machine change is seen soon.

python tests/benchmarks/canary.py [--run results/demo] [--write]

`tests/data/canary.json` has, for each kind of CPU, a digest of what each data job wrote, in the order of the
stages, and every model's share of right answers. Rounding differs between kinds of CPU, so nothing is
compared on a kind without figures; `--write` records it. Exit code 1 if anything differs.
"""

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from pipeline.protocol.device import kind_of_cpu

RECORD = Path(__file__).parents[1] / "data/canary.json"
DATA = ("miniweb", "crawl", "corpus", "decontaminate", "tokens")


def figures(run: Path) -> dict[str, Any]:
    """Read what a run made. Raises SystemExit where it has not finished."""
    summary = run / "report/summary.json"
    if not summary.exists():
        raise SystemExit(f"error: {summary}: not found; `make demo` makes it")
    found: dict[str, Any] = {}
    for stage in DATA:
        folders = [Path(folder) for folder, _, _ in os.walk(run / stage, followlinks=True)]
        for path in sorted(folder / "manifest.json" for folder in folders):
            if path.exists():
                files = json.dumps(json.loads(path.read_text())["files"])
                found[str(path.parent.relative_to(run))] = hashlib.sha256(files.encode()).hexdigest()[:16]
    for model, benchmarks in json.loads(summary.read_text())["models"].items():
        for benchmark, modes in benchmarks.items():
            for mode, score in modes.items():
                found[f"{model}, {benchmark}, {mode}"] = score["accuracy"]
    return found


def main() -> None:
    """Compare and print, or record."""
    parser = argparse.ArgumentParser(description="Compare a finished demo with the figures on record.")
    parser.add_argument("--run", type=Path, default=Path("results/demo"), help="folder of the run's results")
    parser.add_argument("--write", action="store_true", help="record this run for this kind of CPU")
    words = parser.parse_args()
    record, kind = json.loads(RECORD.read_text()), kind_of_cpu()
    found = figures(words.run)
    if words.write:
        record[kind] = found
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        return
    if kind not in record:
        print(f"{RECORD.name} has no figures of this kind of CPU, {kind}; --write records them")
        return
    names = [*record[kind], *(name for name in found if name not in record[kind])]
    differ = [name for name in names if record[kind].get(name) != found.get(name)]
    for name in differ:
        print(f"{name}: {record[kind].get(name, 'nothing')} on record, {found.get(name, 'nothing')} here")
    print(f"{len(names)} figures of {kind}, {len(differ)} differ")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
