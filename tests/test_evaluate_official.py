"""The profile `official`: the rules of the paper's evaluation program, one set for each benchmark.

Where DEEPSEEK_MATH names a checkout of deepseek-ai/DeepSeek-Math, the authors' program runs on the same rows.
"""

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from given.answers import shared
from given.cases import cases
from official_program import Program

from pipeline.evaluate import paper_grader
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.paper_equality import is_formula
from pipeline.evaluate.sampling import Answer

TABLES = cases("official")
CHECKOUT = os.environ.get("DEEPSEEK_MATH")
ROWS = int(os.environ.get("DEEPSEEK_MATH_ROWS", "60"))  # of each kind, for each benchmark
THEIRS = {(benchmark, few_shot): names for benchmark, few_shot, *names in TABLES["theirs"]}
NEXT = TABLES["next"]
CASES = TABLES["graded"]


@pytest.mark.slow
@pytest.mark.parametrize(("benchmark", "few_shot", "reference", "text", "right"), CASES)
def test_each_benchmark_is_graded_by_the_rules_of_its_own(benchmark, few_shot, reference, text, right):
    assert paper_grader.grade(benchmark, few_shot, Item("q", "What?", reference), text).right is right


@pytest.mark.slow
def test_a_program_s_output_is_compared_as_it_is():
    item = Item("q", "What?", "0.5")
    assert paper_grader.grade("math", True, item, "1/2", output=True).right
    assert not paper_grader.grade("gsm8k", True, item, "", output=True).right


def test_a_stage_that_asks_for_it_is_scored_by_the_program_too():
    answers = [Answer("The answer is 1,234.\n\nQ: 5", "stop", 9), Answer("So 7", "stop", 9, output="500")]
    items = [Item("a", "What?", "1234"), Item("b", "What?", "5")]

    def scores(benchmark: str, mode: str) -> dict:
        return paper_grader.scores(f"{benchmark}.{mode}", items, answers)

    assert scores("gsm8k", "few_shot_cot")["official"]["accuracy"] == 0.0  # reads 234
    assert scores("gsm8k", "chat_cot")["official"]["accuracy"] == 0.5
    assert scores("gsm8k", "few_shot_pal")["official"]["accuracy"] == 0.5  # 100 times the reference
    assert scores("svamp", "chat_cot") == {}


def test_references_are_all_boxes_of_a_worked_solution():
    item = Item("q", "Both?", "2", solution="First \\boxed{1}, then \\boxed{2}.")
    assert paper_grader.grade("math", False, item, "\\boxed{2} and \\boxed{1}").right
    assert not paper_grader.grade("math", False, item, "\\boxed{2}").right


@pytest.mark.slow
def test_a_comparison_that_does_not_end_is_wrong_and_the_next_one_is_made(monkeypatch):
    monkeypatch.setattr(paper_grader, "SECONDS", 0.3)
    item = Item("q", "What?", "3")
    paper_grader._worker.stop()
    verdict = paper_grader.grade("math", False, item, "\\boxed{9^{9^{9^{9^{9}}}}}")
    assert (verdict.verdict, verdict.reason) == ("wrong", "the comparison was stopped at its limits")
    assert paper_grader.grade("math", False, item, "\\boxed{\\frac{6}{2}}").right
    paper_grader._worker.stop()


def test_an_interrupted_comparison_leaves_no_answer_to_the_next_one():
    class Interrupted(Exception):
        pass

    def interrupt(*_):
        raise Interrupted

    paper_grader._worker.stop()
    before = signal.signal(signal.SIGALRM, interrupt)
    item = Item("q", "What?", "3")
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)  # while SymPy is imported
        with pytest.raises(Interrupted):
            paper_grader.grade("math", False, item, "\\boxed{4+x}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert paper_grader.grade("math", False, item, "\\boxed{\\frac{6}{2}}").right


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "open", "(open)(x)", "x.__class__", "[y for y in x]", "f'{x}'", "exec(x)", "S('x')"],
)
def test_python_does_not_read_what_could_do_more_than_calculate(text):
    assert not is_formula(text)
    assert is_formula("x**2 + sin(3*y)/4!") and is_formula("(1, 2)")


# beside the authors' program


def mutated(text: str, draw: random.Random) -> str:
    """A text with characters removed, doubled, exchanged or added."""
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(text) + 1)
        new = draw.choice("0123456789.,-+/=%()[]{}\\ $xyab;") if draw.random() < 0.5 else ""
        text = text[:place] + new + text[place + draw.randint(0, 1) :]
    return text


def bench(benchmark: str) -> list[Item]:
    name = {"math": "math_test", "gsm8k": "gsm8k_test", "cmath": "cmath_test", "sat": "sat_math"}
    name |= {"mgsm_zh": "mgsm"}
    found = shared(f"bench/{name.get(benchmark, benchmark)}")
    return [
        Item(row["id"], row["question"], str(row["answer"]), solution=row.get("solution"))
        for row in found
        if row.get("lang", "zh") == "zh" or benchmark != "mgsm_zh"
    ]


OUTPUTS = TABLES["outputs"]


def cases(benchmark: str, form: str, draw: random.Random) -> Iterator[tuple[Item, str]]:
    """Real outputs, labelled answers, answers in the prompt's form, right, wrong and damaged."""
    for name in OUTPUTS.get(benchmark, ()):
        found = shared(f"model_outputs/{name}")
        for row in draw.sample(found, min(ROWS, len(found))):
            yield Item(row["id"], row["question"], str(row["gold"])), row["response"]
    if benchmark in ("math", "ocw", "gaokao_mathcloze"):
        for row in draw.sample(shared("grader/pairs"), min(ROWS, 2168)):
            yield Item("pair", row["question"] or "", row["gold"]), form.format(row["pred"])
    items = bench(benchmark)
    for item in draw.sample(items, min(ROWS, len(items))):
        yield item, form.format(item.answer)
        yield item, form.format(draw.choice(items).answer)
        yield item, mutated(form.format(item.answer), draw)
        yield item, form.format(mutated(item.answer, draw)) + draw.choice(NEXT)


@pytest.mark.skipif(not CHECKOUT, reason="DEEPSEEK_MATH names no checkout of deepseek-ai/DeepSeek-Math")
@pytest.mark.parametrize(("benchmark", "few_shot"), THEIRS)
def test_every_row_is_graded_as_the_authors_program_does(benchmark, few_shot):
    extraction, comparison, form = THEIRS[benchmark, few_shot]
    seed = random.SystemRandom().randrange(2**32)
    program = Program(Path(CHECKOUT))
    count, different = 0, []
    for item, text in cases(benchmark, form, random.Random(seed)):
        gold = paper_grader.rules(benchmark, few_shot).gold(item)
        theirs = program.label(extraction, comparison, item.question, gold, text)
        ours = paper_grader.grade(benchmark, few_shot, item, text).right
        count += 1
        if ours is not theirs:
            different.append((theirs, gold, text[-200:]))
    program.close()
    print(f"{benchmark}, few-shot {few_shot}: {count} rows, {len(different)} differ, seed {seed}")
    assert not different, seed
