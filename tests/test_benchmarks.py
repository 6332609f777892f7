"""The shipped benchmarks: rows as their data sets have them, code with its tests, formal proofs."""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT
from given.cases import cases

from pipeline.config.evaluate import BenchmarkNode, EvaluateSection
from pipeline.config.root import benchmark_file
from pipeline.core import ending, watchdog
from pipeline.core.code import Code
from pipeline.core.data.rows import read_rows
from pipeline.core.errors import Interrupted
from pipeline.core.overlays import read_yaml
from pipeline.core.stage import InputError
from pipeline.evaluate import __main__ as evaluate
from pipeline.evaluate import benchmarks
from pipeline.evaluate.benchmarks import Item, load
from pipeline.evaluate.profiles import Profile, grade_response
from pipeline.evaluate.prompts import choose_exemplars, few_shot_text, read_layout
from pipeline.evaluate.proofs import NOT_CHECKED, check_proofs, proof_verdicts
from pipeline.evaluate.sampling import PASSED, Answer, Decoding, Request, Sampler
from pipeline.report.tables import accuracy, task_of

TABLES = cases("benchmarks")
BENCH = ROOT.parent / "shared/data/bench"  # real data; tests that use it skip without
ROWS = TABLES["rows"]  # a row in the data set's columns; question and answer
HUMANEVAL, MBPP = (ROWS[name][0] for name in ("humaneval", "mbpp"))


def item_of(name: str, monkeypatch: pytest.MonkeyPatch, row: dict[str, Any]) -> Item:
    node = BenchmarkNode(**benchmark_file(name))
    monkeypatch.setattr(benchmarks, "read_rows", lambda source: iter([(f"{source}, row 1", dict(row))]))
    sources = [node.source] if isinstance(node.source, str) else node.source
    with monkeypatch.context() as patch:
        if len(sources) > 1:  # the same row in each would be the same id
            patch.setattr(benchmarks, "read_rows", rows_of_first(sources[0], row))
        return load(name, node, sources)[0]


def rows_of_first(first: str, row: dict[str, Any]) -> Any:
    def rows(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
        if source == first:
            yield "row 1", dict(row)

    return rows


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_each_data_set_is_a_question_with_its_answer(name: str, monkeypatch) -> None:
    row, question, answer = ROWS[name]
    item = item_of(name, monkeypatch, row)
    assert (item.question, item.answer) == (question, answer)
    if answer != "-":
        assert item.grade(f"The answer is {answer}.").right or name in ("gsm_plus", "bbh")


def test_labels_tell_perturbations_fields_and_tasks_apart(monkeypatch) -> None:
    found = {
        name: item_of(name, monkeypatch, ROWS[name][0]).labels.get("subject")
        for name in ("gsm_plus", "olympiadbench", "bbh", "aime")
    }
    assert found == {
        "gsm_plus": "critical thinking", "olympiadbench": "Algebra", "bbh": "boolean_expressions",
        "aime": None,
    }  # fmt: skip


def test_a_column_that_the_data_set_lacks_is_named(monkeypatch) -> None:
    with pytest.raises(InputError, match="row 1: no column 'entry_point'"):
        item_of("humaneval", monkeypatch, {key: HUMANEVAL[key] for key in ("task_id", "prompt", "test")})


# ---- BIG-Bench Hard


def test_each_task_of_bbh_has_its_own_three_exemplars() -> None:
    layout = read_layout(ROOT / "configs/prompts/official/bbh.yaml")
    node = BenchmarkNode(**benchmark_file("bbh"))
    tasks = {source.split("/")[2].partition(":")[0] for source in node.source}
    assert tasks == set(layout.prefixes) and len(tasks) == 27
    assert all(text.count("\nQ: ") == text.count("\nA: ") == 3 for text in layout.prefixes.values())
    item = Item("x", "not True is", "False", labels={"subject": "boolean_expressions"})
    text = few_shot_text(layout, choose_exemplars(layout, [], 4, "bbh"), item)
    assert text.startswith(
        "Evaluate the result of a random Boolean expression.\n\nQ: not ( ( not not True ) ) is"
    )
    assert text.endswith("So the answer is True.\n\nQ: not True is\nA: Let's think step by step.")
    with pytest.raises(InputError, match="no prefix for its subject, 'algebra'"):
        few_shot_text(layout, [], Item("x", "?", "1", labels={"subject": "algebra"}))


@pytest.mark.parametrize(("answer", "response", "right"), TABLES["bbh"])
def test_bbh_is_scored_by_exact_match(answer: str, response: str, right: bool) -> None:
    item = Item("x", "Which?", answer)
    assert grade_response(Profile("bbh"), item, response).right is right


# ---- code


class Engine:
    """Answers each prompt with the texts that it was given."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def generate(self, prompts: list, **_: Any) -> list[list[SimpleNamespace]]:
        facts = {"token_ids": [1], "logprobs": [], "finish_reason": "stop"}
        return [[SimpleNamespace(text=text, **facts)] for text in self.texts]


@pytest.mark.slow
def test_code_is_right_if_all_its_tests_pass(monkeypatch, tmp_path: Path) -> None:
    texts = [
        "    return 2 * x\n",
        "    return x\n",
        "    import os\n    os._exit(0)\n",
        "    raise SystemExit\n",
        "    return (\n",
    ]
    item = item_of("humaneval", monkeypatch, HUMANEVAL)
    other = item_of("mbpp", monkeypatch, MBPP)
    items = [item] * len(texts) + [other] * 2
    texts += [MBPP["code"] + "\n", "def inc(x):\n    return 2"]
    tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: "")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # one worker of the sandbox
    sampler = Sampler(tmp_path, tokenizer, 64, 64, lambda: Engine(texts), Counter(), Code(), weak=True)
    around = [(found.start, found.tests) for found in items]
    ids = [str(number) for number in range(len(items))]
    decoding = Decoding(1, 0.0, 8, 0, kind="code", seconds=5.0)
    try:
        answers = sampler.sample(Request("x", ids, [[1]] * len(items), (), decoding, around))
    finally:
        sampler.close()
    task = evaluate.Task("x", "few_shot_code", items, [], (), 0)
    verdicts = [row[0].right for row in evaluate._grade("x", task, answers)]
    assert verdicts == [True, False, False, False, False, True, False]
    assert [row[0].output for row in answers].count(PASSED) == 2


def test_a_mode_is_refused_for_questions_that_it_cannot_judge() -> None:
    plain, code = Item("a", "1+1?", "2"), Item("b", "def f", "-", tests="assert f")
    evaluate.check_rows("x", [plain], "few_shot_cot")
    evaluate.check_rows("x", [code], "few_shot_code")
    for item, mode in ((plain, "few_shot_code"), (code, "chat_cot"), (plain, "few_shot_proof")):
        with pytest.raises(InputError, match=f"benchmark x, mode {mode}: question '{item.id}'"):
            evaluate.check_rows("x", [item], mode)
    asked = {name: BenchmarkNode(source="x", modes=[f"few_shot_{name}"]) for name in ("code", "proof")}
    assert EvaluateSection(benchmarks={"x": asked["code"]}).runs_programs
    assert not EvaluateSection(benchmarks={"x": asked["proof"]}).runs_programs


# ---- formal proofs

STATEMENT = 'theorem gcd_180_168:\n  "gcd 180 168 = (12::nat)"'
PROVED, OPEN = "  sledgehammer", 'proof -\n  have "x"\n    sledgehammer\n  show ?thesis sorry\nqed'


def proof_item(name: str = "a") -> Item:
    return Item(
        name, "Find it.", "-", solution="By evaluation.", formal=f"{STATEMENT} {name}", header="theory a"
    )


def test_proofs_without_a_checker_are_not_checked_and_never_right() -> None:
    ((first, empty),) = proof_verdicts([proof_item()], [[PROVED, " \n"]], None)
    assert (first.verdict, first.reason, first.right) == ("undecided", NOT_CHECKED, False)
    assert (empty.verdict, empty.reason) == ("wrong", "no proof")
    task = evaluate.Task("minif2f_test", "few_shot_proof", [proof_item()], [], (), 0)
    scores = evaluate.task_scores(task.items, [Answer(PROVED, "stop", 3)], [first], [[]], [1], None)
    assert scores["not_checked"] == scores["undecided"] == 1 and scores["accuracy"] == 0
    assert accuracy(scores).value is None  # a dash in the report's tables
    assert accuracy({"accuracy": 0.0, "ci95": [0, 0.1], "n": 1}).value == 0


def test_columns_of_the_papers_tables_are_measured_by_their_own_kind() -> None:
    tables = {table["id"]: table for table in read_yaml(ROOT / "configs/paper.yaml")["tables"]}
    found = [task_of(tables["table-3"], name) for name in tables["table-3"]["columns"]]
    assert found == [("gsm8k", "pal"), ("math", "pal"), ("minif2f_valid", "proof"), ("minif2f_test", "proof")]
    found = [task_of(tables["table-4"], name) for name in tables["table-4"]["columns"]]
    assert found == [("mmlu", "cot"), ("bbh", "cot"), ("humaneval", "code"), ("mbpp", "code")]
    found = [task_of(tables["table-9"], name) for name in tables["table-9"]["columns"]]
    assert found == [("minif2f_valid", "proof"), ("minif2f_test", "proof")]


CHECKER = """
import json, sys
for row in map(json.loads, sys.stdin):
    assert row["statement"].startswith("theorem") and row["header"] == "theory a"
    proved = row["proof"] == "sledgehammer" and row["statement"].endswith(" a")
    print(json.dumps({"id": row["id"], "proved": proved, "reason": "recorded"}))
"""


def test_a_checker_of_recorded_verdicts_decides_and_its_failures_are_named(tmp_path: Path) -> None:
    checker = tmp_path / "recorded.py"
    checker.write_text(CHECKER)
    command = f"{sys.executable} {checker}"
    answers = [[PROVED, OPEN, PROVED], [OPEN, "", PROVED]]
    found = proof_verdicts([proof_item("a"), proof_item("b")], answers, command)
    assert [[verdict.right for verdict in row] for row in found] == [[True, False, True], [False] * 3]
    assert found[0][0].extracted == "sledgehammer"
    for program, message in (
        ("print('{}')", "not what a checker writes"),
        ("raise SystemExit('no Isabelle here')", "it ended with code 1: no Isabelle here"),
    ):
        checker.write_text(program)
        with pytest.raises(InputError, match=f"evaluate.proof_checker: {message}"):
            proof_verdicts([proof_item()], [[PROVED]], command)
    with pytest.raises(InputError, match="evaluate.proof_checker: /no/such/program"):
        proof_verdicts([proof_item()], [[PROVED]], "/no/such/program")


def test_a_slow_checker_is_no_hang_and_after_a_signal_the_next_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals, phases, run = [], [], subprocess.run

    def signalled(*words: Any, **options: Any) -> Any:
        phases.append(watchdog._phase[0])
        signals.append(signal.SIGUSR1)
        return run(*words, **options)

    monkeypatch.setattr(ending, "_received", signals)
    monkeypatch.setattr(subprocess, "run", signalled)
    checker = tmp_path / "recorded.py"
    section = EvaluateSection(proof_checker=f"{sys.executable} {checker}", batch=1)
    work = [proof_item("a"), proof_item("b")], [[PROVED, ""], [PROVED, ""]], section, tmp_path / "proofs"
    for program in (CHECKER, "import os; os.kill(os.getpid(), 10)"):  # the second by Slurm, with the job
        checker.write_text(program)
        with pytest.raises(Interrupted):
            check_proofs("x", *work)
        signals.clear()
    checker.write_text(CHECKER)
    assert [[verdict.right for verdict in row] for row in check_proofs("x", *work)] == [
        [True, False],
        [False] * 2,
    ]
    assert phases == [watchdog.WAITING] * 3


@pytest.mark.skipif(not BENCH.is_dir(), reason="needs the shared benchmarks")
@pytest.mark.parametrize(("split", "file"), [("test", "test"), ("valid", "validation")])
def test_every_statement_of_minif2f_gets_the_papers_prompt(split: str, file: str) -> None:
    source = str(BENCH / f"minif2f_isabelle_{file}.jsonl.gz")
    node = BenchmarkNode(**benchmark_file(f"minif2f_{split}") | {"source": source})
    items = load("minif2f", node, [source])
    rows = [row for _, row in read_rows(source)]
    assert len(items) == len(rows) == 244
    evaluate.check_rows("minif2f", items, "few_shot_proof")
    layout = read_layout(ROOT / node.prompt)
    for item, row in zip(items, rows, strict=True):
        text = few_shot_text(layout, [], item)
        shots = 7 if "numbertheory" in row["formal_statement"] else 6
        assert text.count("Informal:\n") == shots + 1
        informal = (
            f"(*### Problem\n\n{row['question'].strip()}\n\n### Solution\n\n{row['solution'].strip()} *)"
        )
        assert text.endswith(f"\n\n\n\nInformal:\n{informal}\n\nFormal:\n{row['formal_statement'].strip()}")
        assert item.header == row["header"] and item.formal == row["formal_statement"]
