"""What the benchmarks share: the table they print and write, and the data sets they read.

A row is {"what", "unit", "ours", "peer", "peer_name", "ratio", "data"}. A ratio above 1 means that this
project is better; without a peer `peer`, `peer_name` and `ratio` are None. `data` names the data set.
"""

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
Row = dict[str, Any]
DATA = {"type": Path, "help": "folder of the larger data sets (docs/measured.md)"}


def row_of(
    what: str, unit: str, ours: float, peer: float | None = None, peer_name: str | None = None,
    data: str = "", *, rate: bool | None = None,
) -> Row:  # fmt: skip
    """Return a row. `rate`: whether more is better; None for what has no ratio."""
    sides = (ours, peer) if rate else (peer, ours)
    ratio = None if rate is None or peer is None or not sides[1] else sides[0] / sides[1]
    row = {"what": what, "unit": unit, "ours": ours, "peer": peer, "peer_name": peer_name}
    return row | {"ratio": ratio, "data": data}


def use_one_core() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def data_folder(description: str) -> Path | None:
    """The folder that `--data` names, or None: then the benchmark uses what ships or is generated."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", **DATA)
    return parser.parse_args().data


def larger_set(data: Path | None, name: str, instead: str) -> Path | None:
    """The file `name` of the larger data sets; None, with a line on stderr, where it is missing."""
    if data is None:
        return None
    if (data / name).exists():
        return data / name
    print(f"{data / name} is missing: using {instead}", file=sys.stderr)
    return None


def publish(name: str, rows: list[Row], used: str) -> None:
    """Print the table and write it to results/bench/<name>.json; `used` says what ran, e.g. "1 thread"."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = {line.split(":")[1].strip() for line in lines if line.startswith("model name")}
    cores = len(os.sched_getaffinity(os.getppid()))
    processor = min(models, default=platform.machine())
    machine = f"{processor}, {cores} cores, {used}, Python {platform.python_version()}"
    path = ROOT / "results/bench" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    print(f"\n{machine}\n{'what':66} {'unit':17} {'ours':>9} {'peer':>9} {'ratio':>7}  peer; data")
    for row in rows:
        numbers = [row["ours"], row["peer"], row["ratio"]]
        ours, peer, ratio = ("-" if number is None else f"{number:,.4g}" for number in numbers)
        sources = "; ".join(filter(None, (row["peer_name"], row["data"])))
        print(f"{row['what']:66} {row['unit']:17} {ours:>9} {peer:>9} {ratio:>7}  {sources}")
    print(f"\nwritten to {path.relative_to(ROOT)}")
