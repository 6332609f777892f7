"""Grade answers from a file: `python -m pipeline.evaluate.grade --input PAIRS --output VERDICTS`."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.data.rows import read_rows
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.profiles import Profile, grade_answer, grade_response, profile_names, read_profile
from pipeline.grader.answers import Verdict
from pipeline.protocol.atomic import atomic_write
from pipeline.protocol.progress import Progress
from pipeline.protocol.stage import InputError

HELP = """\
Input, one JSON object per line: "id", "reference", and "prediction" (a final answer) or "response" (free
text, from which the final answer is taken: last \\boxed{...}, else what follows "answer is", else the last
number); "question" and "choices" ({letter: text}) help where they are known.
Output, in the same order: "id", "verdict" (right, wrong, undecided, or
failed where the grader itself did), "extracted", "reason"."""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.evaluate.grade",
        description="Compare final answers with references; nothing that a model wrote is run.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--input", type=Path, required=True, help="pairs, JSON lines (.gz allowed)")
    parser.add_argument("--output", type=Path, required=True, help="verdicts, JSON lines")
    parser.add_argument(
        "--boxed-only", action="store_true", help="as in RL: a response without a box has no answer"
    )
    parser.add_argument(
        "--profile", default="strict", help=f"rules of grading: {', '.join(profile_names())} (or an alias)"
    )
    return parser


def read_pairs(path: Path) -> list[tuple[Item, dict[str, Any]]]:
    """Return the pairs of a file. Raises InputError naming file and line."""
    pairs, seen = [], set()
    for place, row in read_rows(str(path)):
        if not isinstance(row.get("reference"), str):
            raise InputError(f"{place}: `reference` is missing or not a string")
        if not isinstance(row.get("prediction"), str) and not isinstance(row.get("response"), str):
            raise InputError(f"{place}: give `prediction` or `response` as a string")
        if not isinstance(row.get("question"), str | None) or not isinstance(row.get("choices"), dict | None):
            raise InputError(f"{place}: `question` must be a string and `choices` map letters to texts")
        if not all(isinstance(text, str) for text in (row.get("choices") or {}).values()):
            raise InputError(f"{place}: `choices` must map letters to texts")
        if not isinstance(row.get("id"), str | int | float | None):
            raise InputError(f"{place}: `id` is neither a text nor a number")
        if "id" in row and row["id"] in seen:
            raise InputError(f"{place}: id {row['id']!r} occurs twice")
        seen.add(row.get("id"))
        pairs.append(
            (Item(row.get("id", place), row.get("question"), row["reference"], row.get("choices")), row)
        )
    if not pairs:
        raise InputError(f"{path}: no pairs")
    return pairs


def verdict(item: Item, row: dict[str, Any], profile: Profile | None, boxed_only: bool) -> Verdict:
    """Return the verdict on one pair."""
    if isinstance(row.get("prediction"), str):
        return grade_answer(profile, item, row["prediction"])
    if boxed_only and profile is None:
        return item.grade(row["response"], boxed_only=True)
    return grade_response(profile, item, row["response"])


def main(argv: list[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    try:
        profile = read_profile(arguments.profile)
        pairs = read_pairs(arguments.input)
        with (
            atomic_write(arguments.output) as partial,
            partial.open("w") as file,
            Progress("grade", len(pairs), unit="pair") as bar,
        ):
            for item, row in pairs:
                found = verdict(item, row, profile, arguments.boxed_only)
                file.write(json.dumps({"id": item.id, **asdict(found)}, ensure_ascii=False) + "\n")
                bar.update()
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
