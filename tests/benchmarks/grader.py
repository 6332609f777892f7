"""The grader beside Math-Verify on the same pairs: `make bench-grader` prints a table, writes
results/bench/grader.json.

Both see the same labelled pairs in one run, in one process on one core; those labelled `rounded` are left
out. Math-Verify gets the reference in dollar signs and the answer in a box, its best reading. Pairs and
outputs lie beside the checkout (see --data); each is a row of JSON lines with `question`, `gold`, `pred`,
`label`, `policy`, `hard`.
"""

import argparse
import gzip
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.common.manifest import ROOT
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.metrics import majority
from pipeline.evaluate.profiles import grade_response
from pipeline.grader.answers import Verdict, compare

RESULT = Path("results/bench/grader.json")
PEER = "Math-Verify"
MAX_SECONDS = 10  # of one comparison by the peer


def pairs(data: Path) -> list[dict[str, Any]]:
    """The labelled pairs, without roundings."""
    with gzip.open(data / "grader/pairs.jsonl.gz", "rt") as file:
        return [row for row in map(json.loads, file) if row["policy"] != "rounded"]


def ours(row: dict[str, Any]) -> bool:
    return compare(row["gold"], row["pred"], question=row["question"]).right


def peer() -> Callable[[dict[str, Any]], bool]:
    from math_verify import parse, verify

    def same(row: dict[str, Any]) -> bool:
        gold = parse(f"${row['gold']}$", parsing_timeout=MAX_SECONDS)
        answer = parse(f"\\boxed{{{row['pred']}}}", parsing_timeout=MAX_SECONDS)
        return bool(verify(gold, answer, timeout_seconds=MAX_SECONDS))

    return same


def measure(grade: Callable[[dict[str, Any]], bool], rows: list[dict[str, Any]]) -> dict[str, float]:
    """Agreement in percent, on hard pairs too, false positives and negatives, seconds, the slowest."""
    found, longest = [], 0.0
    started = time.perf_counter()
    for row in rows:
        before = time.perf_counter()
        found.append(grade(row))
        longest = max(longest, time.perf_counter() - before)
    seconds = time.perf_counter() - started
    agreed = [right == row["label"] for right, row in zip(found, rows, strict=True)]
    hard = [same for same, row in zip(agreed, rows, strict=True) if row["hard"]]
    return {
        "agreement": 100 * sum(agreed) / len(rows),
        "hard": 100 * sum(hard) / len(hard),
        "false positives": sum(right and not row["label"] for right, row in zip(found, rows, strict=True)),
        "false negatives": sum(row["label"] and not right for right, row in zip(found, rows, strict=True)),
        "seconds": 1000 * seconds / len(rows),
        "slowest": longest,
    }


def votes(questions: int = 500, samples: int = 64) -> float:
    """Seconds for Maj@64: every sample of every question written differently, in eight classes."""
    items = [
        Item(str(number), f"What is {number} over 7?", f"\\frac{{{number}}}{{7}}")
        for number in range(questions)
    ]
    verdicts = [
        [
            Verdict("wrong", f"\\frac{{{(number + 1 + place % 8) * place}}}{{{7 * place}}}", "numbers")
            for place in range(1, samples + 1)
        ]
        for number in range(questions)
    ]
    started = time.perf_counter()
    for item, row in zip(items, verdicts, strict=True):
        majority(item, row, [1, 8, 64])
    return time.perf_counter() - started


def outputs(data: Path) -> dict[str, float]:
    """Seconds for all outputs of GSM8K (1,319) and for 5,000 of MATH, whole responses."""
    found = {}
    for name, file, count in (
        ("1,319 GSM8K outputs", "rho-math-7b.gsm8k.cot", 1319),
        ("5,000 MATH outputs", "rho-math-1b.math500.cot", 5000),
    ):
        with gzip.open(data / f"model_outputs/{file}.jsonl.gz", "rt") as stream:
            rows = list(map(json.loads, stream))
        started = time.perf_counter()
        for place in range(count):
            row = rows[place % len(rows)]
            grade_response(
                None,
                Item(row["id"], row["question"], row["gold"]),
                row["response"] + " " * (place // len(rows)),
            )
        found[name] = time.perf_counter() - started
    return found


def table(data: Path) -> list[dict[str, Any]]:
    """The rows of the result; a ratio above 1 means that ours is better."""
    rows = pairs(data)
    mine, theirs = measure(ours, rows), measure(peer(), rows)
    units = {"agreement": "%", "hard": "%", "seconds": "s per 1,000 pairs", "slowest": "s"}
    result = []
    for what, value in mine.items():
        other = theirs[what]
        better = value / other if what in ("agreement", "hard") else other / value if value else None
        result.append(
            {
                "what": f"grader: {what}",
                "unit": units.get(what, "pairs"),
                "ours": value,
                "peer": other,
                "peer_name": PEER,
                "ratio": better,
            }
        )
    alone = {**outputs(data), "Maj@64 of 500 questions": votes()}
    return result + [
        {
            "what": f"grader: {what}",
            "unit": "s",
            "ours": value,
            "peer": None,
            "peer_name": None,
            "ratio": None,
        }
        for what, value in alone.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--data", type=Path, default=ROOT.parent / "shared/data", help="labelled pairs and outputs"
    )
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = table(arguments.data)
    machine = f"{platform.machine()}, 1 core, Python {platform.python_version()}"
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")
    for row in rows:
        other = "" if row["peer"] is None else f"{row['peer']:10.3f} {row['peer_name']}"
        print(f"{row['what']:36} {row['ours']:10.3f} {other:24} {row['unit']}")


if __name__ == "__main__":
    main()
