"""Benchmarks, prompts, the grade and score programs, and the stage with vLLM on a tiny model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_model import save_tiny_model
from transformers import AutoTokenizer

from pipeline.common.stage import InputError
from pipeline.config.evaluate import BenchmarkNode
from pipeline.evaluate import grade, score
from pipeline.evaluate.benchmarks import Item, _renamed, load
from pipeline.evaluate.prompts import Layout, chat_prompt, choose_exemplars, few_shot_text


def write_lines(path: Path, rows: list) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def questions(count: int) -> list[dict]:
    return [
        {
            "id": f"q{n}",
            "question": f"What is {n}+2?",
            "answer": str(n + 2),
            "solution": f"{n}+2={n + 2}",
            "subject": "sum",
        }
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no questions"),
        (["{oops"], "line 1: not JSON"),
        ([{"question": "?", "answer": "1"}, {"question": "?"}], "line 2: `answer` is missing"),
        ([{"answer": "1"}], "line 1: `question` is missing"),
        ([{"id": "a", "question": "?", "answer": "1"}] * 2, "line 2: id 'a' occurs twice"),
        ([{"question": "?", "answer": "E", "choices": {"A": "1"}}], "line 1: `choices`"),
    ],
)
def test_a_bad_benchmark_is_named_with_file_and_line(tmp_path, rows, message):
    path = write_lines(tmp_path / "bench.jsonl", rows)
    with pytest.raises(InputError, match=message) as error:
        load("bench", BenchmarkNode(source=str(path)), [str(path)])
    assert str(path) in str(error.value)


def test_limit_language_and_answers_read_from_solutions(tmp_path):
    rows = [
        {"question": str(n), "solution": f"so #### {n}", "lang": "zh" if n % 2 else "en"} for n in range(8)
    ]
    path = write_lines(tmp_path / "bench.jsonl", rows)
    node = BenchmarkNode(source=str(path), language="zh", limit=2)
    items = load("bench", node, [str(path)])
    assert [(item.question, item.answer, item.lang) for item in items] == [("1", "1", "zh"), ("3", "3", "zh")]


def test_gsm8k_as_published_and_columns_of_other_names_are_understood(tmp_path):
    path = write_lines(
        tmp_path / "bench.jsonl", [{"question": "?", "answer": "48/2=<<48/2=24>>24.\n#### 1,024"}]
    )
    (item,) = load("gsm8k", BenchmarkNode(source=str(path)), [str(path)])
    assert (item.solution, item.answer) == ("48/2=24.", "1,024")
    renamed = _renamed({"problem": "1+1?", "answer": "2"}, {"question": "problem"})
    assert renamed == {"question": "1+1?", "answer": "2"}


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


def test_chat_prompt_is_the_papers_format(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(save_tiny_model(tmp_path, seed=0))
    tokens = chat_prompt(tokenizer, Item("a", "What is 1+1?", "2"), "Box it.", "tiny")
    assert tokenizer.decode(tokens).replace(" ", "") == "<s>User:Whatis1+1?\nBoxit.\n\nAssistant:"
    tokenizer.chat_template = None
    with pytest.raises(InputError, match="tiny: its tokenizer has no chat template"):
        chat_prompt(tokenizer, Item("a", "?", "2"), "", "tiny")


def test_the_grade_program_answers_every_pair_in_order(tmp_path):
    pairs = [
        {"id": "a", "reference": "1/2", "prediction": "0.5"},
        {"id": "b", "reference": "3", "response": "I think \\boxed{4}"},
    ]
    output = tmp_path / "verdicts.jsonl"
    grade.main(["--input", str(write_lines(tmp_path / "pairs.jsonl", pairs)), "--output", str(output)])
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(row["id"], row["verdict"], row["extracted"]) for row in rows] == [
        ("a", "right", "0.5"),
        ("b", "wrong", "4"),
    ]


def test_the_score_program_takes_ids_or_questions(tmp_path, capsys):
    references = write_lines(tmp_path / "bench.jsonl", questions(3))
    rows = [{"id": "q0", "samples": ["\\boxed{2}", "3"]}, {"question": "What is 1+2?", "samples": ["7", "8"]}]
    outputs = write_lines(tmp_path / "outputs.jsonl", rows)
    arguments = ["--benchmark", "toy", "--references", str(references), "--outputs", str(outputs)]
    score.main([*arguments, "--output", str(tmp_path / "scores.json")])
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert (scores["accuracy"], scores["n"], scores["missing"]) == (0.25, 2, 1)
    assert scores["pass@k"] == {"1": 0.25, "2": 0.5}
    write_lines(outputs, [{"id": "nobody", "samples": ["1"]}])
    with pytest.raises(SystemExit):
        score.main([*arguments, "--output", str(tmp_path / "scores.json")])
    assert "outputs.jsonl: line 1: no reference has this id" in capsys.readouterr().err


def run_stage_program(folder: Path, config: dict) -> subprocess.CompletedProcess:
    inputs = {
        "model": folder / "model",
        "benchmark.toy": folder / "bench.jsonl",
        "exemplars.toy": folder / "bench.jsonl",
    }
    return subprocess.run(
        [sys.executable, "-m", "pipeline.evaluate", "--instance", "tiny", "--config", json.dumps(config)]
        + ["--work", str(folder / "work"), "--output", str(folder / "out/data")]
        + ["--manifest", str(folder / "out/manifest.json")]
        + [word for name, path in inputs.items() for word in ("--input", f"{name}={path}")],
        capture_output=True,
        text=True,
    )


def test_a_model_is_evaluated_by_vllm_and_only_lost_batches_are_sampled_again(tmp_path):
    save_tiny_model(tmp_path / "model", seed=0)
    rows = [*questions(5), {"id": "long", "question": "x" * 600, "answer": "1"}]
    write_lines(tmp_path / "bench.jsonl", rows)
    toy = {"source": "bench.jsonl", "modes": ["chat_cot", "few_shot_cot"], "shots": 2}
    config = {
        "samples": 2,
        "k": [1, 2, 4],
        "max_tokens": 12,
        "batch": 3,
        "suffix": {},
        "benchmarks": {"toy": toy},
    }
    done = run_stage_program(tmp_path, config)
    assert done.returncode == 0, done.stderr
    scores = json.loads((tmp_path / "out/data/scores.json").read_text())["toy"]
    assert set(scores) == {"chat_cot", "few_shot_cot"}
    assert scores["chat_cot"]["n"] == 6 and scores["chat_cot"]["prompt_too_long"] == 1
    assert set(scores["chat_cot"]["pass@k"]) == {"1", "2"}
    counters = json.loads((tmp_path / "out/run.json").read_text())["counters"]
    assert counters["vllm.requests"] == 2 * 5 * 3 and counters["vllm.tokens"] > 0
    results = {path.name: path.read_bytes() for path in (tmp_path / "out/data").iterdir()}
    row = json.loads(results["toy.chat_cot.jsonl"].splitlines()[0])
    assert row["subject"] == "sum" and len(row["samples"]) == 2 and row["greedy"]["tokens"] > 0

    next((tmp_path / "work/samples").glob("toy.chat_cot.samples-000003-*")).unlink()
    done = run_stage_program(tmp_path, config)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out/run.json").read_text())["counters"]["vllm.requests"] == 2 * 2
    assert {path.name: path.read_bytes() for path in (tmp_path / "out/data").iterdir()} == results
