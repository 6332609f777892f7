"""`configs/compare.yaml`: its models, what they start from, and their equal budgets."""

from pathlib import Path

import pytest
import yaml

from pipeline.config.root import Config
from pipeline.report.methods import label
from workflow.graph import Graph, Result

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture()
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    values = yaml.safe_load((ROOT / "configs/compare.yaml").read_text())
    demo = tmp_path / "results/demo"
    for name in ("cpt/base", "sft/instruct", "miniweb"):
        (demo / name / "data").mkdir(parents=True)
    for name in ("rl", "test"):
        (demo / f"miniweb/data/{name}.jsonl").touch()
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    return Graph(Config(values))


def test_every_method_has_three_seeds_and_the_same_budget(graph: Graph) -> None:
    seeds: dict[str, list[int]] = {}
    budgets = set()
    for name in graph.names("rl"):
        section = graph.nodes[name].section
        seeds.setdefault(label(section), []).append(section["seed"])
        budgets.add((section["token_budget"], section["questions_per_step"], section["group_size"]))
    methods = ["RFT", "Online RFT", "DPO", "PPO", "GRPO+OS", "GRPO+PS", "GRPO+PS, round 2"]
    assert seeds == {method: [0, 1, 2] for method in methods} and len(budgets) == 1


def test_a_second_round_continues_policy_and_reward_model_of_the_same_seed(graph: Graph) -> None:
    for seed in range(3):
        inputs = dict(graph.nodes[f"rl/grpo-ps-2nd-{seed}"].inputs)
        assert inputs["parent"] == Result(f"rl/grpo-ps-{seed}")
        assert inputs["reward_model"] == Result(f"reward/prm-2-{seed}")
        reward = dict(graph.nodes[f"reward/prm-2-{seed}"].inputs)
        assert reward["parent"] == Result("reward/prm") and reward["policy"] == Result(f"rl/grpo-ps-{seed}")
        assert "history" in reward  # earlier labels to replay
