"""Math-Verify's own test cases: where this grader disagrees, and why (`data/grader_math_verify.jsonl`).

MATH_VERIFY=<a checkout of huggingface/Math-Verify> also runs all of its cases: no other verdict differs.
"""

import ast
import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from given.answers import labelled

from pipeline.grader.answers import grade

CHECKOUT = os.environ.get("MATH_VERIFY")
FILES = ("all", "boxed", "numina_cases", "open_thoughts", "strict", "yujianll")
DIFFERENT = labelled("grader_math_verify")


def theirs() -> Iterator[tuple[str, str, bool]]:
    """Reference, response and expected verdict of each of its cases of two texts."""
    for name in FILES:
        for node in ast.walk(ast.parse((Path(CHECKOUT) / f"tests/test_{name}.py").read_text())):
            if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("parametrize"):
                continue
            names = [column.strip() for column in ast.literal_eval(node.args[0]).split(",")]
            expected = names.index("result" if "result" in names else "expected")
            for case in node.args[1].elts:
                values = eval(compile(ast.Expression(case), name, "eval"), {"math": math})
                yield values[0], values[1], bool(values[expected])


@pytest.mark.parametrize("row", DIFFERENT, ids=lambda row: row["reason"])
def test_each_listed_verdict_differs(row: dict) -> None:
    assert grade(row["reference"], row["response"]).right is not row["theirs"]


@pytest.mark.skipif(not CHECKOUT, reason="MATH_VERIFY names no checkout of huggingface/Math-Verify")
def test_no_other_verdict_differs() -> None:
    cases = set(theirs())
    assert len(cases) > 200
    different = {case for case in cases if grade(*case[:2]).right is not case[2]}
    assert different == {(row["reference"], row["response"], row["theirs"]) for row in DIFFERENT}
