"""`make bench-grader [PEER=...] [DATA=...]`: the grader beside others, on labelled pairs and wrong answers.

A peer is `math-verify`, `sympy` (SymPy alone), or FILE.py:FUNCTION, a function (question, reference,
response) -> bool; without `--peer` the first two. Peers see fewer references than this grader, because they
take milliseconds or seconds for an answer. Fails if this grader takes more than 0.5 % of an operator's
wrong answers. One process on one core, and one for each peer.
"""

import argparse
import random
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import groupby
from multiprocessing import Pipe, Process
from pathlib import Path
from typing import Any

from given import adversarial, changes
from given.adversarial import Attack
from mathverdict.answers import Verdict, compare
from mathverdict.boxes import formulas
from table import DATA, ROOT, Row, larger_set, publish, row_of, use_one_core

from pipeline.core.data.rows import read_rows
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.metrics import majority
from pipeline.evaluate.profiles import STRICT, Profile, grade_response

PAIRS = ROOT / "tests/data/grader_pairs.jsonl"
PEERS = ("math-verify", "sympy")
MAX_SECONDS = 10  # of one answer by a peer
MOST = 0.5  # percent of an operator's wrong answers
REFERENCES, COPIED = 6319, 1500  # of MATH and GSM8K that are mutated; questions that are handed back
CHANGES = 100_000  # of right answers
PEER_ATTACKS = 12  # of each operator that a peer grades too


def read(path: Path) -> list[dict[str, Any]]:
    return [row for _, row in read_rows(str(path))]


class Bounded:
    """A peer in a process of its own, replaced when it takes too long; then it has not taken the answer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: Process | None = None

    def __call__(self, question: str | None, reference: str, response: str) -> bool:
        if self.process is None:
            self.pipe, end = Pipe()
            self.process = Process(target=self._serve, args=(end,), daemon=True)
            self.process.start()
        self.pipe.send((question, reference, response))
        if self.pipe.poll(MAX_SECONDS):
            try:
                return self.pipe.recv()
            except EOFError:
                pass
        self.process.kill()
        self.process = None
        return False

    def _serve(self, pipe: Any) -> None:
        grader = adversarial.load(self.name)
        while True:
            try:
                pipe.send(bool(grader(*pipe.recv())))
            except Exception:
                pipe.send(False)


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


def measure(grade: Callable[[str | None, str, str], bool], rows: list[dict[str, Any]]) -> dict[str, float]:
    """Agreement in percent, on hard pairs too, false positives and negatives, seconds, the slowest."""
    found, longest = [], 0.0
    started = time.perf_counter()
    for row in rows:
        before = time.perf_counter()
        found.append((grade(row["question"], row["gold"], row["pred"]), row["label"]))
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


def pair_rows(data: Path | None, peers: dict[str, Bounded]) -> list[Row]:
    """Agreement with labelled pairs, ours beside each peer's."""
    name, rows = labelled_pairs(data)
    mine = measure(lambda question, gold, pred: compare(gold, pred, question=question).right, rows)
    units = {"agreement": "%", "hard": "%", "seconds": "s per 1,000 pairs", "slowest": "s"}
    result = []
    for peer, grader in peers.items():
        theirs = measure(lambda question, gold, pred: grader(question, gold, f"\\boxed{{{pred}}}"), rows)  # noqa: B023
        for what, value in mine.items():
            unit = units.get(what, "pairs")
            beside = value, theirs[what], peer, name
            result.append(row_of(f"grader: {what}", unit, *beside, rate=unit == "%"))
    return result


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
        grade_response(Profile(STRICT), item, row["response"] + " " * (place // len(rows)))
    return time.perf_counter() - started


def time_rows(data: Path | None) -> list[Row]:
    """Seconds for whole responses, and for the votes of a benchmark."""
    labelled = labelled_pairs(data)[1]
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
    return [row_of(f"grader: {what}", "s", seconds, data=name) for what, seconds, name in timed]


def references(data: Path | None) -> tuple[str, list[dict[str, Any]]]:
    """Name and `question`, `answer` of the references to attack: MATH and GSM8K, else our own pairs'."""
    files = [larger_set(data, f"bench/{name}_test.jsonl.gz", PAIRS.name) for name in ("math", "gsm8k")]
    if all(files):
        return "MATH and GSM8K", [row for path in files for row in read(path)]
    rows = [{"question": row.get("question"), "answer": row["reference"]} for row in read(PAIRS)]
    return PAIRS.name, [row for row in rows if len(row["answer"]) < 80]


def attacks(rows: list[dict[str, Any]], seed: int, share: float = 1.0) -> Iterable[Attack]:
    """Every attack of the suite on a share of the references."""
    draw = random.Random(seed)
    chosen = draw.sample(rows, max(1, round(share * min(REFERENCES, len(rows)))))
    asked = [row for row in chosen if "$" in (row["question"] or "")][: round(share * COPIED)]
    yield from adversarial.mutations(chosen, seed)
    yield from adversarial.hacks(["7", "\\frac{3}{4}", "x^2+1", "2\\sqrt{3}", "-5", "(1,2)"])
    yield from adversarial.copies(asked, lambda text: [text[slice(*span)] for span in formulas(text)])
    yield from adversarial.languages()


def attack_rows(data: Path | None, peers: dict[str, Bounded], share: float = 1.0) -> list[Row]:
    """Wrong answers taken, in percent by operator, on a fresh seed; a row for each peer."""
    name, rows = references(data)
    seed = random.SystemRandom().randrange(2**32)
    ours = adversarial.load("ours")
    taken, total, times, seen = Counter(), Counter(), [], {peer: Counter() for peer in peers}
    theirs = {peer: Counter() for peer in peers}
    for attack in attacks(rows, seed, share):
        before = time.perf_counter()
        taken[attack.operator] += ours(*attack[1:])
        times.append(time.perf_counter() - before)
        total[attack.operator] += 1
        for peer, grader in peers.items() if total[attack.operator] <= PEER_ATTACKS else ():
            theirs[peer][attack.operator] += grader(*attack[1:])
            seen[peer][attack.operator] += 1
    result = []
    for operator in total:
        for peer in peers or ("",):
            own = 100 * taken[operator] / total[operator]
            other = 100 * theirs[peer][operator] / seen[peer][operator] if peer else None
            data = f"{total[operator]:,} of {name}, seed {seed}; peer {PEER_ATTACKS}"
            result.append(row_of(f"taken: {operator}", "% of answers", own, other, peer or None, data))
    times.sort()
    slow = {"time of a wrong answer, 99.9th percentile": times[int(0.999 * len(times))], "slowest": times[-1]}
    data = f"{len(times):,} answers"
    return result + [row_of(f"taken: {what}", "s", seconds, data=data) for what, seconds in slow.items()]


def law_rows() -> list[Row]:
    """Changed right answers that are taken and not equal, in percent by kind, on a fresh seed."""
    ours, seed = adversarial.load("ours"), random.SystemRandom().randrange(2**32)
    words = tomllib.loads((ROOT / "tests/data/changing_words.toml").read_text())
    rows = changes.right_answers(lambda name: read(ROOT / f"tests/data/{name}.jsonl"))
    rows = [row for row in rows if ours(*changes.asked_of(row), row["response"])]
    total, wrong = Counter(), Counter()
    for change in changes.changes(rows, words, CHANGES, seed):
        total[change.kind] += 1
        taken = ours(*changes.asked_of(change.row), change.response)
        wrong[change.kind] += taken and not changes.is_equal(change)
    return [
        row_of(
            f"taken: a changed {kind}",
            "% of answers",
            100 * wrong[kind] / total[kind],
            data=f"{total[kind]:,} changes of {len(rows):,} right answers, seed {seed}",
        )
        for kind in total
    ]


def program_rows(peers: dict[str, Bounded]) -> list[Row]:
    """How many texts of programs a grader runs."""
    mine = adversarial.programs(adversarial.load("ours"))
    data = f"{len(adversarial.FORMS['programs']['forms'])} programs"
    return [
        row_of("programs run", "programs", mine, adversarial.programs(grader), peer, data)
        for peer, grader in peers.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", **DATA)
    parser.add_argument("--peer", action="append", help="math-verify, sympy, or FILE.py:FUNCTION")
    parser.add_argument("--share", type=float, default=1.0, help="share of the references to attack")
    arguments = parser.parse_args()
    use_one_core()
    peers = {name: Bounded(name) for name in arguments.peer or PEERS}
    attacked = attack_rows(arguments.data, peers, arguments.share) + law_rows()
    rows = pair_rows(arguments.data, peers) + time_rows(arguments.data) + attacked + program_rows(peers)
    publish("grader", rows, "one used")
    failed = [row for row in attacked if row["unit"] == "% of answers" and row["ours"] > MOST]
    for what, _ in groupby(row["what"] for row in failed):
        print(f"more than {MOST} %: {what}", file=sys.stderr)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
