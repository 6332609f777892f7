"""The demo's data sets made of problems: SFT examples, RL prompts and benchmarks, in every stage's formats.

The SFT set mixes solution styles by weight (see `problems.py` for why); the paper's SFT set (section 3.1)
mixes formats and languages in unstated shares. RL prompts come from the training split, as in section 4.2.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pipeline.miniweb.problems import Problem
from pipeline.miniweb.solutions import Style, render_solution

FORMATS: dict[Style, str] = {"cot": "cot", "brief": "cot", "direct": "cot", "program": "pot", "tool": "tool"}


def write_sft(
    path: Path, problems: list[Problem], style_weights: Sequence[Mapping[Style, float]], seed: int
) -> None:
    """Write one chat example per problem; `style_weights` are for problems of one, two, three operations."""
    rng = random.Random(f"{seed}/styles")
    styles = [_draw(rng, style_weights[len(problem.operations) - 1]) for problem in problems]
    write_lines(
        path,
        (
            {
                "id": f"miniweb-sft-{number}",
                "messages": [
                    {"role": "user", "content": problem.question},
                    {"role": "assistant", "content": render_solution(problem, style)},
                ],
                "format": FORMATS[style],
                "source": f"miniweb:{style}",
            }
            for number, (problem, style) in enumerate(zip(problems, styles, strict=True))
        ),
    )


def write_benchmark(path: Path, problems: list[Problem], benchmark: str) -> None:
    """Write questions with answers and step-by-step solutions; also the format of RL prompts."""
    write_lines(
        path,
        (
            {
                "id": f"{benchmark}-{problem.split}-{number}",
                "benchmark": benchmark,
                "split": problem.split,
                "lang": problem.lang,
                "question": problem.question,
                "answer": problem.answer,
                "solution": render_solution(problem, "cot"),
                "subject": problem.template,
                "level": len(problem.operations),
            }
            for number, problem in enumerate(problems)
        ),
    )


def _draw(rng: random.Random, weights: Mapping[Style, float]) -> Style:
    return rng.choices(list(weights), list(weights.values()))[0]


def write_lines(path: Path, records: Iterable[dict]) -> None:
    """Write JSON lines."""
    with path.open("w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
