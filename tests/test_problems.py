"""Word problems for training: worked out right, without copies and test questions, in disjoint parts."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from given.cases import cases
from given.lines import read_lines, write_lines

from pipeline.config.problems import ProblemsSection
from pipeline.config.root import Config
from pipeline.core.errors import InputError
from pipeline.core.stage import run_stage
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.programs import pal_program
from pipeline.examples.problems import Unusable, build_index, run, solve, story
from workflow.graph import Graph

TABLES = cases("problems")
TEST = "A farmer had 12 sheep on the far meadow and sold 5 of them to his old friend Bob. How many are left?"


def problem(
    number: int, story: str = "Ann has {0} pens and gets {1} more. How many has she?"
) -> dict[str, Any]:
    words = ["box", "car", "hat", "cup", "jar", "map", "nut", "owl", "pie", "rug"][number % 10]
    text = story.format(number, number + 1).replace("pens", f"pens and a {words * (1 + number // 10)}")
    return {
        "id": f"p{number}",
        "question": text,
        "answer": str(2 * number + 1),
        "equation": f"{number} + {number + 1}",
    }


def split(
    folder: Path, rows: list[dict[str, Any]], test_question: str = TEST, **section: Any
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Counts, and the rows of each file, of the stage run on `rows` with one benchmark."""
    inputs = {
        "source": write_lines(folder / "rows.jsonl", rows),
        "benchmark.test": write_lines(folder / "test.jsonl", [{"question": test_question, "answer": "7"}]),
    }
    section |= {"benchmarks": {"test": {"source": "test.jsonl"}}}
    words = ["--instance", "problems", "--config", json.dumps(section), "--work", str(folder / "work")]
    words += [part for name, path in inputs.items() for part in ("--input", f"{name}={path}")]
    words += ["--output", str(folder / "data"), "--manifest", str(folder / "manifest.json")]
    run_stage("problems", ProblemsSection, run, words)
    files = {path.stem: read_lines(path) for path in (folder / "data").glob("*.jsonl")}
    return json.loads((folder / "manifest.json").read_text())["counts"], files


@pytest.mark.parametrize(
    ("equation", "answer", "lines"),
    [
        ("45 - 39", "6", ["45 - 39 = 6"]),
        ("25000 - (1500 * 8)", "13000", ["1500 * 8 = 12000", "25000 - 12000 = 13000"]),
        ("x=( 76.0 - 25.0 )", "51.0", ["76 - 25 = 51"]),
        ("2.5 * 2.1", "5.25", ["2.5 * 2.1 = 5.25"]),
        ("3 - 8", "-5", ["3 - 8 = -5"]),
        ("8.9 - 2.3", "6.6", ["8.9 - 2.3 = 6.6"]),  # not 6.6000000000000005
    ],
)
def test_a_solution_is_the_equations_operations_one_a_line(
    equation: str, answer: str, lines: list[str]
) -> None:
    solution, program, value = solve(equation, answer)
    assert solution.splitlines() == [*lines, f"The answer is $\\boxed{{{value}}}$."]
    assert Item("x", "?", answer).grade(solution, boxed_only=True).right
    assert program.startswith("```python\nprint(") and program.endswith(")\n```")
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(pal_program(program), {})
    assert Item("x", "?", answer).compare(printed.getvalue().strip()).right


@pytest.mark.parametrize(("equation", "answer", "reason"), TABLES["left_out"])
def test_what_cannot_be_shown_step_by_step_is_left_out_by_reason(
    equation: Any, answer: str, reason: str
) -> None:
    with pytest.raises(Unusable, match=reason):
        solve(equation, answer)


def test_parts_share_no_story_and_hold_every_problem_that_is_left_once(tmp_path: Path) -> None:
    rows = [problem(number) for number in range(40)]
    again = [row | {"id": f"{row['id']}-again", "question": row["question"].upper()} for row in rows[:7]]
    numbers = [problem(number) | {"id": f"other{number}"} for number in range(40)]
    for row in numbers:
        row["question"] = row["question"].replace("has", "has").replace(" gets ", " gets 1")
        row["equation"] = "1 + 1"
        row["answer"] = "2"
    bad = [
        problem(90) | {"equation": "1 + 1", "answer": "3"},
        problem(91) | {"equation": "1 / 7", "answer": "1"},
    ]
    leak = {"id": "leak", "question": TEST.replace("12", "31"), "answer": "26", "equation": "31 - 5"}
    counts, files = split(tmp_path, [*rows, *again, *numbers, *bad, leak], dev=10, rl=20)
    left_out = {name: counts[name] for name in ("copies", "other_answer", "long_numbers", "like_a_benchmark")}
    assert left_out == {"copies": 7, "other_answer": 1, "long_numbers": 1, "like_a_benchmark": 1}
    assert counts["like_test"] == 0
    parts = [files[name] for name in ("dev", "rl", "sft")]
    assert [len(part) for part in parts] == [counts[name] for name in ("dev", "rl", "sft")]
    assert sorted(row["id"] for part in parts for row in part) == sorted(
        row["id"] for row in [*rows, *numbers]
    )
    assert 10 <= len(parts[0]) <= 11 and 20 <= len(parts[1]) <= 21
    stories = [{story(row["question"]) for row in part} for part in parts]
    assert not stories[0] & stories[1] and not stories[0] & stories[2] and not stories[1] & stories[2]
    (removed,) = {(row["id"], row["benchmark"]) for row in files["removals"]}
    assert removed == ("leak", "test")
    row = files["sft"][0]
    assert [turn["content"] for turn in row["messages"]] == [row["question"], row["solution"]]
    for part in ("sft", "rl"):
        rows, programs = files[part], files[f"{part}-programs"]
        assert [row["id"] for row in programs] == [row["id"] for row in rows]
        assert {row["format"] for row in rows} == {"cot"} and {row["format"] for row in programs} == {"pot"}
        assert all("print(" in row["messages"][1]["content"] for row in programs)


def test_variants_of_a_benchmarks_question_leave_where_only_numbers_differ(tmp_path: Path) -> None:
    """A run of ten words that the question and its variant share has a number in the middle."""
    question = "There were 12 red birds and 4 blue birds on a tree. How many birds were there?"
    variants = [
        "At noon there were 3 red birds and 15 blue birds on a tree that fell. How many were on it?",
        "At noon there were 3 red birds and 15 grey birds on a tree that fell. How many were on it?",
    ]
    rows = [problem(number) for number in range(12)]
    rows += [
        problem(number) | {"id": f"v{number}", "question": text} for number, text in enumerate(variants, 50)
    ]
    counts, files = split(tmp_path, rows, dev=2, rl=2, test_question=question)
    assert counts["like_a_benchmark"] == 1
    (removed,) = files["removals"]
    assert (removed["id"], removed["words"]) == ("v50", 10)
    assert removed["gram"] == "there were 0 red birds and 0 blue birds on"
    kept = {row["id"] for part in ("sft", "rl", "dev") for row in files[part]}
    assert "v50" not in kept and "v51" in kept


def test_held_out_problems_share_no_run_with_training(tmp_path: Path) -> None:
    ends = ["today", "now", "then", "once", "here"]
    stories = [
        "Zoe the {0} baker of the old town sold {1} loaves of bread on Monday " + end + ". How many?"
        for end in ends
    ]
    rows = [problem(number) for number in range(20)] + [
        {"id": f"z{number}", "question": text.format(number, 3), "answer": "4", "equation": "1 + 3"}
        for number, text in enumerate(stories)
    ]
    counts, files = split(tmp_path, rows, test=12, dev=3, rl=3)
    assert counts["test"] == len(files["test"]) == 12
    alike = {name: {row["id"] for row in files[name]} & {f"z{n}" for n in range(5)} for name in files}
    assert alike["test"] and not alike["sft"] | alike["rl"] | alike["dev"]
    assert counts["like_test"] == 5 - len(alike["test"]) > 0


def test_the_order_depends_on_the_seed_alone(tmp_path: Path) -> None:
    rows, found = [problem(number) for number in range(30)], []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        (tmp_path / name).mkdir()
        found.append(split(tmp_path / name, rows, dev=5, rl=5, seed=seed)[1])
    assert found[0] == found[1] and found[0]["dev"] != found[2]["dev"]


def test_a_benchmark_that_stands_twice_keeps_out_what_it_does_alone(tmp_path: Path) -> None:
    rows = [problem(number) for number in range(12)] + [
        {"id": "leak", "question": TEST.replace("12", "31"), "answer": "26", "equation": "31 - 5"}
    ]
    alone = split(tmp_path, rows, dev=2, rl=2)[0]
    twice = {f"test{number}": {"source": "test.jsonl"} for number in range(3)}
    stage = SimpleNamespace(
        config=ProblemsSection(benchmarks=twice),
        inputs={f"benchmark.{name}": [str(tmp_path / "test.jsonl")] for name in twice},
    )
    index = build_index(stage)
    assert len(index.index.matches(rows[-1]["question"])) == alone["like_a_benchmark"] == 1


def test_too_few_problems_and_broken_rows_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rows, message in (
        ([problem(1), problem(2)], "problems: 2 problems are left, too few for test (0), dev (5) and rl (5)"),
        ([{"question": " ", "answer": 1}], "rows.jsonl: line 1: `question` is missing or empty"),
        ([{"question": "What?", "equation": "1 + 1"}], "rows.jsonl: line 1: `answer` is missing"),
    ):
        with pytest.raises((SystemExit, InputError)) as error:
            split(tmp_path, rows, dev=5, rl=5)
        assert message in str(error.value) + capsys.readouterr().err


def test_hub_data_sets_are_read_with_their_own_column_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {
            "id": row["id"],
            "question": row["question"],
            "result": row["answer"],
            "equation": f"x={row['equation']}",
        }
        for row in map(problem, range(12))
    ]
    for name, part in (("Calc-mawps", rows[:6]), ("Calc-asdiv_a", rows[6:])):
        (tmp_path / "MU-NLPC" / name).mkdir(parents=True)
        split_of = "train" if name == "Calc-mawps" else "test"
        pq.write_table(pa.Table.from_pylist(part), tmp_path / "MU-NLPC" / name / f"{split_of}.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    words = [
        "--instance",
        "problems",
        "--config",
        json.dumps({"fields": {"answer": "result"}, "dev": 2, "rl": 2}),
    ]
    for source in ("hub:MU-NLPC/Calc-mawps:train", "hub:MU-NLPC/Calc-asdiv_a:test"):
        words += ["--input", f"source={source}"]
    run_stage("problems", ProblemsSection, run, [*words, "--output", "data", "--manifest", "manifest.json"])
    counts = json.loads(Path("manifest.json").read_text())["counts"]
    assert (counts["read"], counts["dev"] + counts["rl"] + counts["sft"]) == (12, 12)


def test_benchmarks_are_kept_out_except_the_parts_themselves(tmp_path: Path) -> None:
    source = str(write_lines(tmp_path / "rows.jsonl", [problem(1)]))
    test = str(write_lines(tmp_path / "test.jsonl", [{"question": TEST, "answer": "7"}]))
    benchmarks = {"test": {"source": test}, "dev": {"source": "problems:dev.jsonl"}}
    values = {"problems": {"source": source}, "benchmarks": benchmarks}
    graph = Graph(Config(values))
    node = graph.nodes["problems"]
    assert [name for name, _ in node.inputs] == ["benchmark.test", "source"]
    assert list(node.section["benchmarks"]) == ["test"]
    limited = benchmarks | {"test": {"source": test, "limit": 1, "shots": 0}}
    assert Graph(Config(values | {"benchmarks": limited})).nodes["problems"].section == node.section
    named = values | {"problems": {"source": source, "kept_out": ["test"]}}
    assert Graph(Config(named)).nodes["problems"].section == node.section
