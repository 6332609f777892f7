"""A trained model leaves the run: a folder that transformers loads, with a card that says how it was made."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import ROOT, Checkout
from huggingface_hub import ModelCard
from transformers import AutoModelForCausalLM, AutoTokenizer


def export(run: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline", "export", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def model(finished: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small run's last model, exported."""
    folder = tmp_path_factory.mktemp("export") / "grpo"
    done = export(finished.folder, finished.result("rl/grpo"), "--to", folder, "--licence", "apache-2.0")
    assert done.returncode == 0, done.stderr
    return folder


def test_the_folder_is_the_model_and_nothing_else(model: Path, finished: Checkout) -> None:
    names = {path.name for path in model.iterdir()}
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= names
    assert not names & {"metrics.jsonl", "samples.jsonl", "rollouts", "best", "tensorboard"}
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokens = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is 3 + 4?"}], add_generation_prompt=True, return_tensors="pt"
    )["input_ids"]
    ours, theirs = (
        AutoModelForCausalLM.from_pretrained(folder)(tokens).logits
        for folder in (model, finished.result("rl/grpo") / "data")
    )
    assert torch.equal(ours, theirs)


def test_the_card_tells_every_stage_and_the_results_that_the_hub_reads(model: Path) -> None:
    card = ModelCard.load(model / "README.md")
    assert card.data.license == "apache-2.0" and card.data.library_name == "transformers"
    assert {result.dataset_name for result in card.data.eval_results} == {"miniweb", "heldout"}
    stages = re.findall(r"^\| ((?:cpt|sft|rl)/\w+) \(key ([0-9a-f]{16})\)", card.text, re.MULTILINE)
    assert [name for name, _ in stages] == ["cpt/base", "sft/instruct", "rl/grpo"]
    assert "miniweb, sft.jsonl" in card.text and "learning_rate: 0.0002" in card.text
    assert "random weights" in card.text and str(model.parent) not in card.content


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("crawl/dedup", "crawl/dedup is no model that writes text"),
        ("reward/prm", "reward/prm is no model that writes text"),
        ("nothing", "no finished result of a run"),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(
    name: str, words: str, finished: Checkout, tmp_path: Path
) -> None:
    done = export(finished.folder, finished.result(name), "--to", tmp_path / "new")
    assert done.returncode == 1 and words in done.stderr and done.stderr.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_a_folder_that_exists_is_left_alone(model: Path, finished: Checkout) -> None:
    before = (model / "README.md").read_bytes()
    done = export(finished.folder, finished.result("rl/grpo"), "--to", model)
    assert done.returncode == 1 and "name a folder that does not" in done.stderr
    assert (model / "README.md").read_bytes() == before
