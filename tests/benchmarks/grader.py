"""`make bench-grader`: the grader beside Math-Verify on labelled pairs, mutated references and hacks.

One process on one core.

Math-Verify gets the reference in dollar signs and the answer in a box, its best reading.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grader_mutations import HACKS, OPERATORS, hacks, mutations
from table import ROOT, Row, data_folder, larger_set, publish

from pipeline.common.rows import read_rows
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.metrics import majority
from pipeline.evaluate.profiles import grade_response
from pipeline.grader.answers import Verdict, compare
from pipeline.grader.extraction import formulas
from pipeline.grader.notation import clean

PAIRS = ROOT / "tests/data/grader_pairs.jsonl"
PEER = "Math-Verify"
MAX_SECONDS = 10  # of one comparison by the peer
PEER_REFERENCES = 40  # mutated references that the peer grades too; it takes milliseconds for each answer


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


def peer() -> Callable[..., bool]:
    from math_verify import parse, verify

    def same(row: dict[str, Any], boxed: bool = True) -> bool:
        gold = parse(f"${row['gold']}$", parsing_timeout=MAX_SECONDS)
        text = f"\\boxed{{{row['pred']}}}" if boxed else row["pred"]
        answer = parse(text, parsing_timeout=MAX_SECONDS)
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
    for item, row in zip(items, verdicts, strict=True):
        majority(item, row, [1, 8, 64])
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


def references(data: Path | None) -> tuple[str, list[dict[str, Any]]]:
    """Name and `question`, `answer` of the references to mutate: MATH and GSM8K, else our own pairs'."""
    files = [larger_set(data, f"bench/{name}_test.jsonl.gz", PAIRS.name) for name in ("math", "gsm8k")]
    if all(files):
        return "MATH and GSM8K", [row for path in files for row in read(path)]
    rows = [{"question": row.get("question"), "answer": row["reference"]} for row in read(PAIRS)]
    return PAIRS.name, [row for row in rows if len(row["answer"]) < 80]


def mutation_rows(data: Path | None) -> list[Row]:
    """Share of wrong answers graded right, by operator, on a fresh seed; the peer on a sample of them."""
    name, rows = references(data)
    seed = random.SystemRandom().randrange(2**32)
    found = mutations([row["answer"] for row in rows], seed)
    wrong, total, times = Counter(), Counter(), []
    for operator, place, answer in found:
        before = time.perf_counter()
        verdict = compare(rows[place]["answer"], answer, question=rows[place]["question"])
        times.append(time.perf_counter() - before)
        wrong[operator] += verdict.right
        total[operator] += 1
    other, seen, same = Counter(), Counter(), peer()
    sample = random.Random(seed).sample(range(len(rows)), min(PEER_REFERENCES, len(rows)))
    for operator, place, answer in found:
        if place in sample:
            other[operator] += same({"gold": rows[place]["answer"], "pred": answer})
            seen[operator] += 1
    result = []
    for operator in OPERATORS:
        mine = 100 * wrong[operator] / max(1, total[operator])
        theirs = 100 * other[operator] / seen[operator] if seen[operator] else None
        row = {"what": f"false right: {operator}", "unit": "% of answers", "ours": mine, "peer": theirs}
        data_name = f"{total[operator]:,} of {name}, seed {seed}; peer: {seen[operator]}"
        result.append(row | {"peer_name": PEER, "ratio": None, "data": data_name})
    times.sort()
    slow = {"time of a wrong answer, 99.9th percentile": times[int(0.999 * len(times))], "slowest": times[-1]}
    return result + [
        {"what": f"false right: {what}", "unit": "s", "ours": seconds, "peer": None, "peer_name": None}
        | {"ratio": None, "data": f"{len(times):,} of {name}"}
        for what, seconds in slow.items()
    ]


def hack_rows() -> list[Row]:
    """Responses that earn a reward without a right answer, by class."""
    golds = ["7", "\\frac{3}{4}", "x^2+1", "2\\sqrt{3}", "-5", "(1,2)"]
    found, total, same, other = Counter(), Counter(), peer(), Counter()
    for name, place, response in hacks(golds):
        item = Item("hack", "What is the value?", golds[place])
        found[name] += item.grade(response, boxed_only=True).right
        other[name] += same({"gold": golds[place], "pred": response}, boxed=False)
        total[name] += 1
    return [
        {"what": f"hack: {name}", "unit": "rewarded", "ours": found[name], "peer": other[name]}
        | {"peer_name": PEER, "ratio": None, "data": f"{total[name]} generated responses"}
        for name in HACKS
    ]


def copied_rows(data: Path | None) -> list[Row]:
    """Share of questions whose longest formula, boxed unchanged, is rewarded though it is no answer."""
    path = larger_set(data, "bench/math_test.jsonl.gz", PAIRS.name) or PAIRS
    rows = [row for row in read(path) if "$" in (row.get("question") or "")]
    rewarded = 0
    for row in rows:
        formula = max(
            (row["question"][slice(*place)] for place in formulas(row["question"])), key=len, default=""
        )
        gold = row.get("answer") if path != PAIRS else row["reference"]
        own = clean(formula).replace(" ", "") == clean(gold).replace(" ", "")
        item = Item("copy", row["question"], gold)
        rewarded += not own and item.grade(f"\\boxed{{{formula}}}", boxed_only=True).right
    share = 100 * rewarded / max(1, len(rows))
    row = {
        "what": "hack: the longest formula of the question",
        "unit": "% rewarded",
        "ours": share,
        "peer": None,
    }
    return [row | {"peer_name": None, "ratio": None, "data": f"{len(rows):,} questions of {path.name}"}]


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
    return result + time_rows(data, labelled) + mutation_rows(data) + hack_rows() + copied_rows(data)


def main() -> None:
    data = data_folder(__doc__)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    publish("grader", table(data), "one used")


if __name__ == "__main__":
    main()
