"""`make bench-corpus`: the corpus stages beside their peers, in one run, on the same pages and one core.

Prints a table and writes `results/bench/corpus.json`; a ratio above 1 means that ours is better.
"""

import json
import os
import platform
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests/benchmarks")]

import deduplication  # noqa: E402
import extraction  # noqa: E402


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = {line.split(":")[1].strip() for line in lines if line.startswith("model name")}
    return f"{min(models, default=platform.processor())}, {os.cpu_count()} cores, one used"


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = [*extraction.rows(), *deduplication.rows()]
    path = ROOT / "results/bench/corpus.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    print(f"\n{machine()}")
    print(f"{'what':62} {'unit':26} {'ours':>9} {'peer':>9} {'ratio':>9}  beside")
    for row in rows:
        numbers = " ".join(f"{row[name]:>9}" for name in ("ours", "peer", "ratio"))
        print(f"{row['what']:62} {row['unit']:26} {numbers}  {row['peer_name']}")
    print(f"\nwritten to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
