"""Reward models: packed scores, measures, training, exact resume."""

import itertools
import json
import shutil
import signal
import time
from pathlib import Path
from statistics import fmean
from subprocess import Popen

import pytest
import torch
from given.lines import read_lines, write_lines
from programs import finished, start
from tiny_model import save_tiny_model

from pipeline.config.reward import RewardSection
from pipeline.core.stage import InputError
from pipeline.reward.__main__ import check_continues
from pipeline.reward.measure import best_of_n, calibration, calibration_error
from pipeline.reward.model import RewardModel, StepScorer, load_reward_model, load_trunk, score_steps
from pipeline.reward.train import step_batches
from pipeline.rl.rollout import read_groups
from pipeline.training.tokenizer import load_tokenizer

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny"), seed=0)


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
    assert calibration_error(calibration([0.25, 0.25, 0.25, 0.25], [1, 0, 0, 0])) == 0.0
    bins = calibration([0.95, 0.95, 0.05, 0.05], [1, 0, 0, 0])
    assert [(row["from"], row["steps"], row["predicted"], row["true"]) for row in bins] == [
        (0.0, 2, pytest.approx(0.05), 0.0),
        (0.9, 2, pytest.approx(0.95), 0.5),
    ]
    assert calibration_error(bins) == pytest.approx(0.5 * 0.45 + 0.5 * 0.05)


def test_packed_scores_equal_scores_one_by_one(tiny):
    tokenizer = load_tokenizer(tiny)
    model = RewardModel(load_trunk(tiny, "fp32")).eval()
    torch.manual_seed(0)
    torch.nn.init.normal_(model.head.weight)
    scorer = StepScorer(model, tokenizer, {"target": "process"})
    prompts = [
        tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("Q: 3+4?", "Question", "q")
    ]
    outputs = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("3+4\n=7\n7", "x", "a\nb")]
    together = score_steps(scorer, prompts, outputs)
    alone = [score_steps(scorer, [p], [o])[0] for p, o in zip(prompts, outputs, strict=True)]
    assert [[end for end, _ in row] for row in together] == [[3, 6, 7], [0], [1, 2]]
    for row, other in zip(together, alone, strict=True):
        assert [score for _, score in row] == pytest.approx([score for _, score in other], abs=1e-6)


def test_every_epoch_visits_every_example_once_in_a_new_order():
    section = RewardSection(epochs=2, batch=4, seed=3)
    batches = step_batches(10, section)
    order = [index for batch in batches for index in batch]
    assert sorted(order[:10]) == sorted(order[10:]) == list(range(10)) and order[:10] != order[10:]
    assert batches == step_batches(10, section)


SECTION = {"solutions": 4, "completions": 2, "max_tokens": 24, "batch": 8, "context": 128, "label_batch": 5}
SECTION |= {"learning_rate": 1e-3, "precision": "fp32", "held_out": 0.3, "suffix": {}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A tiny model, questions, and a reward model of a first round in `first/data`."""
    folder = tmp_path_factory.mktemp("reward")
    save_tiny_model(folder / "model", seed=0)
    rows = [{"id": f"q{n}", "question": f"What is {n}+2?", "answer": str(n + 2)} for n in range(12)]
    write_lines(folder / "prompts.jsonl", rows)
    finished(label_and_train(folder, "first"))
    return folder


def label_and_train(
    folder: Path, name: str, launch: dict | None = None, parent: str = "model", **keys: object
) -> Popen:
    """Start the program in `<folder>/<name>`."""
    inputs = {"parent": parent, "policy": "model", "prompts": "prompts.jsonl"}
    if parent != "model":
        inputs["history"] = f"{parent}/labels.jsonl"
    paths = {key: folder / path for key, path in inputs.items()}
    return start("reward", folder / name, SECTION | keys, launch, paths)


def kill_when(process: Popen, folder: Path, pattern: str) -> None:
    """Kill the process as soon as a file or folder of that name is there."""
    while process.poll() is None and not list(folder.glob(pattern)):
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def test_a_reward_model_learns_its_labels_and_is_measured(folder):
    data = folder / "first/data"
    metrics = json.loads((data / "metrics.json").read_text())
    assert {"accuracy", "calibration", "calibration_error", "best_of_n", "maj@n", "pass@n"} <= set(metrics)
    assert sum(row["steps"] for row in metrics["calibration"]) == metrics["steps"]
    losses = [row["loss"] for row in read_lines(data / "metrics.jsonl")]
    assert len(losses) >= 3 and losses[0] == pytest.approx(0.6931, abs=1e-3) and losses[-1] < losses[0]
    rows = read_lines(data / "labels.jsonl")
    assert all(len(row["steps"]) == len(row["hard"]) == len(row["ends"]) for row in rows)
    counters = json.loads((folder / "first/run.json").read_text())["counters"]
    assert counters["vllm.requests"] > 48 and counters["deepspeed.steps"] == len(losses)
    scorer = load_reward_model(data)
    assert len(score_steps(scorer, [[5, 6]], [rows[0]["tokens"]])[0]) == len(rows[0]["steps"])
    with pytest.raises(InputError, match="not a reward model"):
        load_reward_model(folder / "model")


def test_a_run_killed_while_labelling_and_training_ends_with_the_same_labels_and_weights(folder):
    work = folder / "killed/work"
    kill_when(label_and_train(folder, "killed"), work, "labels/*.jsonl")
    kill_when(label_and_train(folder, "killed"), work, "checkpoints/step-*")
    first = {path.name: path.stat().st_mtime_ns for path in (work / "labels").iterdir()}
    finished(label_and_train(folder, "killed"))
    counters = json.loads((folder / "killed/run.json").read_text())["counters"]
    whole = len(read_lines(folder / "first/data/metrics.jsonl"))
    assert "vllm.requests" not in counters and 0 < counters["deepspeed.steps"] < whole
    assert first == {path.name: path.stat().st_mtime_ns for path in (work / "labels").iterdir()}
    for name in ("model.safetensors", "head.safetensors", "labels.jsonl", "metrics.jsonl", "metrics.json"):
        there, here = (folder / run / "data" / name for run in ("first", "killed"))
        assert there.read_bytes() == here.read_bytes(), name


def test_ranks_zero_stage_micro_batch_and_recomputation_do_not_change_the_trajectory(folder):
    """One batch of labels is sampled again, by one rank; vLLM makes groups of both when it starts."""
    first, two = (folder / run / "work" / "labels" for run in ("first", "two"))
    shutil.copytree(first, two)
    min(two.iterdir()).unlink()
    launch = {"ranks": 2, "zero_stage": 3, "micro_batch": 1, "activation_checkpointing": True}
    finished(label_and_train(folder, "two", launch))
    one, two = (read_lines(folder / run / "data/metrics.jsonl") for run in ("first", "two"))
    for name in ("loss", "grad_norm", "lr"):
        assert [row[name] for row in two] == pytest.approx([row[name] for row in one], rel=1e-6), name
    one, two = (json.loads((folder / run / "data/metrics.json").read_text()) for run in ("first", "two"))
    assert one["best_of_n"] == pytest.approx(two["best_of_n"]) and one["steps"] == two["steps"]
    assert one["calibration_error"] == pytest.approx(two["calibration_error"], abs=1e-4)
    assert (folder / "first/data/labels.jsonl").read_bytes() == (
        folder / "two/data/labels.jsonl"
    ).read_bytes()


def test_the_next_round_continues_the_model_with_a_tenth_of_the_earlier_labels(folder):
    finished(label_and_train(folder, "second", parent="first/data", seed=1))
    counts = json.loads((folder / "second/manifest.json").read_text())["counts"]
    assert counts["replayed_solutions"] == round(0.1 * counts["training_solutions"]) > 0
    second, first = (read_lines(folder / run / "data/labels.jsonl") for run in ("second", "first"))
    drawn = read_lines(folder / "second/data/replay.jsonl")
    assert len(drawn) == counts["replayed_solutions"] and all(row in first for row in drawn)
    assert not [row for row in drawn if row in second]
    metrics = json.loads((folder / "second/data/metrics.json").read_text())
    assert metrics["before"]["steps"] == metrics["steps"]
    assert metrics["before"]["calibration"] != metrics["calibration"]
    with pytest.raises(InputError, match="reward.target is outcome, but .* has process"):
        check_continues(str(folder / "first/data"), RewardSection(target="outcome"))


def test_a_policy_learns_from_a_process_reward_model(folder):
    section = {"steps": 2, "questions_per_step": 2, "group_size": 4, "max_tokens": 16, "row_tokens": 256}
    section |= {"supervision": "process", "rewards": {"accuracy": 0, "model": 1}, "suffix": {}}
    section |= {"precision": "fp32", "learning_rate": 1e-3}
    names = {"parent": "model", "reward_model": "first/data", "prompts": "prompts.jsonl"}
    inputs = {key: folder / path for key, path in names.items()}
    finished(start("rl", folder / "grpo", section, None, inputs))
    steps = read_lines(folder / "grpo/data/metrics.jsonl")
    assert len(steps) == 2 and all(0 < row["reward"] < 1 for row in steps)  # probabilities, not verdicts
    scorer = load_reward_model(folder / "first/data")
    for group in read_groups(folder / "grpo/data/rollouts/step-00001.jsonl.zst"):
        for output in group.outputs:
            (scored,) = score_steps(scorer, [group.prompt], [output.tokens])
            assert output.reward == pytest.approx(min((score for _, score in scored), default=0.0), abs=1e-5)
