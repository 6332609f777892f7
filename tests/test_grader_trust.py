r"""The grader as a reward: wrong answers that looked right to it, bounds, and formats that it must know."""

import json
import time

import pytest

from pipeline.evaluate import grade as command
from pipeline.grader.answers import compare, grade, numeric_value


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("i", "-i"),
        ("-x", "x"),
        ("x-y", "x+y"),
        ("n", "n!"),
        ("(x-1)(x+2)", "(x+1)(x-2"),
        ("(2,\\infty)", "[-2,\\infty"),
        ("(-1)^n", "-1"),
        ("(-1)^{n+k}", "-1"),
        ("n", "n \\bmod 100"),
        ("x", "\\lfloor x \\rfloor"),
        ("21/2", "2 1/2"),
        ("0", "10^{-60}\\pi"),
        ("\\sqrt2", "\\sqrt2 + 10^{-40}"),
        ("3", "3 + 10^{-40}"),
        ("B", "B or C"),
        ("A", "A number that is not listed"),
        ("(E)", "(E) factorial"),
        ("(15,-29)", "[15,-29)"),
        ("(1,2,3)", "[1,2,3)"),
        ("3", "999 \\approx 3"),
        ("3", "3 \\approx 999"),
        ("3", "999 = 3"),
        ("3", "3 = 999"),
        ("x+1", "> x+1"),
        ("x+1", "x+1 ?"),
        ("3", "3 million"),
        ("3", "3 \\text{ thousand}"),
        ("3", "3 factorial"),
        ("3", "3 squared"),
        ("3", "3 wrong"),
        ("3", "3 units (999)"),
        ("3", "3 for some but 999 for others"),
        ("3", "3 where it is 999"),
        ("11", "11_{7}"),
        ("5 cm", "5 apples"),
        ("no", "\\text{no}\\#5"),
        ("\\text{even}", "\\text{even}+1"),
        ("x \\equiv 3 \\pmod 7", "x \\equiv -3 \\pmod 7"),
    ],
)
def test_an_answer_that_differs_in_a_sign_a_word_or_a_bracket_is_not_right(reference, answer):
    assert not compare(reference, answer).right


@pytest.mark.parametrize(
    ("question", "reference", "answer"),
    [
        ("How many eggs are left?", "3", "3 bananas"),
        ("What is n + k?", "n", "k"),
        ("What is 1+1 in base 7?", "11", "11_5"),
    ],
)
def test_a_unit_a_name_or_a_base_must_fit_the_question(question, reference, answer):
    assert not compare(reference, answer, question=question).right


@pytest.mark.parametrize(
    ("question", "reference", "answer"),
    [
        ("How many eggs are left?", "3", "3 eggs"),
        ("How many eggs are left?", "3", "3 units"),
        ("What is 5 + 6 in base 7?", "14", "14_7"),
        (None, "2n+1", "2k+1"),
        (None, "5000000", "5 million"),
        (None, "\\frac{1}{3}", "\\frac{1}{3} \\approx 0.33"),
        (None, "4", "x = 72/18 = 4"),
        (None, "2k\\pi", "2k\\pi where k is any integer"),
        (None, "C e^x", "C e^x, where $C$ is an arbitrary constant"),
    ],
)
def test_what_only_names_the_answer_does_no_harm(question, reference, answer):
    assert compare(reference, answer, question=question).right


@pytest.mark.parametrize(
    "response",
    [
        "\\boxed{999} or \\boxed{7}",
        "\\boxed{7} or \\boxed{999}",
        "First \\boxed{999}.\n\nThen, long after it, \\boxed{7}",
        "the answer is not \\boxed{7}",
        "The answer isn't $\\boxed{7}$.",
        "\\boxed{7} is wrong",
        "$\\boxed{7}$ is not the answer",
        "\\boxed{7} or 8",
        "\\boxed{7, 8}",
        "\\boxed{The answer might be 7 eggs}",
        "<think>\\boxed{7}</think> 7",
        "".join(f"\\boxed{{{number}}}" for number in range(8)),
    ],
)
def test_a_reward_wants_one_answer_without_doubt(response):
    assert not grade("7", response, boxed_only=True).right


@pytest.mark.parametrize(
    "response", ["\\boxed{7}", "So \\boxed{7}. Again: \\boxed{7.0}", "It is not 8 but \\boxed{7}."]
)
def test_a_reward_is_given_for_the_same_answer_in_all_boxes(response):
    assert grade("7", response, boxed_only=True).right


def test_a_formula_of_the_question_is_no_reward_unless_it_is_the_form_of_the_reference():
    question = "Factor $x^2 - 1$ completely, or write $(x+1)(x-1)$."
    copied = grade("(x-1)(x+1)", "\\boxed{x^2-1}", question=question, boxed_only=True)
    assert copied.verdict == "undecided"
    assert grade("(x+1)(x-1)", "\\boxed{(x+1)(x-1)}", question=question, boxed_only=True).right
    copied = grade("20", "\\boxed{(2-2i)(5+5i)}", question="Evaluate $(2-2i)(5+5i)$.", boxed_only=True)
    assert copied.verdict == "undecided"
    assert compare("(x-1)(x+1)", "x^2-1", question=question).right  # the metric stays


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
    "growing numerals": "3万亿" * 900,
    "growing numerals in words": "三万亿" * 900,
}


@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW.keys())
def test_no_verdict_takes_long_or_raises(text):
    for reference, answer in (("5", text), (text, "5"), ("x+1", text), (text, text + " + 1")):
        started = time.process_time()
        assert compare(reference, answer).verdict in ("right", "wrong", "undecided")
        assert time.process_time() - started < 1
    for boxed_only in (False, True):
        started = time.process_time()
        assert grade("5", text, boxed_only=boxed_only).verdict in ("right", "wrong", "undecided")
        assert grade("5", f"\\boxed{{{text}}}", boxed_only=boxed_only)
        assert time.process_time() - started < 2
    numeric_value(text[:3000])


def test_the_command_grades_hostile_pairs_without_a_traceback(tmp_path):
    pairs, verdicts = tmp_path / "pairs.jsonl", tmp_path / "verdicts.jsonl"
    rows = [{"reference": "5", "response": text} for text in SLOW.values()]
    rows += [{"reference": text, "prediction": "5"} for text in SLOW.values()]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command.main(["--input", str(pairs), "--output", str(verdicts)])
    assert len(verdicts.read_text().splitlines()) == len(rows)


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("4:30 \\text{ p.m.}", "4:30 PM"),
        ("4:30", "4:30 PM"),
        ("28\\%", "28 pct"),
        ("5", "\\mathbf{5}"),
        ("5", "\\boldsymbol{5}"),
        ("\\text{all real numbers}", "\\mathbb{R}"),
        ("(-\\infty,\\infty)", "all real numbers"),
        ("2 \\text{ or } 3 \\text{ modulo } 4", "n = 4k+2 or 4k+3"),
        ("5 \\text{ cm}", "{5}\\text{cm}"),
        ("\\frac{5}{2}", "\\frac{5}{2}cm"),
        ("5000", "5千"),
        ("5", "5\\quad\\blacksquare"),
        ("5", "5 \\qed"),
        ("5", "5 ∎"),
        ("105", "一百零五"),
        ("150", "一百五"),
        ("15000", "一万五"),
        ("\\text{All real numbers}", "x\\in\\mathbb{R}"),
        ("3500", "3千5百"),
        ("3500", "3千 5百"),
        ("3500", "3千5"),
        ("3500", "3千500"),
        ("3500", "三千5百"),
        ("3005", "3千零5"),
        ("35000", "3万5千"),
        ("35000", "3万5000"),
        ("203000", "20万3千"),
        ("30000000", "3千万"),
        ("3 \\times 10^{12}", "3万亿"),
        ("120003000", "1亿2000万3千"),
        ("3500 \\text{ 元}", "3千5百元"),
        ("3500 \\text{ 米}", "3千5百米"),
        ("5 \\text{ km}", "5千米"),
        ("12000000", "1,200万"),
        ("x", "\\mathbf{x}"),
        ("\\mathbf{x}", "x"),
        ("x+1", "\\boldsymbol{x}+\\mathbf 1"),
        ("2x", "2\\bm{x}"),
        ("2\\pi", "2\\boldsymbol{\\pi}"),
        ("(1,2)", "\\mathbf{(1,2)}"),
        ("\\frac{1}{2}", "\\mathbf{\\frac{1}{2}}"),
        ("5", "{\\bf 5}"),
        ("5", "\\mathtt{5}"),
        ("\\text{yes}", "\\mathbf{yes}"),
        ("A", "\\mathbf{(A)}"),
    ],
)
def test_formats_of_right_answers(reference, answer):
    assert compare(reference, answer).right


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("3500", "5百3千"),
        ("8000", "3千5000"),
        ("35000 \\text{ 米}", "3万5千米"),
        ("3000", "千分之3"),
        ("3500", "3.5千5百"),
        ("1050000", "1百5万"),
        ("10", "2\\mathbf{5}"),
        ("0", "\\mathbf{x}-x"),
        ("-1", "\\mathbf{i}\\cdot\\mathbf{i}"),
        ("x^n+1", "x^\\mathbf{n+1}"),
        ("R", "\\mathbb{R}"),
        ("x", "\\vec{x}"),
    ],
)
def test_numerals_and_fonts_that_cannot_be_read_safely_are_not_right(reference, answer):
    assert not compare(reference, answer).right
