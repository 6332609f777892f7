"""Grade answers from a file: `python -m pipeline.evaluate.grade --input PAIRS --output VERDICTS`."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from pipeline.common.rows import read_rows
from pipeline.common.stage import InputError
from pipeline.evaluate.answers import extract
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.grading import grade_answers

HELP = """\
Input, one JSON object per line: "id", "reference", and "prediction" (a final answer) or "response" (free
text, from which the final answer is taken: last \\boxed{...}, else what follows "answer is", else the last
number); "question" and "choices" ({letter: text}) help where they are known.
Output, in the same order: "id", "verdict" (right, wrong or undecided), "extracted", "reason"."""


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
    return parser


def _job(place: str, row: dict[str, Any], boxed_only: bool) -> tuple[Item, str | None]:
    reference, prediction, response = row.get("reference"), row.get("prediction"), row.get("response")
    if not isinstance(reference, str):
        raise InputError(f"{place}: `reference` is missing or not a string")
    if not isinstance(prediction, str) and not isinstance(response, str):
        raise InputError(f"{place}: give `prediction` or `response` as a string")
    item = Item(str(row.get("id", place)), row.get("question"), reference, row.get("choices"))
    return item, prediction if isinstance(prediction, str) else extract(response, boxed_only=boxed_only)


def main(argv: list[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    try:
        jobs = [_job(place, row, arguments.boxed_only) for place, row in read_rows(str(arguments.input))]
        verdicts = grade_answers(jobs)
        temporary = arguments.output.with_name(f".{arguments.output.name}.partial")
        with temporary.open("w") as file:
            for (item, _), verdict in zip(jobs, verdicts, strict=True):
                row = {
                    "id": item.id,
                    "verdict": verdict.verdict,
                    "extracted": verdict.extracted,
                    "reason": verdict.reason,
                }
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        temporary.replace(arguments.output)
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
