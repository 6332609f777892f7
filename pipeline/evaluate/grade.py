"""Grade answers from a file: `python -m pipeline.evaluate.grade --input PAIRS --output VERDICTS`."""

import argparse
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

from mathverdict.answers import Verdict

from pipeline.config.evaluate import Rules
from pipeline.core.data.rows import read_as
from pipeline.core.stage import InputError
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.commands import make_parser, run_command, write_rows
from pipeline.evaluate.profiles import STRICT, Profile, grade_answer, grade_response

FORMATS = """\
Input, one JSON object per line: "id", "reference", and "prediction" (a final answer) or "response" (free
text, from which the final answer is taken: last \\boxed{...}, else what follows "answer is", else the last
number); "question" and "choices" ({letter: text}) help where they are known.
Output, in the same order: "id", "verdict" (right, wrong, undecided, or
failed where the grader itself did), "extracted", "reason"."""


def parser() -> argparse.ArgumentParser:
    about = "Compare final answers with references; nothing that a model wrote is run."
    parser = make_parser("grade", about, FORMATS)
    parser.add_argument("--input", type=Path, required=True, help="pairs, JSON lines (.gz allowed)")
    parser.add_argument("--output", type=Path, required=True, help="verdicts, JSON lines")
    parser.add_argument(
        "--boxed-only", action="store_true", help="as in RL: a response without a box has no answer"
    )
    parser.add_argument("--profile", default=STRICT, choices=get_args(Rules), help="rules of grading")
    return parser


@dataclass(frozen=True)
class Pair:
    """A reference, and a final answer (`prediction`) or a text that holds one (`response`)."""

    reference: str
    prediction: Any = None  # what is no text counts as absent, if the other is one
    response: Any = None
    question: str | None = None
    choices: dict[str, str] | None = None
    id: Any = None  # a text or a number

    def grade(self, profile: Profile, boxed_only: bool) -> Verdict:
        """Return the verdict under a profile."""
        item = Item(self.id, self.question, self.reference, self.choices)
        if isinstance(self.prediction, str):
            return grade_answer(profile, item, self.prediction)
        if boxed_only and profile.rules == STRICT:
            return item.grade(self.response, boxed_only=True)
        return grade_response(profile, item, self.response)


def read_pairs(path: Path) -> list[Pair]:
    """Return the pairs of a file; one without an id is named by its place. Raises InputError naming file and
    line.
    """
    pairs: dict[Any, Pair] = {}
    for place, pair in read_as(Pair, str(path)):
        if not isinstance(pair.prediction, str) and not isinstance(pair.response, str):
            raise InputError(f"{place}: give `prediction` or `response` as a text")
        if not isinstance(pair.id, str | int | float | None):
            raise InputError(f"{place}: `id` is neither a text nor a number")
        if pair.id in pairs:
            raise InputError(f"{place}: id {pair.id!r} occurs twice")
        named = place if pair.id is None else pair.id
        pairs[named] = replace(pair, id=named)
    if not pairs:
        raise InputError(f"{path}: no pairs")
    return list(pairs.values())


def grade(options: argparse.Namespace) -> None:
    """Write the verdicts on all pairs."""
    profile, pairs = Profile(options.profile), read_pairs(options.input)
    rows = ({"id": pair.id, **asdict(pair.grade(profile, options.boxed_only))} for pair in pairs)
    write_rows(options.output, rows, len(pairs), "pair")


def main(argv: list[str] | None = None) -> None:
    run_command(parser(), grade, argv)


if __name__ == "__main__":
    main()
