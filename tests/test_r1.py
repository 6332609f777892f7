"""`configs/r1-zero.yaml`: the reward of the form, what starts from what, and which reference is kept."""

import pytest
from conftest import ROOT
from given.cases import cases
from given.plans import DEMO, SINGLE, config_of

from pipeline.config.rl import RewardWeights
from pipeline.config.root import Config
from pipeline.evaluate.benchmarks import Item
from pipeline.rl.methods import method_of
from pipeline.rl.rewards import Rewarder

TABLES = cases("r1")
REWARD = "configs/rewards/think_then_answer.py:think_then_answer"
WHOLE = config_of([*SINGLE, ROOT / "configs/r1-zero.yaml"])
SMALL = config_of([*DEMO, ROOT / "configs/r1-zero-demo.yaml"])


@pytest.mark.parametrize(("text", "form", "right"), TABLES["earned"])
def test_accuracy_and_form_earn_alike(
    monkeypatch: pytest.MonkeyPatch, text: str, form: float, right: float
) -> None:
    monkeypatch.chdir(ROOT)
    rewarder = Rewarder(WHOLE.model_sections["zero-1"].rewards)
    (found,) = rewarder.score([Item("q", "What is 3 + 4?", "7")], [[1]], [[5]], [text])
    assert found.parts == {"accuracy": right, "think_then_answer": form} and found.total == right + form


@pytest.mark.parametrize("config", [WHOLE, SMALL], ids=["one GPU", "demo"])
def test_rl_starts_from_a_base_model_and_each_round_has_a_new_reference(config: Config) -> None:
    first, second = config.models["zero-1"], config.models["zero-2"]
    assert config.models[first.parent].stage == "cpt" and second.parent == "zero-1"
    for name in ("zero-1", "zero-2"):
        section = config.model_sections[name]
        assert section.rewards == RewardWeights(accuracy=1, functions={REWARD: 1})
        assert method_of(section).reference(section), "a reference is kept, and it is the parent"
        assert section.supervision == "outcome" and section.group_size == 16
