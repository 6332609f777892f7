"""`configs/compare.yaml`: models, what they start from, equal budgets, the choice of learning rates."""

import json
from pathlib import Path

import pytest
import yaml
from given.lines import read_lines

from pipeline.config.miniweb import MiniwebSection
from pipeline.config.root import Config
from pipeline.core.overlays import read_config
from pipeline.core.stage import run_stage
from pipeline.examples.miniweb.__main__ import run as make_web
from pipeline.examples.recipes import rates
from pipeline.report.methods import label
from workflow.graph import Graph, Result

ROOT = Path(__file__).resolve().parents[1]
VALUES = yaml.safe_load((ROOT / "configs/compare.yaml").read_text())
GRID = [2e-5, 2e-4]
METHODS = ["rft", "online-rft", "dpo", "ppo", "grpo-rule", "grpo-os", "grpo-ps"]


@pytest.mark.slow
def test_its_own_web_can_be_made_and_asks_nothing_that_the_demo_trains_on(tmp_path: Path) -> None:
    questions: dict[str, dict[str, set[str]]] = {}
    for name in ("demo", "compare"):
        config = Config(read_config([ROOT / f"configs/{name}.yaml"]))
        words = ["--instance", "miniweb", "--config", config.sections["miniweb"].model_dump_json()]
        run_stage("miniweb", MiniwebSection, make_web, [*words, "--output", str(tmp_path / name)])
        for part in ("sft", "rl", "dev", "test"):
            rows = read_lines(tmp_path / name / f"{part}.jsonl")
            asked = {row.get("question") or row["messages"][0]["content"] for row in rows}
            questions.setdefault(name, {})[part] = asked
    assert len(questions["compare"]["test"]) == VALUES["benchmarks"]["miniweb"]["limit"]
    trained = questions["demo"]["sft"] | questions["demo"]["rl"]
    for part in ("dev", "test"):
        assert not questions["compare"][part] & trained
    assert not questions["compare"]["dev"] & questions["compare"]["test"]


@pytest.fixture()
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    demo = tmp_path / "results/demo"
    for name in ("cpt/base", "sft/instruct", "miniweb"):
        (demo / name / "data").mkdir(parents=True)
    (demo / "miniweb/data/rl.jsonl").touch()
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    return Graph(Config(VALUES))


def test_every_method_has_five_seeds_and_the_same_budget(graph: Graph) -> None:
    seeds: dict[str, list[int]] = {}
    budgets: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for name in graph.names("rl"):
        section = graph.nodes[name].section
        parent = dict(graph.nodes[name].inputs)["parent"]
        method = label(section, isinstance(parent, Result))
        seeds.setdefault(method, []).append(section["seed"])
        step = section["questions_per_step"], section["group_size"]
        budgets.setdefault(step, set()).add((section["token_budget"] or 0, section["steps"]))
    methods = ["RFT", "Online RFT", "DPO", "PPO", "GRPO+OS by the rule alone", "GRPO+OS", "GRPO+PS"]
    methods += ["GRPO+PS, round 2", "GRPO+PS, round 1 continued"]
    assert seeds == {method: [0, 1, 2, 3, 4] for method in methods}
    assert list(budgets.values()) == [{(160000, 80), (0, 27)}]  # equal tokens; OS and PS equal steps


def test_a_second_round_continues_policy_and_reward_model_of_the_same_seed(graph: Graph) -> None:
    for seed in range(5):
        inputs = dict(graph.nodes[f"rl/grpo-ps-2nd-{seed}"].inputs)
        assert inputs["parent"] == Result(f"rl/grpo-ps-{seed}")
        assert inputs["reward_model"] == Result(f"reward/prm-2-{seed}")
        reward = dict(graph.nodes[f"reward/prm-2-{seed}"].inputs)
        assert reward["parent"] == Result("reward/prm") and reward["policy"] == Result(f"rl/grpo-ps-{seed}")
        assert "history" in reward  # earlier labels to replay


def test_the_second_rounds_control_differs_in_the_reward_model_alone(graph: Graph) -> None:
    for seed in range(5):
        second, control = (graph.nodes[f"rl/grpo-ps-{kind}-{seed}"] for kind in ("2nd", "on"))
        changed = {key for key in second.section if second.section[key] != control.section[key]}
        assert changed == {"iteration"} and second.section["earlier_steps"] == 27
        changed = {key for key, source in second.inputs if dict(control.inputs)[key] != source}
        assert changed == {"reward_model"} and dict(control.inputs)["reward_model"] == Result("reward/prm")


def test_each_method_tries_the_same_rates_on_questions_that_are_not_the_tests(graph: Graph) -> None:
    overlay = rates.trials(VALUES, GRID, "miniweb:dev.jsonl")
    models = VALUES["models"] | {name: node for name, node in overlay["models"].items() if node != {}}
    models["instruct"] = VALUES["models"]["instruct"] | overlay["models"]["instruct"]
    graph = Graph(Config(VALUES | overlay | {"models": models}))
    tried = {name.partition("/")[2]: graph.nodes[name].section for name in graph.names("rl")}
    assert set(tried) == {f"{method}-at-{rate:g}" for method in METHODS for rate in GRID}
    assert {section["seed"] for section in tried.values()} == {100}  # of no model that is reported
    lengths = {section["token_budget"] or section["steps"] for section in tried.values()}
    assert lengths == {160000, 27}  # as long as the runs that are reported
    for name in graph.names("evaluate"):
        asked = [source for key, source in graph.nodes[name].inputs if key.startswith("benchmark.")]
        assert asked == [Result("miniweb", "dev.jsonl")]


def test_each_method_takes_its_best_rate_and_later_rounds_take_their_firsts(tmp_path: Path) -> None:
    for method in METHODS:
        for rate in GRID:
            folder = tmp_path / f"evaluate/{method}-at-{rate:g}/data"
            folder.mkdir(parents=True)
            right = 0.5 if method == "dpo" else 0.4 + rate * (1 if method == "grpo-ps" else -1)
            (folder / "scores.json").write_text(json.dumps({"dev": {"chat_cot": {"accuracy": right}}}))
    found = rates.chosen(VALUES, GRID, tmp_path)["models"]
    rl = {name for name, node in VALUES["models"].items() if node["stage"] == "rl"}
    assert set(found) == rl
    fast = {name for name in rl if found[name]["learning_rate"] == 2e-4}
    assert fast == {name for name in rl if name.startswith("grpo-ps")}  # and of equals the smaller: dpo
    (tmp_path / "evaluate/ppo-at-2e-05/data/scores.json").unlink()
    with pytest.raises(SystemExit, match="ppo-at-2e-05.*not complete"):
        rates.chosen(VALUES, GRID, tmp_path)
