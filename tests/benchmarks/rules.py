"""`make bench-rules [DATA=...]`: which verdicts each rule of the grader decides.

A rule is a function or the body of an `if`. Each is switched off in turn (`switches`), and the labelled
cases that pass it are judged again: right answers are lost then, or wrong ones taken. A rule that decides
nothing is a bound on long input, a shortcut, or a reason in a message; else it needs a case, or goes. Prints
the table by module. One process on one core, a minute or two.
"""

import random
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import switches

switches.install()

import grader  # noqa: E402  the grader is imported with its switches
from adversarial import LANGUAGES  # noqa: E402
from spellings import spellings  # noqa: E402
from table import ROOT, data_folder, larger_set, publish, row_of  # noqa: E402

from pipeline.grader import answers  # noqa: E402

SEED, SHARE = 0, 0.01  # of the suite's attacks
MOST = 60  # cases that are judged again for one rule
SECONDS = 2  # of one verdict: a bound that is off may let it run for ever


class Case(NamedTuple):
    """A final answer, or with `response` a whole response under the rules of RL (or the metric's)."""

    right: bool
    reference: str
    answer: str
    question: str | None
    response: bool = False
    reward: bool = False


class Late(BaseException):
    """A verdict takes too long; no exception that the grader handles."""


def cases(data: Path | None) -> Iterator[Case]:
    """Yield every labelled case: our own, the larger sets', unusual writing, and a share of the attacks."""
    for path in (grader.PAIRS, LANGUAGES):
        for row in grader.read(path):
            yield Case(row["same"], row["reference"], row["answer"], row.get("question"))
    for row in grader.read(ROOT / "tests/data/grader_responses.jsonl"):
        yield Case(row["right"], row["reference"], row["response"], row.get("question"), True, row["reward"])
    for row in grader.labelled_pairs(data)[1] if data else ():
        yield Case(row["label"], row["gold"], row["pred"], row["question"])
    if path := larger_set(data, "grader/responses.jsonl", "our own responses"):
        for row in grader.read(path):
            yield Case(row["label"], row["gold"], row["response"], None, True)
    for spelling in spellings(SEED, times=2):
        yield Case(True, spelling.reference, spelling.answer, spelling.question)
    for attack in grader.attacks(grader.references(data)[1], SEED, SHARE):
        yield Case(False, attack.reference, attack.response, attack.question, True, True)


def is_right(case: Case) -> bool | None:
    """Whether the grader takes an answer; None if it takes too long or fails."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        judge = answers.grade if case.response else answers.compare
        reward = {"boxed_only" if case.response else "reward": case.reward}
        return judge(case.reference, case.answer, question=case.question, **reward).right
    except (Late, Exception):
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def judged(labelled: Iterator[Case]) -> Iterator[bool | None]:
    """Yield what `is_right` says of each case, until a third one takes too long."""
    late = 0
    for case in labelled:
        right = is_right(case)
        yield right
        late += right is None
        if late == 3:
            return


def forget() -> None:
    """Empty the grader's caches, so that a verdict passes all of its rules."""
    for name, module in list(sys.modules.items()):
        for function in vars(module).values() if name.startswith(switches.PACKAGE) else ():
            if hasattr(function, "cache_clear"):
                function.cache_clear()


def decided(labelled: list[Case]) -> list[dict[str, Any]]:
    """Say for each rule how many cases pass it, how many were tried, and the cases that it decides."""
    passing, before = defaultdict(list), []
    for place, case in enumerate(labelled):
        forget()
        switches.passed.clear()
        before.append(is_right(case))
        for rule in switches.passed:
            passing[rule].append(place)
    result = []
    for number, rule in enumerate(switches.rules):
        places = passing[number]
        tried = random.Random(SEED).sample(places, min(MOST, len(places)))
        forget()
        switches.off = number
        found = {"lost": [], "taken": []}
        for place, right in zip(tried, judged(labelled[place] for place in tried), strict=False):
            if labelled[place].right and before[place] and not right:
                found["lost"].append(place)
            elif right and not before[place] and not labelled[place].right:
                found["taken"].append(place)
        switches.off = None
        result.append(rule._asdict() | {"passed": len(places), "tried": len(tried)} | found)
    return result


def by_module(found: list[dict[str, Any]]) -> str:
    """Return the table by module: its lines, its rules, and the different cases that they decide."""
    lines = [
        "| module | lines | rules | decide a verdict | right answers lost without | wrong ones taken |",
        "|---|---|---|---|---|---|",
    ]
    for module in sorted({row["module"] for row in found}):
        rows = [row for row in found if row["module"] == module]
        length = len((ROOT / f"pipeline/grader/{module}.py").read_text().splitlines())
        cases = [len({place for row in rows for place in row[key]}) for key in ("lost", "taken")]
        deciding = sum(bool(row["lost"] or row["taken"]) for row in rows)
        lines.append(f"| `{module}` | {length} | {len(rows)} | {deciding} | {cases[0]:,} | {cases[1]:,} |")
    return "\n".join(lines)


def main() -> None:
    data = data_folder(__doc__)

    def late(*_: object) -> None:
        raise Late

    signal.signal(signal.SIGALRM, late)
    labelled = list(cases(data))
    found = decided(labelled)
    print(by_module(found))
    rows = []
    for rule in found:
        lost, taken = len(rule["lost"]), len(rule["taken"])
        what = f"{rule['module']}:{rule['line']} {rule['text']}"
        data = f"{lost} lost, {taken} taken; {rule['passed']:,} cases pass it"
        rows.append(row_of(what[:66], "verdicts", lost + taken, data=data))
    publish("rules", rows, f"one used, {len(labelled):,} cases, at most {MOST} for a rule")


if __name__ == "__main__":
    main()
