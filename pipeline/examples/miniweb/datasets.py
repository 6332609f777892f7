"""Data sets made of problems: SFT examples, RL prompts and benchmarks, in the formats that stages read.

The SFT set mixes solution styles by weight (`problems.py` says why); the paper's SFT set (section 3.1)
mixes formats and languages in unstated shares. RL prompts come from the training split, as in section 4.2.
"""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.core.data.rows import write_lines
from pipeline.examples.miniweb.problems import Problem, Style, render_solution

BENCHMARK = "miniweb"


def write_sft(
    path: Path,
    problems: list[Problem],
    style_weights: Sequence[Mapping[Style, float]],
    seed: int,
    without: Sequence[Style] = (),
) -> None:
    """Write a chat example per problem; `style_weights[n]` holds for problems of n + 1 operations.
    Examples of the styles `without` are left out, and the others stay the same.
    """
    rng = random.Random(f"{seed}/styles")
    weights = (style_weights[len(problem.operations) - 1] for problem in problems)
    styles = [rng.choices(list(weight), list(weight.values()))[0] for weight in weights]
    examples = (
        {
            "id": f"miniweb-sft-{number}",
            "messages": [
                {"role": "user", "content": problem.question},
                {"role": "assistant", "content": render_solution(problem, style)},
            ],
            "format": "tool" if style == "tool" else "cot",
            "source": f"miniweb:{style}",
        }
        for number, (problem, style) in enumerate(zip(problems, styles, strict=True))
        if style not in without
    )
    write_lines(path, examples)


def identifier(problem: Problem, number: int) -> str:
    """Return the id of the item `number` of a benchmark."""
    return f"{BENCHMARK}-{problem.split}-{number}"


def write_benchmark(path: Path, problems: list[Problem]) -> None:
    """Write questions with answers and step-by-step solutions; also the format of RL prompts."""
    items = (
        {
            "id": identifier(problem, number),
            "benchmark": BENCHMARK,
            "split": problem.split,
            "lang": problem.lang,
            "question": problem.question,
            "answer": problem.answer,
            "solution": render_solution(problem, "cot"),
            "subject": problem.template,
            "level": len(problem.operations),
        }
        for number, problem in enumerate(problems)
    )
    write_lines(path, items)
