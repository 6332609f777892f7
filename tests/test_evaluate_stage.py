"""Benchmarks, the grade and score programs, and the stage with vLLM on a tiny model."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import NO_NAMESPACES, WEAK
from given.lines import read_lines, write_lines
from mathverdict.answers import Verdict
from programs import ENVIRONMENT, finished, words_of
from tiny_model import save_tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from warm import Program

from pipeline.config.evaluate import BenchmarkNode
from pipeline.config.root import Config
from pipeline.core.manifest import ROOT
from pipeline.core.stage import InputError
from pipeline.evaluate import grade, score
from pipeline.evaluate.__main__ import task_scores
from pipeline.evaluate.benchmarks import Item, load
from pipeline.evaluate.metrics import describe_unfinished
from pipeline.evaluate.prompts import read_layout
from pipeline.evaluate.sampling import Answer
from workflow.graph import Graph


def test_an_answer_that_was_cut_off_is_right_and_not_finished_and_one_the_grader_failed_on_is_counted():
    items = [Item(str(n), "What is it?", "7") for n in range(5)]
    ends = ("stop", "length", "rounds", "stop", "stop")
    answers = [Answer("\\boxed{7}", end, 9) for end in ends]
    verdicts = [Verdict(name, "7", "") for name in ("right", "right", "right", "wrong", "failed")]
    scores = task_scores(items, answers, verdicts, [[]] * 5, [1], None)
    assert (scores["accuracy"], scores["right_and_finished"]) == (0.6, 0.2)
    assert (scores["not_judged"], scores["undecided"], scores["truncated"]) == (1, 0, 1)
    assert (
        describe_unfinished(0.6, 0.2) == "60.0% right, but only 20.0% right and finished"
        and describe_unfinished(0.6, 0.55) is None
    )


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
    row = {"id": "1", "problem": "1+1?", "answer": "2"}
    path = write_lines(tmp_path / "theirs.jsonl", [row])
    node = BenchmarkNode(source=str(path), fields={"question": "problem", "id": "{id} of {answer}"})
    assert load("mine", node, [str(path)]) == [Item("1 of 2", "1+1?", "2")]
    write_lines(path, [{"problem": "1+1?", "answer": "2"}])
    with pytest.raises(InputError, match="line 1: no column 'id', which `fields` names; the row has problem"):
        load("mine", node, [str(path)])
    with pytest.raises(InputError, match="the row has problem, answer: write `fields: {question: COLUMN}`"):
        load("mine", BenchmarkNode(source=str(path)), [str(path)])


def test_the_grade_program_answers_every_pair_in_order(tmp_path):
    pairs = [
        {"id": "a", "reference": "1/2", "prediction": "0.5"},
        {"id": "b", "reference": "3", "response": "I think \\boxed{4}"},
    ]
    output = tmp_path / "verdicts.jsonl"
    grade.main(["--input", str(write_lines(tmp_path / "pairs.jsonl", pairs)), "--output", str(output)])
    found = [(row["id"], row["verdict"], row["extracted"]) for row in read_lines(output)]
    assert found == [("a", "right", "0.5"), ("b", "wrong", "4")]


def questions(count: int) -> list[dict]:
    rows = [{"id": f"q{n}", "question": f"What is {n}+2?", "answer": str(n + 2)} for n in range(count)]
    return [row | {"solution": f"{n}+2={n + 2}", "subject": "sum"} for n, row in enumerate(rows)]


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
    write_lines(outputs, [{"id": "q0", "samples": ["1"] * 1025}])
    with pytest.raises(SystemExit):
        score.main([*arguments, "--output", str(tmp_path / "scores.json")])
    assert "outputs.jsonl: line 1: 1025 samples; at most 1024" in capsys.readouterr().err


# Benchmarks, their files beside the checkout and how many questions they hold; the first ten are the paper's.
FILES = {
    "gsm8k": ("gsm8k_test", 1319),
    "math": ("math_test", 5000),
    "math500": ("math500", 500),
    "sat": ("sat_math", 32),
    "ocw": ("ocw", 272),
    "mmlu_stem": ("mmlu_stem", 3018),
    "cmath": ("cmath_test", 1098),
    "mgsm_zh": ("mgsm", 250),
    "gaokao_mathcloze": ("gaokao_mathcloze", 118),
    "gaokao_mathqa": ("gaokao_mathqa", 351),
    "svamp": ("svamp_test", 1000),
    "mawps": ("mawps_asdiv_train", 3132),
    "minif2f_valid": ("minif2f_isabelle_validation", 244),
}


@pytest.mark.parametrize("name", [*FILES][:10])
def test_every_benchmark_of_the_paper_is_known_by_its_name_and_brings_its_prompts(name):
    node = Config({"benchmarks": {name: {}}}).benchmarks[name]
    layout = read_layout(ROOT / node.prompt)
    asked_few_shot = node.modes is None or "few_shot_cot" in node.modes
    assert not asked_few_shot or node.exemplars or len(layout.exemplars) >= node.shots
    assert node.language in ("en", "zh")
    local = Config({"benchmarks": {name: {"source": "mine.jsonl", "limit": 3}}}).benchmarks[name]
    assert (local.source, local.limit, local.shots) == ("mine.jsonl", 3, node.shots)


@pytest.mark.parametrize("name", FILES)
def test_the_real_benchmarks_load_whole_from_files(name):
    file, count = FILES[name]
    path = ROOT.parent / f"shared/data/bench/{file}.jsonl.gz"
    if not path.exists():
        pytest.skip("no real benchmarks beside the checkout")
    node = Config({"benchmarks": {name: {"source": str(path)}}}).benchmarks[name]
    assert len(load(name, node, [str(path)])) == count


def test_choices_may_be_a_list_with_the_answers_place(tmp_path):
    rows = [{"question": "?", "choices": ["1", "2"], "answer": 1}]
    path = write_lines(tmp_path / "bench.jsonl", rows)
    (item,) = load("bench", BenchmarkNode(source=str(path)), [str(path)])
    assert (item.choices, item.answer) == ({"A": "1", "B": "2"}, "B")


def stage_words(folder: Path, config: dict, weak: bool) -> list[str]:
    inputs = {"model": folder / "model", "removals": folder / "removals.jsonl"}
    inputs |= {f"{kind}.toy": folder / "bench.jsonl" for kind in ("benchmark", "exemplars")}
    return words_of(folder / "tiny", config, {"weak_sandbox": weak}, inputs)


def run_stage_program(folder: Path, config: dict, ranks: int = 1) -> None:
    """Run the program, at several ranks as the launcher starts them."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.getsockname()[1])}
    place |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    words = stage_words(folder, config, WEAK)
    names = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} | place for rank in range(ranks)]
    started = [Program("pipeline.evaluate", words, ENVIRONMENT | name) for name in names]
    for process in started:
        finished(process)


def test_a_model_is_evaluated_by_vllm_and_two_ranks_sample_again_what_was_lost(tmp_path):
    save_tiny_model(tmp_path / "model", seed=0)
    rows = [*questions(5), {"id": "long", "question": "x" * 600, "answer": "1"}]
    write_lines(tmp_path / "bench.jsonl", rows)
    removed = [{"benchmark": "toy", "item": "q1"}, {"benchmark": "x", "item": "q2"}]
    write_lines(tmp_path / "removals.jsonl", removed)
    toy = {"source": "bench.jsonl", "modes": ["chat_cot", "few_shot_cot"], "shots": 2}
    config = {"samples": 2, "k": [1, 2, 4], "max_tokens": 12, "batch": 3, "suffix": {}}
    config["benchmarks"] = {"toy": toy}
    run_stage_program(tmp_path, config)
    scores = json.loads((tmp_path / "tiny/data/scores.json").read_text())["toy"]
    assert set(scores) == {"chat_cot", "few_shot_cot"}
    assert scores["chat_cot"]["n"] == 6 and scores["chat_cot"]["prompt_too_long"] == 1
    assert scores["chat_cot"]["right_and_finished"] <= scores["chat_cot"]["accuracy"]
    assert set(scores["chat_cot"]["pass@k"]) == {"1", "2"}
    assert scores["chat_cot"]["contamination"]["items"] == 1
    assert scores["chat_cot"]["contamination"]["clean"]["n"] == 5
    assert scores["chat_cot"]["by"]["subject"]["sum"]["n"] == 5
    exemplars = read_lines(tmp_path / "tiny/data/toy.few_shot_cot.exemplars.jsonl")
    assert [row["id"] for row in exemplars] == ["q0", "q2"]
    counters = json.loads((tmp_path / "tiny/run.json").read_text())["counters"]
    assert counters["vllm.requests"] == 5 * (1 + 2) + 5 and counters["vllm.tokens"] > 0
    results = {path.name: path.read_bytes() for path in (tmp_path / "tiny/data").iterdir()}
    row = json.loads(results["toy.chat_cot.jsonl"].splitlines()[0])
    assert row["subject"] == "sum" and len(row["samples"]) == 2 and row["greedy"]["tokens"] > 0

    lost = list((tmp_path / "tiny" / "work" / "samples").glob("*.samples-*"))
    for path in lost:
        path.unlink()
    run_stage_program(tmp_path, config, ranks=2)
    counters = json.loads((tmp_path / "tiny/run.json").read_text())["counters"]  # of both ranks
    assert len(lost) == 2 and counters["vllm.requests"] == 5 * 2
    assert {path.name: path.read_bytes() for path in (tmp_path / "tiny/data").iterdir()} == results


TOOL_ANSWER = " ```python\nprint(6*7)\n```\n```output\n42\n```\nIt is \\boxed{42}."


def memorise(folder: Path, *texts: str, steps: int = 120) -> None:
    """Train the tiny model until it goes on from any beginning of a text with its rest."""
    model = AutoModelForCausalLM.from_pretrained(folder).train()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    encoded = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    rows = [torch.tensor([[*ids, tokenizer.eos_token_id]]) for ids in encoded]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        for ids in rows:
            model(ids, labels=ids).loss.backward()
        optimizer.step()
    model.save_pretrained(folder)


def test_a_tool_integrated_answer_reads_what_its_program_printed_and_resumes(tmp_path):
    save_tiny_model(tmp_path / "model", seed=0)
    memorise(tmp_path / "model", f"<s>User: What is 6*7?\n\nAssistant:{TOOL_ANSWER}")
    rows = [{"id": f"q{n}", "question": "What is 6*7?", "answer": "42"} for n in range(4)]
    write_lines(tmp_path / "bench.jsonl", rows)
    write_lines(tmp_path / "removals.jsonl", [])
    toy = {"source": "bench.jsonl", "modes": ["chat_tool", "chat_pal"]}
    config = {"samples": 0, "max_tokens": 60, "batch": 2, "tool_suffix": {}, "benchmarks": {"toy": toy}}
    run_stage_program(tmp_path, config)
    scores = json.loads((tmp_path / "tiny/data/scores.json").read_text())["toy"]
    assert scores["chat_tool"]["accuracy"] == scores["chat_tool"]["program_accuracy"] == 1.0
    assert scores["chat_pal"]["accuracy"] == 1.0 and scores["chat_pal"]["failed"] == 0
    row = json.loads((tmp_path / "tiny/data/toy.chat_tool.jsonl").read_text().splitlines()[0])
    assert row["greedy"]["text"] == TOOL_ANSWER and row["greedy"]["program"] == "ok"
    counters = json.loads((tmp_path / "tiny/run.json").read_text())["counters"]
    assert counters["vllm.requests"] == 4 * 2 + 4 and counters["sandbox.programs"] == 2 + 2  # once a batch

    next((tmp_path / "tiny" / "work" / "samples").glob("toy.chat_tool.greedy-000002-*")).unlink()
    run_stage_program(tmp_path, config)
    counters = json.loads((tmp_path / "tiny/run.json").read_text())["counters"]
    assert counters["vllm.requests"] == 2 * 2 and counters["sandbox.programs"] == 1


def test_an_evaluation_with_programs_is_refused_at_once_where_they_could_not_run(tmp_path):
    toy = {"source": "bench.jsonl", "modes": ["chat_pal"]}
    words = stage_words(tmp_path, {"benchmarks": {"toy": toy}}, weak=False)
    command = [*NO_NAMESPACES, sys.executable, "-m", "pipeline.evaluate", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "sandbox.weak: true" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_a_model_may_be_asked_in_its_own_modes_everywhere_or_by_benchmark():
    models = {
        "all": {"stage": "sft", "init": "org/a", "train": False, "modes": ["chat_tool"]},
        "one": {"stage": "cpt", "init": "org/b", "train": False, "modes": {"math": ["few_shot_pal"]}},
    }
    values = {"benchmarks": {"gsm8k": {"exemplars": None}, "math": {"exemplars": None}}, "models": models}
    nodes = Graph(Config(values)).nodes
    asked = {
        model: {
            name: node["modes"] for name, node in nodes[f"evaluate/{model}"].section["benchmarks"].items()
        }
        for model in models
    }
    assert asked["all"] == {"gsm8k": ["chat_tool"], "math": ["chat_tool"]}
    assert asked["one"] == {"gsm8k": None, "math": ["few_shot_pal"]}
    assert ("pal_prompt.math", "configs/prompts/pal-math.yaml") in nodes["evaluate/one"].inputs
