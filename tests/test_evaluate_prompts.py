"""What a model is asked: few-shot, chat and official prompts, and programs in answers."""

import json
from hashlib import sha256

import pytest
import yaml
from conftest import WEAK
from sealedpy.pool import Outcome, Sandbox
from tiny_model import save_tiny_model
from transformers import AutoTokenizer

from pipeline.config.evaluate import BenchmarkNode
from pipeline.config.root import benchmark_file
from pipeline.core.manifest import ROOT
from pipeline.core.stage import InputError
from pipeline.evaluate.benchmarks import Item, load, without_choices
from pipeline.evaluate.profiles import last_output
from pipeline.evaluate.programs import pal_program, printed_answer, show_result, tool_program
from pipeline.evaluate.prompts import Layout, chat_prompt, choose_exemplars, few_shot_text, read_layout
from pipeline.training.chat import encode_chat

BENCH = ROOT.parent / "shared/data/bench"  # real data; tests that use it skip without
OF_HUB = {"gsm8k": "gsm8k_test.jsonl.gz", "math500": "math500.jsonl.gz"}  # here as files
NOT_HERE = {"mmlu", "bbh", "humaneval", "mbpp"}
WITHOUT_CHOICES = {"sat": 4}  # rows whose choices a conversion lost
ASKED_BY_THE_PAPER = [
    (config, name)
    for config in ("deepseekmath-7b", "deepseekmath-1.3b")
    for name in yaml.safe_load((ROOT / f"configs/{config}.yaml").read_text())["benchmarks"]
    if name not in NOT_HERE
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return AutoTokenizer.from_pretrained(save_tiny_model(tmp_path_factory.mktemp("tiny"), seed=0))


@pytest.mark.slow
@pytest.mark.skipif(not BENCH.is_dir(), reason="needs the shared benchmarks")
@pytest.mark.parametrize(("config", "name"), ASKED_BY_THE_PAPER)
def test_every_question_of_the_papers_benchmarks_has_its_prompts(config, name, tokenizer):
    own = yaml.safe_load((ROOT / f"configs/{config}.yaml").read_text())["benchmarks"][name]
    node = BenchmarkNode(**benchmark_file(name) | own)
    source = str(BENCH / OF_HUB.get(name, node.source.rpartition("/")[2]))
    items = load(name, node, [source])
    assert len(without_choices(items)) == WITHOUT_CHOICES.get(name, 0)
    pool = load("train", BenchmarkNode(source=""), [str(BENCH / "math_train_solutions.jsonl.gz")])
    layouts = [node.prompt, *([node.pal_prompt] if "pal_prompt" in own else [])]
    for layout in (read_layout(ROOT / layout) for layout in layouts):
        shots = choose_exemplars(layout, pool, node.shots, name)
        texts = [few_shot_text(layout, shots, item) for item in items]
        assert all(
            choice.strip() in text
            for item, text in zip(items, texts, strict=True)
            for choice in (item.choices or {}).values()
        )
    assert all(chat_prompt(tokenizer, item, "Box it.", "tiny") for item in items)


def test_a_letter_as_answer_without_choices_is_counted_in_a_benchmark_of_choice_alone():
    asked = [Item("1", "Which?", "A", choices=FOUR), Item("2", "Which?", "B"), Item("3", "How many?", "12")]
    assert [item.id for item in without_choices(asked)] == ["2"]
    assert without_choices(asked[1:]) == []


@pytest.mark.parametrize(("choice", "text"), [(float("nan"), "nan"), (None, "None"), (2, "2"), ([1], None)])
def test_a_choice_is_a_text_a_number_or_nothing(choice, text, tmp_path):
    row = {"id": "1", "question": "Which?", "answer": "B", "choices": {"A": choice, "B": "two"}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    node = BenchmarkNode(source=str(tmp_path / "rows.jsonl"))
    if text is None:
        with pytest.raises(InputError, match="rows.jsonl: line 1: a choice is neither a text nor a number"):
            load("x", node, [node.source])
    else:
        (item,) = load("x", node, [node.source])
        assert item.choices == {"A": text, "B": "two"}


def test_few_shot_prompt_states_each_exemplars_answer_and_ends_at_the_question():
    layout = Layout(
        question="Q: {question}\nA:", solution=" {solution}", answer=" The answer is {answer}.", gap="\n\n"
    )
    pool = [Item(str(n), f"q{n}", str(n), solution=f"s{n}") for n in range(4)]
    exemplars = choose_exemplars(layout, pool, 2, "bench")
    text = few_shot_text(layout, exemplars, Item("x", "last", "1", choices={"A": "1", "B": "2"}))
    assert (
        text == "Q: q0\nA: s0 The answer is 0.\n\nQ: q2\nA: s2 The answer is 2.\n\nQ: last\n(A) 1 (B) 2\nA:"
    )
    with pytest.raises(InputError, match="5 shots wanted, 4 exemplars"):
        choose_exemplars(layout, pool, 5, "bench")


def test_special_tokens_in_a_question_are_text_to_chat_prompts_as_to_fine_tuning(tmp_path):
    save_tiny_model(tmp_path, seed=0)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    question = f"What does {tokenizer.eos_token} in {tokenizer.bos_token} mean?"
    expected, _ = encode_chat(tokenizer, [{"role": "user", "content": f"{question}\nBox it."}])
    tokens = chat_prompt(tokenizer, Item("a", question, "2"), "Box it.", "tiny")
    assert tokens == expected and tokens.count(tokenizer.eos_token_id) == 0
    assert tokens.count(tokenizer.bos_token_id) == 1
    plain = chat_prompt(tokenizer, Item("a", "What is 1+1?", "2"), "Box it.", "tiny")
    assert plain == encode_chat(tokenizer, [{"role": "user", "content": "What is 1+1?\nBox it."}])[0]


# SHA-256 of the prompts that the code of deepseek-ai/DeepSeek-Math makes of these questions.
OFFICIAL = {
    "cmath": "b77e2a0562e1ff933adb8590798e303e53c34d41f411de0201046cf6cc4e19c0",
    "gaokao_mathcloze": "3bc5d515f5bc8649fe8363b0457eff0c64c82bcecffd97c4bd1175dc2a6e1bd7",
    "gaokao_mathqa": "6d6c6fdad47859a4a6ea30958ed94a082ec0933e52d8961731212651cceb2859",
    "gsm8k": "9dbcc3e43458a217b730acb5cfb9f342b99e90d277d2fb94a25937beb6964aae",
    "math": "b6c88ba5b8c393f5b13ab982cb269210ae37958c7fa2b51df706171b199c04e0",
    "mmlu_stem": "e9e22e7baffa6c4df5884a3e8e42f1e887ea0718a0b5e6ea5bdd74a6339b8a66",
    "ocw": "d29b8830bdc4fb01af5a983b8d9540354de52d8ca9d7329b895c3ba757feba81",
    "pal-gsm8k": "b6cb1e72e4eab5239d88761aa300e7e314cdb0ab338011efb939a8e62d1d11f4",
    "pal-math": "24659cbb8496210553f1340d661933b070b525c0f32b5301fc81663da51410f9",
    "sat": "433a728f575fd72019827889e52d209cb971d66442f8d93d7c90f499f2e4ee1d",
}


FOUR = {"A": "$1$", "B": " two", "C": "3", "D": "4 "}


ASKED = {
    "gsm8k": Item("1", "Two and two?", "4"),
    "math": Item("1", r"Find $\frac{1}{2}$ of \{4\}.", "2"),
    "ocw": Item("1", " A star $x$? ", "2"),
    "cmath": Item("1", " 三加二是多少？", "5"),
    "gaokao_mathcloze": Item("1", r" 已知 $x=(\quad)$ ", "5"),
    "pal-gsm8k": Item("1", "Two and two?", "4"),
    "pal-math": Item("1", r"Find $\frac{1}{2}$ of \{4\}.", "2"),
    "sat": Item("1", " Which? ", "A", choices=FOUR),
    "mmlu_stem": Item("1", " Which? ", "A", choices=FOUR),
    "gaokao_mathqa": Item("1", " Which?\\\\", "A", choices=FOUR | {"B": "two"}),
}


@pytest.mark.parametrize("name", sorted(OFFICIAL))
def test_official_prompts_are_the_papers_byte_for_byte(name):
    layout = read_layout(ROOT / f"configs/prompts/official/{name}.yaml")
    assert choose_exemplars(layout, [], 8, "x") == []
    text = few_shot_text(layout, [], ASKED[name])
    assert sha256(text.encode()).hexdigest() == OFFICIAL[name]


def test_a_program_in_two_plain_fences_runs_with_its_imports():
    program, imports = "answer = sqrt(16)", "from math import sqrt"
    answer = f"```\n{program}\n```\nThe imports required for this program are\n```\n{imports}\n```"
    scope = {}
    exec(pal_program(f"\n{answer}\nI hope my solution is correct.").replace("print(answer)", ""), scope)
    assert scope["answer"] == 4


def test_chat_prompt_is_the_papers_format(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(save_tiny_model(tmp_path, seed=0))
    tokens = chat_prompt(tokenizer, Item("a", "What is 1+1?", "2"), "Box it.", "tiny")
    assert tokenizer.decode(tokens).replace(" ", "") == "<s>User:Whatis1+1?\nBoxit.\n\nAssistant:"
    tokenizer.chat_template = None
    with pytest.raises(InputError, match="tiny: its tokenizer has no chat template"):
        chat_prompt(tokenizer, Item("a", "?", "2"), "", "tiny")


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("def solution():\n    return 3\n", "def solution():\n    return 3\n\nprint(solution())"),
        ("Sure.\n```python\nans = 1 + 1\n```\nDone.", "ans = 1 + 1\nprint(ans)"),
        ("```python\nprint(4)\n```", "print(4)"),
        ("for n in range(3):\n    ans = n", "for n in range(3):\n    ans = n\nprint(ans)"),
        ("x = 1\n```\n\nQ: more", "x = 1\n"),
        ("```", None),
    ],
)
def test_a_pal_program_prints_its_answer(text, program):
    assert pal_program(text) == program


def test_a_tool_program_repeats_earlier_blocks_without_their_prints():
    first = "So\n```python\nx = 1\nprint(x)\n```\n"
    assert tool_program(first) == "x = 1\nprint(x)"
    second = f"{first}```output\n1\n```\nand\n```python\nprint(x + 1)\n```"
    assert tool_program(second) == "x = 1\nprint(x + 1)"
    assert tool_program(f"{second}\n```output\n2\n```\n") is None
    assert tool_program("no program") is None
    assert last_output(f"{second}\n```output\n2\n```\n") == "2"


def test_long_results_lose_their_middle_and_errors_show_their_last_line():
    assert show_result(Outcome("ok", "a" * 60 + "b" * 60, ""), 100) == "a" * 50 + "..." + "b" * 50
    assert (
        show_result(Outcome("error", "", "Traceback\nNameError: x\n"), 100) == "Runtime errors: NameError: x"
    )
    assert show_result(Outcome("timeout", "", ""), 100) == "Runtime errors: timeout"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pal-gsm8k", "pal-math"])
def test_every_exemplar_program_runs_and_states_an_answer(name):
    layout = read_layout(ROOT / f"configs/prompts/{name}.yaml")
    text = few_shot_text(
        layout, choose_exemplars(layout, [], len(layout.exemplars), name), Item("x", "?", "1")
    )
    assert text.count("\n```\n") == len(layout.exemplars) and text.endswith("```python\n")
    with Sandbox(1, weak=WEAK) as sandbox:
        outcomes = sandbox.run([pal_program(row.solution) for row in layout.exemplars], 20.0)
    assert all(printed_answer(outcome) for outcome in outcomes)
