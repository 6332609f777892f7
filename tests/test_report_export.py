"""A run's results for other programs, and two runs side by side."""

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from huggingface_hub import ModelCard
from report_run import QUESTIONS, SAMPLES, FakeRun

from pipeline.protocol.errors import InputError
from pipeline.report.compare import Results
from pipeline.report.export import export, front_matter, open_run
from pipeline.report.two_runs import compare, names_of


def small_run(root: Path, seed: int, skill: float, **config: object) -> Path:
    run = FakeRun(root, seed)
    run.model("sft/instruct", None, 3, 2.0)
    run.model("rl/grpo_a", "sft/instruct", 3, 2.0, **config)
    run.evaluation("sft/instruct", "chat_cot", 0.4, 1.0, benchmarks=("gsm8k",))
    run.evaluation("rl/grpo_a", "chat_cot", skill, 1.0, benchmarks=("gsm8k",))
    return root


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("results")
    return small_run(folder / "a", 0, 0.6, beta=0.0), small_run(folder / "b", 1, 0.9, beta=0.04)


@pytest.fixture(scope="module")
def exported(runs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    export(runs[0], folder)
    return folder


def test_exported_tables_hold_the_scores_of_the_run(runs: tuple[Path, Path], exported: Path) -> None:
    score = json.loads((runs[0] / "evaluate/grpo_a/data/scores.json").read_text())["gsm8k"]["chat_cot"]
    with (exported / "scores.csv").open() as file:
        rows = {row["model"]: row for row in csv.DictReader(file)}
    assert float(rows["grpo_a"]["accuracy"]) == score["accuracy"]
    assert float(rows["grpo_a"]["Maj@16"]) == score["maj@k"]["16"]
    with (exported / "gains.csv").open() as file:
        (gain,) = csv.DictReader(file)
    assert (gain["better"], gain["worse"], gain["n"]) == ("grpo_a", "instruct", str(QUESTIONS))
    table = (exported / "table.tex").read_text()
    assert (
        rf"grpo\_a & {100 * score['accuracy']:.1f}\% \\" in table
        and r"DeepSeekMath-RL 7B & 88.2\% \\" in table
    )
    found = json.loads((exported / "results/grpo_a.json").read_text())
    assert found["results"]["gsm8k_chat_cot"]["exact_match,none"] == score["accuracy"]
    assert found["n-samples"]["gsm8k_chat_cot"] == {"original": QUESTIONS, "effective": QUESTIONS}


def test_every_answer_is_a_row_of_parquet(runs: tuple[Path, Path], exported: Path) -> None:
    rows = pq.read_table(exported / "samples/grpo_a/gsm8k.chat_cot.parquet").to_pylist()
    source = (runs[0] / "evaluate/grpo_a/data/gsm8k.chat_cot.jsonl").read_text().splitlines()
    assert len(rows) == QUESTIONS * (1 + SAMPLES) and len(source) == QUESTIONS
    first = json.loads(source[0])
    assert [row["text"] for row in rows[: 1 + SAMPLES]] == [
        answer["text"] for answer in (first["greedy"], *first["samples"])
    ]
    assert [row["sample"] for row in rows[:3]] == [None, 0, 1] and rows[0]["level"] == "1"


def test_the_hub_reads_the_results_of_a_model_card(runs: tuple[Path, Path]) -> None:
    score = json.loads((runs[0] / "evaluate/grpo_a/data/scores.json").read_text())["gsm8k"]["chat_cot"]
    results = Results(open_run(runs[0]))
    (result,) = ModelCard(front_matter(results, "grpo_a", {})).data.eval_results
    assert (result.dataset_name, result.metric_type) == ("gsm8k", "accuracy")
    assert result.metric_value == pytest.approx(100 * score["accuracy"], abs=0.01)


def test_two_runs_are_paired_by_model_and_question(runs: tuple[Path, Path], tmp_path: Path) -> None:
    compare(*runs, tmp_path)
    found = json.loads((tmp_path / "comparison.json").read_text())
    gain = next(row for row in found["comparisons"] if row["better"] == "b: grpo_a")
    assert gain["worse"] == "a: grpo_a" and gain["n"] == QUESTIONS and gain["mean"] > 0
    assert found["changes"] == [{"result": "rl/grpo_a", "key": "beta", "values": [0.0, 0.04]}]
    page = (tmp_path / "index.html").read_text()
    (task,) = json.loads(page.split('id="samples-data">')[1].split("</script>")[0])["tasks"]
    assert task["pair"] == ["b: grpo_a", "a: grpo_a"]
    assert all((tmp_path / folder / "index.js").exists() for folder in task["models"].values())
    assert len(set(task["models"].values())) == 4


def test_runs_of_one_name_are_told_apart_by_their_folders() -> None:
    assert names_of(Path("/x/results/demo"), Path("/y/results/demo")) == ("x/results/demo", "y/results/demo")


def test_a_folder_without_evaluations_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no evaluation of a model here"):
        open_run(tmp_path)
