"""Reward models: steps, labels from a scripted completer, packed scores, measures, exact resume."""

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import pytest
import torch
from tiny_model import save_tiny_model

from pipeline.common.model import load_tokenizer
from pipeline.common.stage import InputError
from pipeline.config.reward import RewardSection
from pipeline.evaluate.benchmarks import Item
from pipeline.reward.labels import Labeller
from pipeline.reward.measure import best_of_n, calibration_error, reranking
from pipeline.reward.model import RewardModel, Scorer, load_reward_model, load_trunk, score_steps
from pipeline.reward.steps import split_steps, step_ends
from pipeline.reward.train import step_batches


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny"), seed=0)


@pytest.mark.parametrize(
    ("split", "text", "steps"),
    [
        ("line", "3+4=7\n7-2=5\n\nThe answer is 5.", ["3+4=7\n", "7-2=5\n\n", "The answer is 5."]),
        ("line", "\n\n", []),
        ("line", "one \n ", ["one \n "]),
        ("sentence", "It is 3.5 now. Then 4! So 7.", ["It is 3.5 now. ", "Then 4! ", "So 7."]),
        ("sentence", "先有3个。再加4个。", ["先有3个。", "再加4个。"]),
    ],
)
def test_steps_joined_are_the_text(split, text, steps):
    assert split_steps(text, split) == steps


def test_step_ends_are_the_tokens_that_end_each_step(tiny):
    tokenizer = load_tokenizer(tiny)
    tokens = tokenizer("a=1\nb=2\nend", add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    assert step_ends(tokenizer, tokens, "line") == [3, 7, 10]
    assert step_ends(tokenizer, [tokenizer.eos_token_id], "line") == []


class ScriptedEngine:
    """Answers solutions and completions from a table by the text it is asked to continue."""

    def __init__(self, tokenizer, script: dict[str, list[str]]) -> None:
        self.tokenizer, self.script, self.asked = tokenizer, script, []

    def generate(self, prompts, *, n, seeds, **_):
        found = []
        for prompt in prompts:
            text = self.tokenizer.decode(prompt)
            self.asked.append(text)
            texts = self.script[text]
            assert len(texts) == n
            rows = [self.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
            found.append([SimpleNamespace(token_ids=[*row, self.tokenizer.eos_token_id]) for row in rows])
        return found


def test_a_step_is_as_good_as_its_completions(tiny):
    tokenizer = load_tokenizer(tiny)
    good, bad = "3+4=7\n\\boxed{7}", "3+4=8\n\\boxed{8}"
    script = {
        "Q": [good, good, bad, "3+4=7\n\\boxed{1}"],
        "Q3+4=7\n": ["\\boxed{7}", "\\boxed{7}", "no box 7", "\\boxed{6}"],
        "Q3+4=8\n": ["\\boxed{8}", "\\boxed{8}", "\\boxed{8}", "\\boxed{8}"],
    }
    engine = ScriptedEngine(tokenizer, script)
    labeller = Labeller(
        lambda: engine, tokenizer, RewardSection(solutions=4, completions=4, max_tokens=40), context=100
    )
    prompt = tokenizer("Q", add_special_tokens=False)["input_ids"]
    found = labeller.label([Item("q", "3+4?", "7")], [prompt])
    assert [(s.count, s.right, s.hard, s.soft) for s in found] == [
        (2, True, [1, 1], [0.5, 1.0]),
        (1, False, [0, 0], [0.0, 0.0]),
        (1, False, [1, 0], [0.5, 0.0]),
    ]
    assert sorted(engine.asked) == ["Q", "Q3+4=7\n", "Q3+4=8\n"]  # equal prefixes once
    ranked = reranking(found, [[0.9, 0.9], [0.2, 0.1], [0.9, 0.3]])
    assert ranked["best_of_n"]["4"] == 1.0 and ranked["maj@n"]["4"] == 1.0 and ranked["pass@n"]["1"] == 0.5


def test_best_of_n_equals_the_mean_over_all_subsets():
    scores, rights = [0.9, 0.5, 0.5, 0.2, 0.2], [False, True, False, True, True]
    for n in range(1, 6):
        chances = []
        for subset in itertools.combinations(range(5), n):
            best = [index for index in subset if scores[index] == max(scores[i] for i in subset)]
            group = [index for index in range(5) if scores[index] == scores[best[0]]]
            chances.append(fmean(rights[index] for index in group))
        assert best_of_n(scores, rights, n) == pytest.approx(fmean(chances))


def test_calibration_error_of_known_values():
    assert calibration_error([0.25, 0.25, 0.25, 0.25], [1, 0, 0, 0]) == 0.0
    assert calibration_error([0.95, 0.95, 0.05, 0.05], [1, 0, 0, 0]) == pytest.approx(0.5 * 0.45 + 0.5 * 0.05)


def test_packed_scores_equal_scores_one_by_one(tiny):
    tokenizer = load_tokenizer(tiny)
    model = RewardModel(load_trunk(tiny, "fp32")).eval()
    torch.manual_seed(0)
    torch.nn.init.normal_(model.head.weight)
    scorer = Scorer(model, tokenizer, {"split": "line", "target": "process"})
    prompts = [
        tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("Q: 3+4?", "Question", "q")
    ]
    outputs = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("3+4\n=7\n7", "x", "a\nb")]
    together = score_steps(scorer, prompts, outputs)
    alone = [score_steps(scorer, [p], [o])[0] for p, o in zip(prompts, outputs, strict=True)]
    assert [[end for end, _ in row] for row in together] == [[3, 6, 7], [0], [1, 2]]
    for row, other in zip(together, alone, strict=True):
        assert [score for _, score in row] == pytest.approx([score for _, score in other], abs=1e-6)


def test_every_epoch_sees_every_example_once_in_a_new_order():
    section = RewardSection(epochs=2, batch=4, seed=3)
    batches = step_batches(10, section)
    order = [index for batch in batches for index in batch]
    assert sorted(order[:10]) == sorted(order[10:]) == list(range(10)) and order[:10] != order[10:]
    assert batches == step_batches(10, section)


def run_stage_program(folder: Path, config: dict) -> subprocess.CompletedProcess:
    inputs = {"parent": folder / "model", "policy": folder / "model", "prompts": folder / "prompts.jsonl"}
    return subprocess.run(
        [sys.executable, "-m", "pipeline.reward", "--instance", "prm", "--config", json.dumps(config)]
        + ["--work", str(folder / "work"), "--output", str(folder / "out/data")]
        + ["--manifest", str(folder / "out/manifest.json")]
        + [word for name, path in inputs.items() for word in ("--input", f"{name}={path}")],
        capture_output=True,
        text=True,
    )


def test_a_reward_model_is_trained_and_resumes_to_the_same_weights(tmp_path):
    save_tiny_model(tmp_path / "model", seed=0)
    rows = [{"id": f"q{n}", "question": f"What is {n}+2?", "answer": str(n + 2)} for n in range(12)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sizes = {"solutions": 4, "completions": 2, "max_tokens": 24, "batch": 8, "context": 128, "label_batch": 5}
    config = {
        **sizes,
        "save_every": 2,
        "learning_rate": 1e-2,
        "precision": "fp32",
        "held_out": 0.3,
        "suffix": {},
    }
    done = run_stage_program(tmp_path, config)
    assert done.returncode == 0, done.stderr
    data = tmp_path / "out/data"
    metrics = json.loads((data / "metrics.json").read_text())
    assert {"accuracy", "calibration_error", "best_of_n", "maj@n", "pass@n"} <= set(metrics)
    losses = [json.loads(line)["loss"] for line in (data / "metrics.jsonl").read_text().splitlines()]
    assert len(losses) >= 3 and losses[0] == pytest.approx(0.6931, abs=1e-3) and losses[-1] < losses[0]
    labels = [json.loads(line) for line in (data / "labels.jsonl").read_text().splitlines()]
    assert all(len(row["steps"]) == len(row["hard"]) == len(row["ends"]) for row in labels)
    counters = json.loads((tmp_path / "out/run.json").read_text())["counters"]
    assert counters["vllm.requests"] > 48 and counters["deepspeed.steps"] == len(losses)
    scorer = load_reward_model(data)
    assert len(score_steps(scorer, [[5, 6]], [labels[0]["tokens"]])[0]) == len(labels[0]["steps"])
    with pytest.raises(InputError, match="not a reward model"):
        load_reward_model(tmp_path / "model")

    weights = {
        name: (data / name).read_bytes()
        for name in ("model.safetensors", "head.safetensors", "metrics.jsonl")
    }
    shutil.rmtree(max((tmp_path / "work/checkpoints").glob("step-*")))  # killed before the last checkpoint
    done = run_stage_program(tmp_path, config)
    assert done.returncode == 0, done.stderr
    assert "vllm.requests" not in json.loads((tmp_path / "out/run.json").read_text())["counters"]
    assert weights == {name: (data / name).read_bytes() for name in weights}
