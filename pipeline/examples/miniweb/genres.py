"""The kinds of pages. A genre is a phrase book; the layout grammar of its language (books/layouts.yaml) says
how its page is laid out. Genres with a layout of their own, `page_GENRE`, are mathematics; all others share
`page` and are not. Word problems and their solutions come from the train split: these pages are the texts
that the demo's models learn from.
"""

import random
from functools import cache

from pipeline.examples.miniweb.calculations import (
    ADVANCED,
    SCHOOL,
    discount,
    order_of_operations,
    sequence,
    speed,
    thought,
    worked,
)
from pipeline.examples.miniweb.pages import Article
from pipeline.examples.miniweb.phrases import Maker, Writer, books, load_yaml
from pipeline.examples.miniweb.problems import joined_sum, make_problem


@cache
def theorems() -> tuple[dict[str, str], ...]:
    """Read the theorems: name, definition, statement and proof, with symbols of the book `lecture`."""
    return load_yaml("theorems.yaml", tuple[dict[str, str], ...])


def _theorem(write: Writer) -> dict[str, str]:
    return {key: write.expand(text) for key, text in write.deal("theorems", theorems()).items()}


def _problem(write: Writer) -> dict[str, str]:
    """Draw a word problem: {question}, {conclusion} and its equations as {lines} or as {formulas}.

    They are mostly one equation a line, sometimes one joined sum.
    """
    problem = make_problem(write.rng, "train", write.language)
    equations = problem.steps if write.rng.random() < 0.9 else [joined_sum(problem)]
    return {
        "question": problem.question,
        "lines": "\n".join(equations),
        "formulas": "\n".join(f"⟦{equation}⟧" for equation in equations),
        "conclusion": problem.conclusion,
    }


MAKERS: dict[str, Maker] = {
    **dict.fromkeys(("theorem", "theorem_name", "proof_question", "statement", "paper_section"), _theorem),
    **dict.fromkeys(("headed", "plain", "headed_formulas", "plain_formulas", "quoted_problem"), _problem),
    "computed": worked(*ADVANCED),
    "worked": worked(*SCHOOL),
    "ordered": worked(order_of_operations),
    "number_question": worked(*ADVANCED, *SCHOOL),
    "task": lambda write: {},
    **{function.__name__: function for function in (discount, speed, sequence, thought)},
}


def layout_of(genre: str) -> str:
    """Return the symbol of a genre's layout."""
    layout = f"page_{genre.removesuffix('_zh')}"
    return layout if layout in books()[genre] else "page"


def is_mathematics(genre: str) -> bool:
    return layout_of(genre) != "page"


def write_article(rng: random.Random, genre: str) -> Article:
    """Write a page of `genre`, the name of a phrase book."""
    write = Writer(rng, genre, MAKERS)
    parts = [part.strip() for part in write(layout_of(genre)).split("\n\n")]
    title, *blocks = (part[:1].upper() + part[1:] for part in parts if part)
    return Article(title, tuple(blocks), genre, write.language, is_mathematics(genre))
