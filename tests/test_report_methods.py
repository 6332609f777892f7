"""RL methods over their seeds: labels, means with intervals, curves over sampled tokens, rounds in a row."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.report.chapters.rl import comparison
from pipeline.report.collect import Finished, Run
from pipeline.report.compare import Results
from pipeline.report.methods import costs, groups, label, learning_curve


def node(
    folder: Path, name: str, accuracies: list[float], parent: str = "sft/instruct", **config: Any
) -> Finished:
    data = folder / name / "data"
    data.mkdir(parents=True)
    steps = [{"step": step + 1, "sampled_tokens": 100} for step in range(2 * (len(accuracies) - 1))]
    evaluations = [{"step": 2 * place, "accuracy": value} for place, value in enumerate(accuracies)]
    for file, rows in (("metrics", steps), ("evaluation", evaluations)):
        (data / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Finished(f"rl/{name}", data, {"config": config, "upstream": {parent: "x"}}, {})


@pytest.fixture()
def run(tmp_path: Path) -> Run:
    nodes = [
        node(tmp_path, "rft-0", [0.5, 0.6], method="rft", seed=0),
        node(tmp_path, "rft-1", [0.5, 0.7], method="rft", seed=1),
        node(tmp_path, "ps-0", [0.5, 0.8], method="grpo", supervision="process"),
        node(tmp_path, "ps-2nd", [0.8, 0.9], "rl/ps-0", supervision="process", iteration=2),
    ]
    return Run("x", {found.name: found for found in nodes})


def test_methods_are_named_as_in_the_paper(run: Run) -> None:
    assert list(groups(run)) == ["RFT", "GRPO+PS", "GRPO+PS, round 2"]
    assert label({}) == "GRPO+OS"
    assert label({"method": "reinforce"}) == "reinforce"  # not in the paper
    assert label({"rewards": {"accuracy": 1, "model": 0}}) == "GRPO+OS by the rule alone"
    assert (
        label({"mode": "pal"}) == "GRPO+OS with programs" and label({"mode": "tool"}) == "GRPO+OS with tools"
    )
    assert label({"supervision": "process"}, continued=True) == "GRPO+PS, round 1 continued"


def test_each_learning_rate_of_a_method_is_shown_by_itself(tmp_path: Path) -> None:
    nodes = [node(tmp_path, f"rft-{rate}", [0.5], method="rft", learning_rate=rate) for rate in (1e-4, 2e-4)]
    nodes.append(node(tmp_path, "dpo", [0.5], method="dpo", learning_rate=1e-4))
    found = groups(Run("x", {result.name: result for result in nodes}))
    assert list(found) == ["RFT, rate 0.0001", "RFT, rate 0.0002", "DPO"]


def test_a_model_whose_rollouts_another_one_sampled_started_from_its_parent(tmp_path: Path) -> None:
    other, parent = (tmp_path / f"store/{name}/{'0' * 16}/data" for name in ("rl/grpo", "sft/instruct"))
    mine = node(tmp_path, "mine", [0.5], "rl/grpo")
    mine.manifest["upstream"]["sft/instruct"] = "x"
    mine.run["inputs"] = {"rollouts": [str(other)], "parent": [str(parent)]}
    assert Run("x", {mine.name: mine}).models["mine"].parent == "instruct"


def test_a_variant_of_a_method_is_no_seed_of_it(tmp_path: Path) -> None:
    nodes = [node(tmp_path, f"grpo-{seed}", [0.5], seed=seed, learning_rate=1e-4) for seed in (0, 1)]
    nodes += [node(tmp_path, "mine", [0.5], seed=0, learning_rate=1e-4, kl_coefficient=1)]
    found = groups(Run("x", {result.name: result for result in nodes}))
    assert {name: len(seeds) for name, seeds in found.items()} == {"GRPO+OS, grpo": 2, "GRPO+OS, mine": 1}


def test_costs_are_means_over_seeds_and_name_what_a_run_did_not_note(run: Run) -> None:
    first, second = groups(run)["RFT"]
    for seed, memory, flop in ((first, 1000, 10), (second, 2000, 30)):
        seed.run.update(peak_rss_mb=memory, seconds=memory / 10)
        lines = [
            {"step": 1, "sampled_tokens": 100, "flop": flop},
            {"step": 2, "sampled_tokens": 50, "flop": 0},
        ]
        (seed.data / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    judge = Finished("reward/orm", run.finished["rl/ps-0"].data, {}, {"counters": {"vllm.tokens": 7}})
    run.finished["reward/orm"] = judge
    run.finished["rl/ps-0"].upstream["reward/orm"] = "y"
    rows = {row["method"]: row for row in costs(run)}
    assert rows["RFT"] == {
        "method": "RFT", "seeds": 2, "tokens": 150, "label_tokens": None, "flop": 20, "seconds": 150,
        "memory": 1500 * 2**20,
    }  # fmt: skip
    assert rows["GRPO+PS"]["label_tokens"] == 7 and rows["GRPO+PS"]["flop"] is None


def test_a_learning_curve_is_the_mean_over_seeds(run: Run) -> None:
    curve = learning_curve(groups(run)["RFT"], run)
    assert [(x, pytest.approx(y)) for x, y, _ in curve] == [(0, 0.5), (200, 0.65)]


def test_a_second_round_starts_at_the_tokens_of_the_first(run: Run) -> None:
    curve = learning_curve(groups(run)["GRPO+PS, round 2"], run)
    assert [x for x, _, _ in curve] == [200, 400]


def test_figures_show_methods_and_rounds_apart(run: Run) -> None:
    drawn = comparison(run, Results(run))
    named = {key: [trace["name"] for trace in drawing["data"]] for key, drawing in drawn.items()}
    assert [name for name in named["methods"] if name] == ["RFT", "GRPO+PS"]
    assert [name for name in named["rounds"] if name] == ["GRPO+PS", "GRPO+PS, round 2"]


def test_each_file_that_training_was_evaluated_on_has_a_figure(run: Run) -> None:
    for seed in run.of("rl"):
        rows = [json.loads(line) for line in (seed.data / "evaluation.jsonl").read_text().splitlines()]
        rows = [row | {"accuracy_of": {"gsm8k": row["accuracy"] + 0.1, "math": 0.25}} for row in rows]
        (seed.data / "evaluation.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    drawn = comparison(run, Results(run))
    assert {"methods", "methods-gsm8k", "methods-math"} <= set(drawn)
    assert [y for _, y, _ in learning_curve(groups(run)["RFT"], run, "gsm8k")] == pytest.approx([0.6, 0.75])
    assert [y for _, y, _ in learning_curve(groups(run)["RFT"], run, "math")] == [0.25, 0.25]


def test_one_method_alone_is_no_comparison(tmp_path: Path) -> None:
    alone = Run("x", {"rl/grpo": node(tmp_path, "grpo", [0.5, 0.6])})
    assert comparison(alone, Results(alone)) == {}
