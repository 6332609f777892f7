"""The grader: extraction, comparison, hostile text, agreement with labelled pairs.

MATH_VERIFY=<a checkout of huggingface/Math-Verify> also runs all of its own test cases.
"""

import ast
import math
import os
import random
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from given.answers import SEED, labelled, shared
from given.cases import cases
from given.lines import read_lines, write_lines
from mathverdict import answers
from mathverdict.answers import compare, grade, numeric_value
from mathverdict.extraction import extract
from mathverdict.notation import clean
from mathverdict.parser import parse

from pipeline.evaluate import grade as command

TABLES = cases("answers")


@pytest.mark.parametrize(("response", "answer"), TABLES["final"])
def test_the_final_answer_is_the_last_complete_box_then_the_phrase_then_the_last_number(response, answer):
    assert extract(response) == answer


@pytest.mark.slow
def test_every_labelled_pair_gets_its_label():
    """`about`: the kind of pair; `same`: whether a reader of the question takes both as the same answer."""
    rows = labelled("grader_pairs")
    found = [compare(row["reference"], row["answer"], question=row.get("question")) for row in rows]
    assert [row for row, verdict in zip(rows, found, strict=True) if verdict.right != row["same"]] == []


def test_every_labelled_response_gets_its_label():
    """`reward`: judged by the rules of RL; what copies the question is undecided there."""
    rows = labelled("grader_responses")
    found = [
        grade(row["reference"], row["response"], question=row.get("question"), boxed_only=row["reward"])
        for row in rows
    ]
    assert [row for row, verdict in zip(rows, found, strict=True) if verdict.right != row["right"]] == []
    assert all(
        verdict.verdict == row.get("verdict", verdict.verdict)
        for row, verdict in zip(rows, found, strict=True)
    )


def test_a_choice_is_right_by_letter_or_by_its_text():
    choices = {"A": "12", "B": "\\frac{1}{2}"}
    assert compare("B", "(B)", choices=choices).right
    assert compare("B", "0.5", choices=choices).right
    assert not compare("B", "12", choices=choices).right


HOSTILE = {
    "nested braces": "{" * 10_000 + "1" + "}" * 10_000,
    "nested parentheses": "(" * 1_400 + "1" + ")" * 1_400,
    "nested fractions": "\\frac{1}{" * 300 + "2" + "}" * 300,
    "nested roots": "\\sqrt{" * 400 + "x" + "}" * 400,
    "a tower of powers": "10^{10^{10^{10}}}",
    "a plain tower": "9^9^9^9^9",
    "many digits": "9" * 2_900,
    "a factorial of factorials": "((10!)!)!",
    "nested sums": "\\sum_{i=1}^{2000}\\sum_{j=1}^{2000}\\sum_{k=1}^{2000} ijk",
    "null bytes": "1\0" * 500,
    "signs": "\\pm" * 700 + "1",
    "dashes": "-" * 2_900,
    "bars": "|" * 2_900,
    "commas": "1," * 1_400,
    "a large power of a binomial": "(x+1)^{100000}",
    "a sine of a large number": "\\sin(10^{100000})",
    "dollar signs": "$" * 2_900,
    "text commands": "\\text{" * 400,
    "spaces": "x" + " " * 2_900 + "y",
    "unicode": "\u0661\u0662\U0001f600\u202e" * 500,
    "boxes that do not close": "\\boxed{" * 30_000,
    "new lines": "\n" * 390_000,
    "announced answers": "answer:。" * 60_000,
    "spaced dollar signs": "$ " * 100_000,
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


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_gets_a_verdict_quickly(text):
    pairs = [("1", text), (text, "5"), ("x^2", text), (text, text + " + 1"), ("(1,2)", f"({text},2)")]
    for reference, answer in pairs:
        started = time.process_time()
        assert compare(reference, answer).verdict in ("right", "wrong", "undecided")
        assert time.process_time() - started < 5
    for boxed_only in (False, True):
        started = time.process_time()
        assert grade("5", text, boxed_only=boxed_only).verdict in ("right", "wrong", "undecided")
        assert grade("5", f"\\boxed{{{text}}}", boxed_only=boxed_only)
        assert time.process_time() - started < 10
    numeric_value(text[:3000])


@pytest.mark.slow
def test_the_command_grades_hostile_pairs_without_a_traceback(tmp_path):
    rows = [{"reference": "5", "response": text} for text in HOSTILE.values()]
    rows += [{"reference": text, "prediction": "5"} for text in HOSTILE.values()]
    verdicts = tmp_path / "verdicts.jsonl"
    command.main(["--input", str(write_lines(tmp_path / "pairs.jsonl", rows)), "--output", str(verdicts)])
    assert len(read_lines(verdicts)) == len(rows)


BRANCHES = r"""
A+A|A-A|\frac{A}{A}|\sqrt[A]{A}|A^{A}|(A,A)|[A,A)|\{A,A\}|A=A|A<A|\sum_{k=1}^{A} A|\prod_{n=A}^{A} A
\binom{A}{A}|\log_{A} A|f(A)|\left|A\right||A!|\begin{pmatrix} A & A \\ A & A \end{pmatrix}|(A,A)^T
\begin{vmatrix} A & A \\ A & A \end{vmatrix}|A \cup A|x \in A|A \pm A|A, A|A \text{ cm}|A_{A}|A:A
\text{A}|\sin A|\arcsin(A)|\{x \mid A\}|A \equiv A \pmod{A}|\max(A,A)|A^\circ|A \text{ or } A
"""
LEAVES = r"0 1 2 5 12 0.5 x y n k i \pi e -3 \infty \emptyset 3\%".split()  # noqa: SIM905


def text_of(draw: random.Random, depth: int = 0) -> str:
    """A random text of the grammar of answers, which need not have a meaning."""
    if depth > 4 or draw.random() < 0.3:
        return draw.choice(LEAVES)
    form = draw.choice(BRANCHES.strip().replace("\n", "|").split("|"))
    return re.sub("A", lambda _: text_of(draw, depth + 1), form)


@pytest.mark.parametrize("part", range(4))
def test_no_text_of_the_grammar_makes_the_grader_fail(part):
    draw = random.Random(f"{SEED} {part}")
    for _ in range(250):
        reference, answer = text_of(draw), text_of(draw)
        question = draw.choice([None, f"Find ${answer}$ in cm.", f"What is ${text_of(draw)}$?"])
        verdict = grade(reference, f"\\boxed{{{answer}}}", question=question, boxed_only=True)
        assert verdict.verdict != "failed", (reference, answer, question, SEED)


PAIRS = [
    (r"\sqrt{12}", r"2\sqrt{3}"), (r"\sin(2x)", r"2\sin x\cos x"), (r"\binom{n}{2}", r"\frac{n(n-1)}{2}"),
    (r"\ln 8", r"3\ln 2"), (r"\arcsin 1", r"\frac{\pi}{2}"), (r"e^{i\pi}", "-1"),
    (r"\sqrt{12}", "3.4641016"),
]  # fmt: skip
HARD = r"\sum_{i=1}^{2000} \sin(i^2 x + i)"


def judge() -> list[bool]:
    answers._compared.cache_clear()
    return [compare(*pair).right for pair in PAIRS]


def test_threads_do_not_wait_for_or_disturb_each_other():
    found: list[list[bool]] = []
    threads = [threading.Thread(target=lambda: found.append(judge())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[True] * 6 + [False]] * 8


def test_a_fork_beside_a_busy_thread_grades():
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            compare(HARD, f"{HARD} + {time.monotonic_ns()}")

    busy = threading.Thread(target=work)
    busy.start()
    for _ in range(5):
        child = os.fork()
        if not child:
            signal.alarm(20)  # ends a child that hangs
            os._exit(0 if judge() == [True] * 6 + [False] else 1)
        assert os.waitpid(child, 0)[1] == 0
    done.set()
    busy.join()


def test_a_plain_integer_is_graded_without_parsing():
    """A training step grades thousands of these."""
    before = parse.cache_info(), clean.cache_info()
    response = "First 3 + 4 = 7. Then 7 + 5 = 12. The answer is \\boxed{12}"
    assert grade("12", response, question="How many?").right
    assert not grade("13", response, question="How many?", boxed_only=True).right
    assert (parse.cache_info(), clean.cache_info()) == before


@pytest.mark.slow
def test_agreement_with_labelled_pairs():
    rows = [row for row in shared("grader/pairs") if row["policy"] != "rounded"]
    found = [compare(row["gold"], row["pred"], question=row["question"]).right for row in rows]
    different = [(row, right) for row, right in zip(rows, found, strict=True) if right != row["label"]]
    assert [row for row, right in different if right] == []
    assert len(different) <= 0.003 * len(rows)


@pytest.mark.slow
def test_every_reference_equals_itself_and_none_other_at_random():
    rows = shared("bench/math_test")[::5]
    for row, other in zip(rows, rows[1:], strict=False):
        assert compare(row["answer"], f" {row['answer']} . ", question=row["question"]).right, row["answer"]
        forward, backward = compare(row["answer"], other["answer"]), compare(other["answer"], row["answer"])
        assert forward.right == backward.right, (row["answer"], other["answer"])


# Cases of Math-Verify's own tests on which this grader differs, and why.
MATH_VERIFY = os.environ.get("MATH_VERIFY")
FILES = ("all", "boxed", "numina_cases", "open_thoughts", "strict", "yujianll")
DIFFERENT = labelled("grader_math_verify")


def math_verify_cases() -> Iterator[tuple[str, str, bool]]:
    """Reference, response and expected verdict of each of its cases of two texts."""
    for name in FILES:
        for node in ast.walk(ast.parse((Path(MATH_VERIFY) / f"tests/test_{name}.py").read_text())):
            if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("parametrize"):
                continue
            names = [column.strip() for column in ast.literal_eval(node.args[0]).split(",")]
            expected = names.index("result" if "result" in names else "expected")
            for case in node.args[1].elts:
                values = eval(compile(ast.Expression(case), name, "eval"), {"math": math})
                yield values[0], values[1], bool(values[expected])


@pytest.mark.parametrize("row", DIFFERENT, ids=lambda row: row["reason"])
def test_math_verify_wants_another_verdict_for_each_listed_reason(row: dict) -> None:
    assert grade(row["reference"], row["response"]).right is not row["theirs"]


@pytest.mark.skipif(not MATH_VERIFY, reason="MATH_VERIFY names no checkout of huggingface/Math-Verify")
def test_no_other_verdict_of_math_verifys_own_cases_differs() -> None:
    cases = set(math_verify_cases())
    assert len(cases) > 200
    different = {case for case in cases if grade(*case[:2]).right is not case[2]}
    assert different == {(row["reference"], row["response"], row["theirs"]) for row in DIFFERENT}
