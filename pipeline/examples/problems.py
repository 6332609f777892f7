r"""Word problems with equations, as disjoint parts for fine-tuning, RL and development; not in the paper.

Inputs: `source`, rows with `question`, `answer` and `equation` (MAWPS, ASDiv-A and the like);
`benchmark.NAME`, the questions that must not be trained on. Outputs: `sft.jsonl`, `rl.jsonl`, `dev.jsonl` and
`test.jsonl`, whose rows serve as benchmark items and as fine-tuning examples; `sft-programs.jsonl` and
`rl-programs.jsonl`, the same problems solved by programs; `removals.jsonl`, each problem that shares a run of
words with a benchmark's question, and with which. Such a run counts too where only its numbers differ, as in
the variants that SVAMP makes of problems. Left out and counted are also exact copies, and problems whose
equation cannot be worked out step by step in short numbers or gives another answer.

A solution is the equation's operations, one a line, and the answer in a box:

    1500 * 8 = 12000
    25000 - 12000 = 13000
    The answer is $\boxed{13000}$.

A program prints the equation, `print(25000 - 1500 * 8)`, in a fence of Python. Problems that differ only in
their numbers are always in the same part, and no other part has a run of words, numbers masked, of a problem
of `test`.
"""

import ast
import operator
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config.decontaminate import DecontaminateSection
from pipeline.config.problems import ProblemsSection
from pipeline.core.data.rows import read_rows, renamed, write_lines
from pipeline.core.stage import Counts, InputError, Stage, run_stage
from pipeline.decontaminate.ngrams import BenchmarkIndex
from pipeline.evaluate.benchmarks import load

Row = dict[str, Any]
NGRAM = 10  # words of a run, numbers masked, that a problem must not share with a question kept out (2.1)
DECIMALS = 2  # places that a number of a solution may have
OPERATIONS = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
}
UNKNOWN = re.compile(r"^\s*[a-zA-Z]\w*\s*=")  # `x = 3 + 4`
NO_EQUATION, LONG_NUMBERS, OTHER_ANSWER = "no_equation", "long_numbers", "other_answer"


class Unusable(ValueError):
    """A problem without a solution that can be shown; the message is the reason under which it is counted."""


def short(value: Fraction) -> str:
    """Return a number as it is written in a solution: 12, 0.25. Raises Unusable."""
    shifted = value * 10**DECIMALS
    if shifted.denominator != 1:
        raise Unusable(LONG_NUMBERS)
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.{DECIMALS}f}".rstrip("0")


def work_out(node: ast.expr, lines: list[str]) -> Fraction:
    """Return the value of an equation's part; adds a line for each operation. Raises Unusable."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return Fraction(str(node.value))
    if not isinstance(node, ast.BinOp) or type(node.op) not in OPERATIONS:
        raise Unusable(NO_EQUATION)
    sign, operation = OPERATIONS[type(node.op)]
    left, right = work_out(node.left, lines), work_out(node.right, lines)
    if isinstance(node.op, ast.Div) and not right:
        raise Unusable(NO_EQUATION)
    value = operation(left, right)
    lines.append(f"{short(left)} {sign} {short(right)} = {short(value)}")
    return value


class ShortNumbers(ast.NodeTransformer):
    """Writes the numbers of an equation as a solution does: 76 for 76.0."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant(ast.literal_eval(short(Fraction(str(node.value)))))


def solve(equation: Any, answer: Any) -> tuple[str, str, str]:
    """(solution, program, answer) of a problem; raises Unusable."""
    lines: list[str] = []
    try:
        tree = ast.parse(UNKNOWN.sub("", str(equation)).strip(), mode="eval").body
        value = work_out(tree, lines)
        same = value == Fraction(str(answer).strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise error if isinstance(error, Unusable) else Unusable(NO_EQUATION) from error
    if not lines:
        raise Unusable(NO_EQUATION)
    if not same:
        raise Unusable(OTHER_ANSWER)
    last, written = short(value), ast.unparse(ShortNumbers().visit(tree))
    solution = "\n".join([*lines, f"The answer is $\\boxed{{{last}}}$."])
    return solution, f"```python\nprint({written})\n```", last


def plain(question: str) -> str:
    """Return a question's words and numbers, by which copies are found."""
    return " ".join(re.findall(r"[^\W_]+", question.lower()))


def story(question: str) -> str:
    """Return a question without its numbers."""
    return re.sub(r"\d+", "0", plain(question))


def masked_runs(question: str, length: int) -> Iterator[str]:
    """Return the runs of `length` words of a question without its numbers; all of a shorter one."""
    words = story(question).split()
    return (" ".join(words[at : at + length]) for at in range(max(1, len(words) - length + 1)))


def group_variants(questions: Sequence[str], length: int) -> list[int]:
    """Give the number of each question's group of variants: those that share a masked run, directly or by
    others.
    """
    parents, first = list(range(len(questions))), {}

    def root(number: int) -> int:
        while parents[number] != number:
            parents[number] = number = parents[parents[number]]
        return number

    for number, question in enumerate(questions):
        for run in masked_runs(question, length):
            parents[root(number)] = root(first.setdefault(run, number))
    return [root(number) for number in range(len(questions))]


def read_problems(stage: Stage[ProblemsSection], counts: Counter[str]) -> Iterator[Row]:
    """Return the problems that have a solution, as rows of the parts; the others are counted by reason."""
    for source in stage.inputs.get("source", []):
        for place, row in read_rows(source):
            counts["read"] += 1
            row = renamed(place, row, stage.config.fields)
            question = row.get("question")
            if not isinstance(question, str) or not question.strip():
                raise InputError(f"{place}: `question` is missing or empty")
            if row.get("answer") is None:
                raise InputError(f"{place}: `answer` is missing")
            try:
                solution, program, answer = solve(row.get("equation"), row["answer"])
            except Unusable as reason:
                counts[str(reason)] += 1
                continue
            problem = {"id": str(row.get("id") or f"problem-{counts['read']}"), "question": question.strip()}
            yield problem | {"answer": answer, "solution": solution, "program": program}


def example(row: Row, form: str) -> Row:
    """Return a problem as a fine-tuning example, solved in words (`cot`) or by its program (`pot`)."""
    found = {name: value for name, value in row.items() if name != "program"}
    turns = [("user", row["question"]), ("assistant", row["solution" if form == "cot" else "program"])]
    return found | {"messages": [{"role": role, "content": text} for role, text in turns], "format": form}


def without_copies(rows: Iterator[Row], counts: Counter[str]) -> list[Row]:
    """Return the first of each group of equal questions."""
    found: dict[str, Row] = {}
    for row in rows:
        if found.setdefault(plain(row["question"]), row) is not row:
            counts["copies"] += 1
    return list(found.values())


@dataclass(frozen=True)
class KeptOut:
    """The benchmarks' questions that are kept out: their grams, and the question of each masked run."""

    index: BenchmarkIndex
    masked: dict[str, tuple[str, str]]


def build_index(stage: Stage[ProblemsSection]) -> KeptOut:
    """All questions of the benchmarks that are kept out; one that stands in two benchmarks is added once, as
    what several questions share is weaker evidence.
    """
    found = KeptOut(BenchmarkIndex(NGRAM, DecontaminateSection().shortest), {})
    added: set[str] = set()
    for name, node in stage.config.benchmarks.items():
        for item in load(name, node, stage.inputs.get(f"benchmark.{name}", [])):
            if item.text not in added:
                found.index.add(name, item.id, item.text)
                for run in masked_runs(item.text, NGRAM):
                    found.masked.setdefault(run, (name, item.id))
            added.add(item.text)
    return found


def shared_runs(question: str, kept_out: KeptOut) -> Iterator[Row]:
    """Return the runs that a question shares with the benchmarks'; of masked ones the first, and only where
    there is no other.
    """
    matches = list(kept_out.index.matches(question))
    for match in matches:
        yield {"benchmark": match.benchmark, "item": match.item, "gram": match.gram, "words": match.grams}
    masked = (run for run in masked_runs(question, NGRAM) if run in kept_out.masked)
    if not matches and (run := next(masked, None)):
        benchmark, item = kept_out.masked[run]
        yield {"benchmark": benchmark, "item": item, "gram": run, "words": len(run.split())}


def kept_apart(rows: list[Row], kept_out: KeptOut, path: Path) -> list[Row]:
    """Return the rows that share no run of words with a benchmark's question; the others are written to
    `path`.
    """
    kept, removals = [], []
    for row in rows:
        shared = list(shared_runs(row["question"], kept_out))
        removals += ({"id": row["id"], "question": row["question"]} | run for run in shared)
        if not shared:
            kept.append(row)
    write_lines(path, removals)
    return kept


def unlike_test(parts: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Return the parts without what shares a masked run with a problem of the part `test`."""
    test = {run for row in parts["test"] for run in masked_runs(row["question"], NGRAM)}
    return {
        name: [row for row in rows if name == "test" or test.isdisjoint(masked_runs(row["question"], NGRAM))]
        for name, rows in parts.items()
    }


def split(rows: list[Row], section: ProblemsSection) -> dict[str, list[Row]]:
    """Return the rows by part. A part gets whole groups of one story, until it has as many problems as it
    should.
    """
    stories: dict[str, list[Row]] = {}
    for row in rows:
        stories.setdefault(story(row["question"]), []).append(row)
    groups = list(stories.values())
    wanted = {"test": section.test, "dev": section.dev, "rl": section.rl, "sft": len(rows)}
    parts: dict[str, list[Row]] = {name: [] for name in wanted}
    for number in np.random.default_rng(section.seed).permutation(len(groups)):
        part = next(name for name, found in parts.items() if len(found) < wanted[name])
        parts[part] += groups[number]
    if not parts["sft"]:
        raise InputError(
            f"problems: {len(rows)} problems are left, too few for test ({section.test}), dev ({section.dev})"
            f" and rl ({section.rl})"
        )
    return parts


def run(stage: Stage[ProblemsSection]) -> Counts:
    """Write the parts; returns how many problems were read, left out by reason, and are in each part."""
    left_out = dict.fromkeys((NO_EQUATION, LONG_NUMBERS, OTHER_ANSWER, "copies"), 0)
    counts: Counter[str] = Counter({"read": 0} | left_out)
    rows = without_copies(read_problems(stage, counts), counts)
    kept = kept_apart(rows, build_index(stage), stage.partial / "removals.jsonl")
    counts["like_a_benchmark"] = len(rows) - len(kept)
    parts = unlike_test(split(kept, stage.config))
    counts["like_test"] = len(kept) - sum(map(len, parts.values()))
    for name, part in parts.items():
        counts[name] = len(part)
        for form, file in (("cot", name), ("pot", f"{name}-programs")):
            if f"{file}.jsonl" in stage.config.files:
                write_lines(stage.partial / f"{file}.jsonl", (example(row, form) for row in part))
    return dict(counts)


if __name__ == "__main__":
    run_stage("problems", ProblemsSection, run)
