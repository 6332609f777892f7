"""Texts beside the web for the ablations of pre-training (paper 2.2 and 5.1): papers, source code, prose.

They stand for arXiv, GitHub and general text. Papers state and prove theorems and answer no question. Source
code computes: functions with checks of their values, and scripts that solve a stated problem of the training
split. Prose is that of the web's everyday pages. All are drawn from streams of their own, so that the web and
the data sets of problems do not depend on them.
"""

import random
from collections.abc import Callable
from pathlib import Path

from pipeline.core.data.rows import write_lines
from pipeline.examples.miniweb.genres import MAKERS, is_mathematics, write_article
from pipeline.examples.miniweb.pages import FORMULA, article_text
from pipeline.examples.miniweb.phrases import Writer, books
from pipeline.examples.miniweb.problems import MAX_CHANGE, MAX_START, MIN_CHANGE, make_problem, program


def paper(rng: random.Random) -> str:
    """Return a short paper in LaTeX: definitions, theorems and proofs."""
    return FORMULA.sub(r"$\1$", Writer(rng, "lecture", MAKERS)("paper"))


def source_code(rng: random.Random) -> str:
    """Return a file of Python: functions with checks, scripts that solve problems, code of a manual."""
    parts = [_function(rng) for _ in range(2)]
    for _ in range(3):
        problem = make_problem(rng, "train", "en")
        parts.append(f"# {problem.question}\n{program(problem)}\n# prints {problem.answer}")
    parts.append(Writer(rng, "docs", MAKERS)("code"))
    rng.shuffle(parts)
    return "\n\n".join(parts)


def _function(rng: random.Random) -> str:
    """Return a function of two sums or differences, and calls with the values that they return."""
    names = rng.sample(["left", "right", "more", "gained", "lost", "start", "rest"], 3)
    signs = [rng.choice("+-") for _ in range(2)]
    name = rng.choice(["balance", "total", "remaining", "count", "level"])
    lines = [f"def {name}({', '.join(names)}):"]
    lines.append(f"    return {names[0]} {signs[0]} {names[1]} {signs[1]} {names[2]}")
    for _ in range(4):
        values = [rng.randint(MAX_CHANGE, MAX_START)]
        values += [rng.randint(MIN_CHANGE, MAX_CHANGE) for _ in range(2)]
        result = values[0]
        for sign, value in zip(signs, values[1:], strict=True):
            result += value if sign == "+" else -value
        lines.append(f"assert {name}({', '.join(map(str, values))}) == {result}")
    return "\n".join(lines)


def prose(rng: random.Random) -> str:
    """Return the text of a page that is not mathematics."""
    written = [genre for genre in sorted(books()) if "lead" in books()[genre] and not is_mathematics(genre)]
    return article_text(write_article(rng, rng.choice(written)))


TEXTS: dict[str, Callable[[random.Random], str]] = {"papers": paper, "code": source_code, "prose": prose}


def write_texts(folder: Path, seed: int, count: int) -> None:
    """Write `count` documents of each kind, one file for each; no files for 0."""
    for name, write in TEXTS.items() if count else ():
        rng = random.Random(f"{seed}/texts/{name}")
        write_lines(folder / f"{name}.jsonl", ({"text": write(rng)} for _ in range(count)))
