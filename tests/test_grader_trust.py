r"""The grader as a reward: wrong answers that looked right to it, bounds, and formats that it must know."""

import json
import time

import pytest

from pipeline.evaluate import grade as command
from pipeline.grader.answers import compare, grade, numeric_value

SLOW = {
    "boxes that do not close": "\\boxed{" * 30_000,
    "new lines": "\n" * 390_000,
    "announced answers": "answer:。" * 60_000,
    "dollar signs": "$ " * 100_000,
    "opened formulas": "\\(" * 100_000,
    "boxes": "\\boxed{5} and " * 15_000,
    "holes": " \\text{ and } ".join(f"x \\ne \\sqrt{{{place}}}" for place in range(60)),
    "roots": ",".join(f"\\sqrt{{{place}}}" for place in range(150)),
    "percent signs": "5" + "%" * 2000,
    "a deep product": "a$b" * 900,
    "540 digits": "9" * 540,
    "5,000 digits": "9" * 5000,
    "a long exponent": "1e400",
    "digits before a box": "1" * 90 + " \\boxed{5}",
    "growing numerals": "3万亿" * 900,
    "growing numerals in words": "三万亿" * 900,
}


@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW.keys())
def test_no_verdict_takes_long_or_raises(text):
    """A fifth of these seconds is usual; what grows with the square of the length takes minutes."""
    for reference, answer in (("5", text), (text, "5"), ("x+1", text), (text, text + " + 1")):
        started = time.process_time()
        assert compare(reference, answer).verdict in ("right", "wrong", "undecided")
        assert time.process_time() - started < 5
    for boxed_only in (False, True):
        started = time.process_time()
        assert grade("5", text, boxed_only=boxed_only).verdict in ("right", "wrong", "undecided")
        assert grade("5", f"\\boxed{{{text}}}", boxed_only=boxed_only)
        assert time.process_time() - started < 10
    numeric_value(text[:3000])


def test_the_command_grades_hostile_pairs_without_a_traceback(tmp_path):
    pairs, verdicts = tmp_path / "pairs.jsonl", tmp_path / "verdicts.jsonl"
    rows = [{"reference": "5", "response": text} for text in SLOW.values()]
    rows += [{"reference": text, "prediction": "5"} for text in SLOW.values()]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command.main(["--input", str(pairs), "--output", str(verdicts)])
    assert len(verdicts.read_text().splitlines()) == len(rows)
