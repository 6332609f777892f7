"""The profile `official`: the rules of the paper's evaluation program, one set for each benchmark.

Where DEEPSEEK_MATH names a checkout of deepseek-ai/DeepSeek-Math, the authors' program runs on the same rows.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from given.answers import shared
from official_program import Program

from pipeline.evaluate import official
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.official_equality import is_formula
from pipeline.evaluate.sampling import Answer

CHECKOUT = os.environ.get("DEEPSEEK_MATH")
ROWS = int(os.environ.get("DEEPSEEK_MATH_ROWS", "60"))  # of each kind, for each benchmark
SINGLE = "eval_last_single_answer"
# benchmark, few-shot: names of the program's extraction and comparison, the form of an answer in its prompts
THEIRS = {
    ("gsm8k", True): ("extract_gsm_few_shot_cot_answer", SINGLE, "So 2 + 3. The answer is {}."),
    ("gsm8k", False): ("extract_last_single_answer", SINGLE, "So it is $\\boxed{{{}}}$."),
    ("mgsm_zh", False): ("extract_last_single_answer", SINGLE, "所以是$\\boxed{{{}}}$。"),
    ("math", True): (
        *("extract_math_few_shot_cot_answer", "eval_math"),
        "So.\nFinal Answer: The final answer is ${}$. I hope it is correct.",
    ),
    ("math", False): ("extract_math_answer", "eval_math", "So it is $\\boxed{{{}}}$."),
    ("ocw", True): (
        *("extract_ocwcourses_few_shot_answer", "eval_ocwcourses"),
        "So.\nFinal Answer: The final answer is {}. I hope it is correct.",
    ),
    ("sat", True): (
        *("extract_sat_few_shot_answer", "eval_math_sat"),
        "Final Answer: The final answer is ({}). I hope it is correct.",
    ),
    ("mmlu_stem", True): (
        *("extract_mmlu_stem", "eval_mmlu_stem"),
        "Final Answer: The final answer is ({}). I hope it is correct.",
    ),
    ("cmath", True): ("extract_cmath_few_shot_test", SINGLE, "9-3=6。所以答案是：{}。"),
    ("cmath", False): ("extract_last_single_answer", SINGLE, "所以是$\\boxed{{{}}}$。"),
    ("gaokao_mathcloze", True): (
        *("extract_agieval_gaokao_mathcloze_few_shot_cot_test", "eval_agieval_gaokao_math_cloze"),
        "因此\n答案是 ${}$",
    ),
    ("gaokao_mathqa", True): (
        *("extract_agieval_gaokao_mathqa_few_shot_cot_test", "eval_agieval_gaokao_mathqa"),
        "所以\n答案是 {}",
    ),
}
NEXT = (
    "\n\nProblem:\nThe final answer is (A).",
    "\n\nQ: 7 and 8?",
    "\n问题 9. 答案是 B",
    "\n问题：答案是：5",
)
COLUMN = "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}"
CASES = [  # benchmark, few-shot, reference, text, whether it is right
    ("gsm8k", True, "70000", "It is $70,000.", False),  # commas split a number
    ("gsm8k", True, "18", "So 9 * 2 = 18 dollars.\nQ: And 7?", True),
    ("gsm8k", False, "5", "\\boxed{500}", True),  # 100 times the reference
    ("gsm8k", False, "1,234", "The answer is 1234.", True),
    ("gsm8k", False, "3", "```output\n3\n```", True),
    ("math", False, "\\frac{1}{2}", "\\boxed{\\frac12}", True),
    ("math", False, "[1,2)", "\\boxed{(1,2)}", True),  # brackets are not told apart
    ("math", False, "x=3", "\\boxed{3}", True),
    ("math", False, "x^2-1", "\\boxed{(x-1)(x+1)}", True),
    ("math", False, "2x = 4", "\\boxed{4 = 2x}", True),
    ("math", False, COLUMN, "\\boxed{\\begin{bmatrix}1\\\\2.0001\\end{bmatrix}}", True),
    ("math", False, "(-\\infty,1)\\cup(2,3)", "\\boxed{(2,3)\\cup(-\\infty,1)}", True),
    ("math", False, "7", "It may be \\boxed{6}, or \\boxed{7}", True),  # as many of the last as references
    ("math", True, "4", "The final answer is $4$. I hope\nProblem: The final answer is $5$. I hope", True),
    ("ocw", True, "3.0e8", "final answer is 3*10**8 m/s. I hope it is correct.", True),
    ("ocw", True, "0", "final answer is 0. I hope it is correct.", False),  # zero is never right
    ("ocw", True, "-2", "final answer is -2. I hope it is correct.", False),
    ("ocw", True, "y = 2 x", "final answer is $y = 2x$. I hope it is correct.", True),
    ("ocw", True, "x^{2} + 1", "final answer is $x^{2}+1$. I hope it is correct.", True),
    ("sat", True, "B", "The final answer is (B). I hope it is correct.", True),
    ("sat", True, "B", "So B.", False),
    ("mmlu_stem", True, "C", "the final answer is c", True),
    ("cmath", True, "9", "99-90=9。所以答案是：9页。", True),
    ("cmath", True, "9", "一共\\boxed{9}", True),
    ("gaokao_mathcloze", True, "1;\\frac{2}{3}", "答案是 $1; 2/3$", True),
    ("gaokao_mathcloze", True, "1;\\frac{2}{3}", "答案是 $\\frac{2}{3}; 1$", False),  # in their order
    ("gaokao_mathcloze", True, "(1,2)", "答案是 $(1,2)$", True),
    ("gaokao_mathqa", True, "D", "答案是 A B 或 D", True),  # the letter whose first place is last
    ("gaokao_mathqa", True, "D", "选 D", False),
]


@pytest.mark.parametrize(("benchmark", "few_shot", "reference", "text", "right"), CASES)
def test_each_benchmark_is_graded_by_the_rules_of_its_own(benchmark, few_shot, reference, text, right):
    assert official.grade(benchmark, few_shot, Item("q", "What?", reference), text).right is right


def test_a_program_s_output_is_compared_as_it_is():
    item = Item("q", "What?", "0.5")
    assert official.grade("math", True, item, "1/2", output=True).right
    assert not official.grade("gsm8k", True, item, "", output=True).right


def test_a_stage_that_asks_for_it_is_scored_by_the_program_too():
    answers = [Answer("The answer is 1,234.\n\nQ: 5", "stop", 9), Answer("So 7", "stop", 9, output="500")]
    items = [Item("a", "What?", "1234"), Item("b", "What?", "5")]

    def scores(benchmark: str, mode: str) -> dict:
        return official.scores(f"{benchmark}.{mode}", items, answers)

    assert scores("gsm8k", "few_shot_cot")["official"]["accuracy"] == 0.0  # reads 234
    assert scores("gsm8k", "chat_cot")["official"]["accuracy"] == 0.5
    assert scores("gsm8k", "few_shot_pal")["official"]["accuracy"] == 0.5  # 100 times the reference
    assert scores("svamp", "chat_cot") == {}


def test_references_are_all_boxes_of_a_worked_solution():
    item = Item("q", "Both?", "2", solution="First \\boxed{1}, then \\boxed{2}.")
    assert official.grade("math", False, item, "\\boxed{2} and \\boxed{1}").right
    assert not official.grade("math", False, item, "\\boxed{2}").right


def test_a_comparison_that_does_not_end_is_wrong_and_the_next_one_is_made(monkeypatch):
    monkeypatch.setattr(official, "SECONDS", 0.3)
    item = Item("q", "What?", "3")
    official._worker.stop()
    verdict = official.grade("math", False, item, "\\boxed{9^{9^{9^{9^{9}}}}}")
    assert (verdict.verdict, verdict.reason) == ("wrong", "the comparison was stopped at its limits")
    assert official.grade("math", False, item, "\\boxed{\\frac{6}{2}}").right
    official._worker.stop()


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


OUTPUTS = {
    "gsm8k": (
        "rho-math-7b.gsm8k.cot",
        "tora-code-34b.gsm8k.tir",
        "openai-finetuning.gsm8k.cot",
        "gpt-4o-mini.gsm8k.json",
    ),
    "math": ("rho-math-1b.math500.cot", "rho-math-1b-interpreter.math500.tir", "qwen-maj8.math100.cot"),
}


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
        gold = official.rules(benchmark, few_shot).gold(item)
        theirs = program.label(extraction, comparison, item.question, gold, text)
        ours = official.grade(benchmark, few_shot, item, text).right
        count += 1
        if ours is not theirs:
            different.append((theirs, gold, text[-200:]))
    program.close()
    print(f"{benchmark}, few-shot {few_shot}: {count} rows, {len(different)} differ, seed {seed}")
    assert not different, seed
