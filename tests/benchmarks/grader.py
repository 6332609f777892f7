"""`make bench-grader`: the grader beside Math-Verify on the same labelled pairs, in one process on one core.

Math-Verify gets the reference in dollar signs and the answer in a box, its best reading.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from table import ROOT, Row, data_folder, larger_set, publish

from pipeline.common.rows import read_rows
from pipeline.evaluate.answers import Verdict, compare
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.grading import majorities
from pipeline.evaluate.profiles import grade_response

PAIRS = ROOT / "tests/data/grader_pairs.jsonl"
PEER = "Math-Verify"
MAX_SECONDS = 10  # of one comparison by the peer


def read(path: Path) -> list[dict[str, Any]]:
    return [row for _, row in read_rows(str(path))]


def labelled_pairs(data: Path | None) -> tuple[str, list[dict[str, Any]]]:
    """Name of the set, and its pairs: `question` (or None), `gold`, `pred`, `label`, perhaps `hard`.

    The larger set has pairs of policy "rounded" (a decimal for an exact reference), which are left out.
    """
    path = larger_set(data, "grader/pairs.jsonl.gz", PAIRS.name)
    if path:
        rows = [row for row in read(path) if row["policy"] != "rounded"]
    else:
        path, names = PAIRS, {"gold": "reference", "pred": "answer", "label": "same"}
        rows = [
            {"question": row.get("question"), **{new: row[old] for new, old in names.items()}}
            for row in read(path)
        ]
    return f"{len(rows):,} pairs of {path.name}", rows


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
        found.append((grade(row), row["label"]))
        longest = max(longest, time.perf_counter() - before)
    seconds = time.perf_counter() - started
    hard = [pair for pair, row in zip(found, rows, strict=True) if row.get("hard")]
    return {
        "agreement": agreement(found),
        **({"hard": agreement(hard)} if hard else {}),
        "false positives": found.count((True, False)),
        "false negatives": found.count((False, True)),
        "seconds": 1000 * seconds / len(rows),
        "slowest": longest,
    }


def agreement(found: list[tuple[bool, bool]]) -> float:
    """Share of equal (verdict, label) in percent."""
    return 100 * sum(verdict == label for verdict, label in found) / len(found)


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
    majorities(items, verdicts, [1, 8, 64])
    return time.perf_counter() - started


def outputs(rows: list[dict[str, Any]], count: int) -> float:
    """Seconds for `count` whole responses, all different."""
    started = time.perf_counter()
    for place in range(count):
        row = rows[place % len(rows)]
        item = Item(str(place), row["question"], row["gold"])
        grade_response(None, item, row["response"] + " " * (place // len(rows)))
    return time.perf_counter() - started


def time_rows(data: Path | None, labelled: list[dict[str, Any]]) -> list[Row]:
    """Seconds for whole responses, and for the votes of a benchmark."""
    timed = [("Maj@64 of 500 questions", votes(), "generated answers")]
    for count, benchmark, file in (
        (1319, "GSM8K", "rho-math-7b.gsm8k.cot"),
        (5000, "MATH", "rho-math-1b.math500.cot"),
    ):
        name = "answers of the labelled pairs in a sentence"
        path = larger_set(data, f"model_outputs/{file}.jsonl.gz", name)
        if path:
            rows, name = read(path), file
        else:
            rows = [row | {"response": f"So the answer is \\boxed{{{row['pred']}}}."} for row in labelled]
            benchmark = "generated"
        timed.append((f"{count:,} {benchmark} outputs", outputs(rows, count), name))
    alone = {"unit": "s", "peer": None, "peer_name": None, "ratio": None}
    return [
        {"what": f"grader: {what}", "ours": seconds, "data": name} | alone for what, seconds, name in timed
    ]


def table(data: Path | None) -> list[Row]:
    """The rows of the result."""
    name, labelled = labelled_pairs(data)
    mine, theirs = measure(ours, labelled), measure(peer(), labelled)
    units = {"agreement": "%", "hard": "%", "seconds": "s per 1,000 pairs", "slowest": "s"}
    result = []
    for what, value in mine.items():
        unit, other = units.get(what, "pairs"), theirs[what]
        better, worse = (value, other) if unit == "%" else (other, value)
        row = {"what": f"grader: {what}", "unit": unit, "ours": value, "peer": other, "peer_name": PEER}
        result.append(row | {"ratio": better / worse if worse else None, "data": name})
    return result + time_rows(data, labelled)


def main() -> None:
    data = data_folder(__doc__)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    publish("grader", table(data), "one used")


if __name__ == "__main__":
    main()
