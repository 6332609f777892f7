r"""Word problems with equations, as disjoint parts for fine-tuning, RL and development; not in the paper.

Inputs: `source`, rows with `question`, `answer` and `equation` (MAWPS, ASDiv-A and the like);
`benchmark.NAME`, the questions that must not be trained on. Outputs: `sft.jsonl`, `rl.jsonl` and `dev.jsonl`,
whose rows serve as benchmark items and as fine-tuning examples; `removals.jsonl`, each problem that shares a
run of words with a benchmark's question, and with which. Left out and counted are also exact copies, and
problems whose equation cannot be worked out step by step in short numbers or gives another answer.

A solution is the equation's operations, one a line, and the answer in a box:

    1500 * 8 = 12000
    25000 - 12000 = 13000
    The answer is $\boxed{13000}$.

Problems that differ only in their numbers are always in the same part.
"""

import ast
import json
import operator
import re
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config.decontaminate import DecontaminateSection
from pipeline.config.problems import ProblemsSection
from pipeline.data.rows import read_rows, renamed
from pipeline.decontaminate.ngrams import BenchmarkIndex
from pipeline.evaluate.benchmarks import load
from pipeline.protocol.stage import Counts, InputError, Stage, run_stage

Row = dict[str, Any]
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


def solve(equation: Any, answer: Any) -> tuple[str, str]:
    """(solution, answer) of a problem; raises Unusable."""
    lines: list[str] = []
    try:
        value = work_out(ast.parse(UNKNOWN.sub("", str(equation)).strip(), mode="eval").body, lines)
        same = value == Fraction(str(answer).strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise error if isinstance(error, Unusable) else Unusable(NO_EQUATION) from error
    if not lines:
        raise Unusable(NO_EQUATION)
    if not same:
        raise Unusable(OTHER_ANSWER)
    last = short(value)
    return "\n".join([*lines, f"The answer is $\\boxed{{{last}}}$."]), last


def plain(question: str) -> str:
    """Return a question's words and numbers, by which copies are found."""
    return " ".join(re.findall(r"[^\W_]+", question.lower()))


def story(question: str) -> str:
    """Return a question without its numbers."""
    return re.sub(r"\d+", "0", plain(question))


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
                solution, answer = solve(row.get("equation"), row["answer"])
            except Unusable as reason:
                counts[str(reason)] += 1
                continue
            turns = [("user", question.strip()), ("assistant", solution)]
            yield {
                "id": str(row.get("id") or f"problem-{counts['read']}"),
                "question": question.strip(),
                "answer": answer,
                "solution": solution,
                "messages": [{"role": role, "content": content} for role, content in turns],
                "format": "cot",
            }


def without_copies(rows: Iterator[Row], counts: Counter[str]) -> list[Row]:
    """Return the first of each group of equal questions."""
    found: dict[str, Row] = {}
    for row in rows:
        if found.setdefault(plain(row["question"]), row) is not row:
            counts["copies"] += 1
    return list(found.values())


def build_index(stage: Stage[ProblemsSection]) -> BenchmarkIndex:
    """All questions of the benchmarks that are kept out; one that stands in two benchmarks is added once, as
    what several questions share is weaker evidence.
    """
    index = BenchmarkIndex(stage.config.ngram, DecontaminateSection().shortest)
    added: set[str] = set()
    for name, node in stage.config.benchmarks.items():
        for item in load(name, node, stage.inputs.get(f"benchmark.{name}", [])):
            if item.text not in added:
                index.add(name, item.id, item.text)
            added.add(item.text)
    return index


def kept_apart(rows: list[Row], index: BenchmarkIndex, path: Path) -> list[Row]:
    """Return the rows that share no run of words with a benchmark's question; the others are written to
    `path`.
    """
    kept = []
    with path.open("w") as file:
        for row in rows:
            matches = index.matches(row["question"])
            for match in matches:
                found = {"id": row["id"], "question": row["question"], "benchmark": match.benchmark}
                found |= {"item": match.item, "gram": match.gram, "words": match.grams}
                file.write(json.dumps(found, ensure_ascii=False) + "\n")
            if not matches:
                kept.append(row)
    return kept


def split(rows: list[Row], section: ProblemsSection) -> dict[str, list[Row]]:
    """Return the rows by part. A part gets whole groups of one story, until it has as many problems as it
    should.
    """
    stories: dict[str, list[Row]] = {}
    for row in rows:
        stories.setdefault(story(row["question"]), []).append(row)
    groups = list(stories.values())
    parts: dict[str, list[Row]] = {"dev": [], "rl": [], "sft": []}
    wanted = {"dev": section.dev, "rl": section.rl, "sft": len(rows)}
    for number in np.random.default_rng(section.seed).permutation(len(groups)):
        part = next(name for name, found in parts.items() if len(found) < wanted[name])
        parts[part] += groups[number]
    if not parts["sft"]:
        raise InputError(
            f"problems: {len(rows)} problems are left, too few for dev ({section.dev}) and rl ({section.rl})"
        )
    return parts


def run(stage: Stage[ProblemsSection]) -> Counts:
    """Write the parts; returns how many problems were read, left out by reason, and are in each part."""
    left_out = dict.fromkeys((NO_EQUATION, LONG_NUMBERS, OTHER_ANSWER, "copies"), 0)
    counts: Counter[str] = Counter({"read": 0} | left_out)
    rows = without_copies(read_problems(stage, counts), counts)
    kept = kept_apart(rows, build_index(stage), stage.partial / "removals.jsonl")
    counts["like_a_benchmark"] = len(rows) - len(kept)
    for name, part in split(kept, stage.config).items():
        with (stage.partial / f"{name}.jsonl").open("w") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in part)
        counts[name] = len(part)
    return dict(counts)


if __name__ == "__main__":
    run_stage("problems", ProblemsSection, run)
