"""Rules of grading, and the score program."""

import gzip
import json
from pathlib import Path
from typing import get_args

import pytest
from conftest import WEAK
from given.answers import shared
from given.lines import write_lines

from pipeline.config.evaluate import Rules
from pipeline.evaluate import grade, score
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.profiles import Profile, grade_answer, grade_response


def outputs(name: str, model: str) -> list[dict]:
    return [row for row in shared(f"model_outputs/{name}") if row["model"] == model]


def accuracy(rows: list[dict]) -> float:
    verdicts = [
        grade_response(Profile("strict"), Item(row["id"], row["question"], row["gold"]), row["response"])
        for row in rows
    ]
    return 100 * sum(verdict.right for verdict in verdicts) / len(rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("rho-math-1b.math500.cot", "rho-math-1b-v0.1"),
        ("rho-math-1b-interpreter.math500.tir", "rho-math-1b-interpreter-v0.1"),
        ("qwen-maj8.math100.cot", "qwen2.5-math-instruct"),
    ],
)
def test_strict_agrees_with_the_verdicts_by_hand(name, model):
    rows = [row for row in outputs(name, model) if row["adjudicated"] is not None]
    by_hand = 100 * sum(row["adjudicated"] for row in rows) / len(rows)
    assert accuracy(rows) == pytest.approx(by_hand, abs=0.6)


@pytest.mark.parametrize(
    ("rules", "reference", "answer"),
    [("official", "5", "500"), ("official", "[1,2)", "(1,2)"), ("official", "0.5", "0.5009")],
)
def test_the_papers_program_accepts_what_strict_refuses(rules, reference, answer):
    item = Item("q", "How many?", reference)
    assert grade_answer(Profile(rules), item, answer).right
    assert not grade_answer(Profile("strict"), item, answer).right


@pytest.mark.parametrize("rules", get_args(Rules))
def test_all_rules_accept_an_answer_as_each_writes_it(rules):
    assert grade_response(Profile(rules), Item("q", "?", "12"), "The answer is 12.").right


def run_score(folder: Path, samples: dict[str, list[str]], *arguments: object) -> dict:
    """Score samples of two questions, 1+1 and 2+3."""
    asked = [("a", "1+1?", "2", 1), ("b", "2+3?", "5", 2)]
    rows = [dict(zip(("id", "question", "answer", "level"), facts, strict=True)) for facts in asked]
    given = [{"id": key, "samples": texts} for key, texts in samples.items()]
    words = ["--benchmark", "toy", "--references", write_lines(folder / "references.jsonl", rows)]
    words += ["--outputs", write_lines(folder / "outputs.jsonl", given)]
    score.main([*map(str, [*words, "--output", folder / "scores.json", *arguments])])
    return json.loads((folder / "scores.json").read_text())


def test_a_known_benchmark_needs_no_references(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/bench").mkdir(parents=True)
    with gzip.open(tmp_path / "data/bench/cmath_test.jsonl.gz", "wt") as file:
        file.write(json.dumps({"id": "a", "question": "一加一?", "answer": "2"}) + "\n")
    rows = [{"id": "a", "samples": ["答案是二"]}]
    given = ["--outputs", str(write_lines(tmp_path / "outputs.jsonl", rows))]
    given += ["--output", str(tmp_path / "scores.json")]
    score.main(["--benchmark", "cmath", *given])
    assert json.loads((tmp_path / "scores.json").read_text())["accuracy"] == 1.0
    with pytest.raises(SystemExit):
        score.main(["--benchmark", "gsm9k", *given])
    assert "unknown benchmark 'gsm9k'; known: aime, " in capsys.readouterr().err


def test_rows_on_which_a_profile_and_strict_differ_are_listed_with_reasons(tmp_path):
    scores = run_score(tmp_path, {"a": ["\\boxed{200}"], "b": ["\\boxed{5}"]}, "--profile", "official")
    assert (scores["accuracy"], scores["strict"]["accuracy"]) == (1.0, 0.5)
    (row,) = scores["differences"]
    reasons = row["profile"]["reason"], row["strict"]["reason"]
    assert row["id"] == "a" and reasons == ("the paper's rules", "integers")
    assert scores["by"]["level"]["1"]["accuracy"] == 1.0


@pytest.mark.parametrize("said", [{"finished": [True, False]}, {"finish_reason": ["stop", "length"]}])
def test_a_right_answer_that_was_cut_off_is_right_but_not_finished(tmp_path, capsys, said):
    assert "right_and_finished" not in run_score(tmp_path, {"a": ["\\boxed{2}"]})
    row = {"id": "a", "samples": ["\\boxed{2}", "So \\boxed{2}"]}
    path = write_lines(tmp_path / "said.jsonl", [row | said])
    scores = run_score(tmp_path, {"a": ["x"]}, "--outputs", path)
    assert (scores["accuracy"], scores["right_and_finished"]) == (1.0, 0.5)
    (key,) = said
    path = write_lines(tmp_path / "said.jsonl", [row | {key: said[key][:1]}])
    with pytest.raises(SystemExit):
        run_score(tmp_path, {"a": ["x"]}, "--outputs", path)
    assert "line 1: 1 samples are said to be finished or not, of 2" in capsys.readouterr().err


def test_the_last_output_answers_where_a_tool_run_does_not(tmp_path):
    run = "```python\nprint(2)\n```\n```output\n2\n```\n"
    scores = run_score(tmp_path, {"a": [run], "b": [run + "So \\boxed{5}"]}, "--mode", "tool")
    assert (scores["accuracy"], scores["program_accuracy"]) == (1.0, 0.5)


@pytest.mark.slow
def test_programs_are_run_and_two_models_are_paired(tmp_path):
    other = write_lines(
        tmp_path / "other.jsonl", [{"id": "a", "samples": ["print(3)"]}, {"id": "b", "samples": ["print(5)"]}]
    )
    programs = {"a": ["def solution():\n    return 1 + 1"], "b": ["ans = 5.0"]}
    scores = run_score(tmp_path, programs, "--mode", "pal", "--against", other, *["--weak"] * WEAK)
    assert scores["accuracy"] == 1.0
    assert (scores["paired"]["difference"], scores["paired"]["flipped"]) == (0.5, ["a"])


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([{"id": 1, "prediction": "1"}], "line 1: not a Pair, reference: Field required"),
        ([{"id": 1, "reference": "1"}], "line 1: give `prediction` or `response`"),
        ([{"id": 1, "reference": "1", "prediction": "1"}] * 2, "line 2: id 1 occurs twice"),
        ([], "no pairs"),
    ],
)
def test_bad_pairs_are_named_with_file_and_line(tmp_path, capsys, pairs, message):
    path = write_lines(tmp_path / "pairs.jsonl", pairs)
    with pytest.raises(SystemExit):
        grade.main(["--input", str(path), "--output", str(tmp_path / "verdicts.jsonl")])
    assert message in capsys.readouterr().err
