"""`configs/single-gpu.yaml` as shipped, with local folders laid out like the hub's repositories."""

import json
import sys

import pytest
import torch
from conftest import ROOT, Checkout
from given.single_gpu import MODEL, SUFFIX
from safetensors.torch import load_file

from pipeline.rl.rollout import published, read_groups
from pipeline.training.tokenizer import load_tokenizer

sys.path.append(str(ROOT / "bench/gpu"))  # the same run is a step of `make gpu-check`


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout in which the configuration has run to completion offline."""
    from shipped import STEPS, run_shipped

    folder = tmp_path_factory.mktemp("single")
    figures = run_shipped(folder, small=True)
    assert figures["steps"] == STEPS and figures["logprob_gap_mean"] < 1e-3
    return Checkout(folder)


def test_grpo_changes_a_published_checkpoint_and_keeps_its_form(trained: Checkout) -> None:
    before = {}
    for file in (trained.folder / MODEL).glob("*.safetensors"):
        before |= load_file(file)
    result = trained.folder / "results/single-gpu/rl/grpo/data"
    after = {}
    for file in result.glob("*.safetensors"):
        after |= load_file(file)
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name].float(), after[name].float()) for name in before)
    kept = json.loads((result / "config.json").read_text())
    assert kept["model_type"] == "qwen2" and kept["tie_word_embeddings"]
    assert json.loads((result / "generation_config.json").read_text())["eos_token_id"] == [2, 0]


def test_questions_are_asked_in_the_checkpoints_own_chat_format_and_end_with_its_tokens(
    trained: Checkout,
) -> None:
    tokenizer = load_tokenizer(trained.folder / MODEL)
    groups = read_groups(published(trained.folder / "results/single-gpu/rl/grpo/data/rollouts", 1))
    assert len(groups) == 4 and all(len(group.outputs) == 8 for group in groups)
    for group in groups:
        asked = tokenizer.decode(group.prompt)
        assert asked.startswith("<|im_start|>system\n") and asked.endswith("<|im_start|>assistant\n")
        assert SUFFIX in asked
    ended = [rollout for group in groups for rollout in group.outputs if rollout.finish_reason == "stop"]
    assert ended and {rollout.tokens[-1] for rollout in ended} <= {0, 2}
    assert 0 < sum(rollout.verdict == "right" for group in groups for rollout in group.outputs) < 32


def test_both_models_are_evaluated_on_the_hubs_benchmarks(trained: Checkout) -> None:
    summary = json.loads((trained.folder / "results/single-gpu/report/summary.json").read_text())
    for model in ("start", "grpo"):
        found = summary["models"][model]
        assert {name: next(iter(modes.values()))["n"] for name, modes in found.items()} == {
            "gsm8k": 4,
            "math500": 4,
        }
