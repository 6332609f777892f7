"""The RL program on a tiny model: exact resume after a kill, sampler and policy in step, published files."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from given.lines import read_lines, write_lines
from programs import HANGS, finished
from rl_program import (
    assert_same_course,
    assert_same_weights,
    drawn,
    kill_when_saved,
    question,
    save_policy,
    send_when_saved,
    start,
)
from safetensors.torch import load_file
from tiny_model import log_probs

from pipeline.config.rl import RlSection
from pipeline.core.stage import InputError, Stage
from pipeline.rl.rollout import read_groups, write_groups


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def undisturbed(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    finished(start(policy, folder))
    return folder


def test_sampler_and_policy_agree_after_every_sync(undisturbed: Path) -> None:
    log = read_lines(undisturbed / "data/metrics.jsonl")
    assert [row["weight_version"] for row in log] == [0, 1, 2, 3]
    assert all(row["logprob_gap_max"] <= 5e-5 and row["grad_norm"] > 0 for row in log)
    assert all(0 <= row[name] < 1e-7 for row in log for name in ("sampler_kl", "trainer_kl"))
    assert log[0]["kl"] == pytest.approx(0, abs=1e-9) and log[-1]["kl"] > 1e-6


def test_the_published_model_is_the_trained_one_and_every_rollout_is_kept(
    undisturbed: Path, policy: Path
) -> None:
    from transformers import AutoModelForCausalLM

    assert [row["step"] for row in read_lines(undisturbed / "data/evaluation.jsonl")] == [0, 2, 4]
    before, after = (load_file(path / "model.safetensors") for path in (policy, undisturbed / "data"))
    assert not torch.equal(before["model.norm.weight"], after["model.norm.weight"])
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)
    groups = read_groups(undisturbed / "data/rollouts/step-00001.jsonl.zst")
    assert len(groups) == 3 and all(len(group.outputs) == 15 for group in groups)
    for group in groups:
        for output in group.outputs[:2]:
            assert len(group.prompt) > 200
            gap = log_probs(model, group.prompt, output.tokens) - torch.tensor(output.logprobs)
            assert gap.abs().max() <= 5e-5
            parts = output.rewards
            assert parts["accuracy"] == float(output.verdict == "right")
            assert output.reward == parts["accuracy"]


def test_a_run_killed_in_the_middle_ends_with_the_same_weights(
    undisturbed: Path, policy: Path, tmp_path: Path
) -> None:
    signalled = start(policy, tmp_path)
    send_when_saved(signalled, signal.SIGTERM, tmp_path, step=1)
    _, errors = signalled.communicate()
    assert signalled.returncode == 85 and "SIGTERM; state saved, run me again" in errors
    assert not (tmp_path / "work/checkpoints/step-0000003").exists()
    process = start(policy, tmp_path)
    kill_when_saved(process, tmp_path, step=2)
    assert not (tmp_path / "data").exists()
    assert [row["step"] for row in read_lines(tmp_path / "work/metrics.jsonl")] == [1, 2]
    os.truncate(tmp_path / "work/rollouts/step-00001.jsonl.zst", 100)  # put together from the ranks' files
    finished(start(policy, tmp_path))
    assert_same_weights(undisturbed, tmp_path)
    for step in range(1, 5):
        name = f"data/rollouts/step-{step:05d}.jsonl.zst"
        assert read_groups(undisturbed / name) == read_groups(tmp_path / name)
    for name in ("evaluation.jsonl", "samples.jsonl"):
        assert read_lines(undisturbed / "data" / name) == read_lines(tmp_path / "data" / name)
    rows, whole = (read_lines(folder / "data/metrics.jsonl") for folder in (tmp_path, undisturbed))
    assert [(row["step"], row["loss"], row["reward"]) for row in rows] == [
        (row["step"], row["loss"], row["reward"]) for row in whole
    ]
    for sample in read_lines(tmp_path / "data/samples.jsonl")[0]["samples"]:
        assert {"question", "reference", "text", "reward", "verdict", "reason"} <= sample.keys()


def test_the_weights_of_the_best_evaluation_are_kept_over_a_kill(policy: Path, tmp_path: Path) -> None:
    changes = {"learning_rate": 0.1, "kl_coefficient": 0, "evaluate_every": 1}  # it only gets worse
    kill_when_saved(start(policy, tmp_path, changes=changes), tmp_path, step=2)
    finished(start(policy, tmp_path, changes=changes))
    assert json.loads((tmp_path / "manifest.json").read_text())["counts"]["best_step"] == 0
    weights, best = (load_file(path / "model.safetensors") for path in (policy, tmp_path / "data/best"))
    assert all(torch.equal(weight, best[name]) for name, weight in weights.items())


def disturb(folder: Path, step: int) -> None:
    """Let the recorded rollouts of a step look as if they were sampled from other weights."""
    for path in (folder / "work/rollouts").glob(f"step-{step:05d}*"):
        groups = read_groups(path)
        for output in (output for group in groups for output in group.outputs):
            output.logprobs[:] = [logprob - 0.5 for logprob in output.logprobs]
        write_groups(path, groups)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_step_whose_rollouts_are_refused_is_sampled_again_by_the_next_run(
    undisturbed: Path, policy: Path, tmp_path: Path, ranks: int
) -> None:
    process = start(policy, tmp_path, launch={"ranks": ranks})
    recorded = tmp_path / "work/rollouts/step-00002.round-00.rank-0000.jsonl.zst"
    while not recorded.exists():
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    disturb(tmp_path, 2)
    aside = tmp_path / "work/refused"
    for code, tries in ((85, 1), (2, 3)) if ranks == 1 else ((85, 1),):
        if tries == 3:  # as if it had happened twice
            shutil.copy(aside / "step-00002.round-00.rank-0000.try-01.jsonl.zst", recorded)
            shutil.copy(recorded, aside / "step-00002.round-00.rank-0000.try-02.jsonl.zst")
        refused = start(policy, tmp_path, launch={"ranks": ranks})
        _, errors = refused.communicate(timeout=HANGS)
        assert refused.returncode == code and "rl step 2: sampler and policy disagree by" in errors, errors
        names = [path.name for path in aside.glob(f"*.try-{tries:02d}.jsonl.zst")]
        assert len(names) == ranks + 1 and not recorded.exists()
    finished(start(policy, tmp_path, launch={"ranks": ranks}))
    assert_same_weights(undisturbed, tmp_path, within=1e-5)
    assert drawn(tmp_path, 2) == drawn(undisturbed, 2)


def test_two_ranks_that_divide_neither_questions_nor_outputs_do_what_one_does(
    undisturbed: Path, policy: Path, tmp_path: Path
) -> None:
    finished(start(policy, tmp_path, launch={"ranks": 2, "zero_stage": 3, "frozen": "split"}))
    for folder in (undisturbed, tmp_path):
        settings = json.loads((folder / "data/generation_config.json").read_text())
        assert settings["eos_token_id"] == [2, 3]
    assert_same_weights(undisturbed, tmp_path, within=1e-5)
    assert_same_course(undisturbed, tmp_path)
    kls = [[row["kl"] for row in read_lines(x / "data/metrics.jsonl")] for x in (undisturbed, tmp_path)]
    assert kls[1] == pytest.approx(kls[0], rel=1e-2, abs=1e-9)  # of the split reference
    assert [len(outputs) for _, outputs in drawn(tmp_path, 1)] == [15, 15, 15]


@pytest.mark.slurm
def test_ranks_that_share_a_sampler_do_what_one_does_and_resume_exactly(
    undisturbed: Path, policy: Path, tmp_path: Path
) -> None:
    """Tensor parallelism of two: the weights of the sampler are split between the ranks."""
    split = {"ranks": 2, "tensor_parallel": 2}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finished(start(policy, whole, launch=split))
    assert_same_course(undisturbed, whole)
    scores = [read_lines(folder / "data/evaluation.jsonl") for folder in (undisturbed, whole)]
    assert [row["step"] for row in scores[0]] == [0, 2, 4] and scores[0] == scores[1]

    process = start(policy, killed, launch=split)
    kill_when_saved(process, killed, step=2)
    finished(start(policy, killed, launch=split))
    assert_same_weights(whole, killed)
    assert scores[1] == read_lines(killed / "data/evaluation.jsonl")


def test_ranks_that_do_not_divide_preference_pairs_do_what_one_does(policy: Path, tmp_path: Path) -> None:
    changes = {"method": "dpo", "group_size": 5, "steps": 2, "evaluation": None}
    for ranks in (1, 2):
        finished(start(policy, tmp_path / str(ranks), changes, {"ranks": ranks}))
    one, two = (tmp_path / name / "data" for name in "12")
    for row, other in zip(read_lines(one / "metrics.jsonl"), read_lines(two / "metrics.jsonl"), strict=True):
        for name in ("loss", "grad_norm", "accuracy", "length", "sampled_tokens"):
            assert other[name] == pytest.approx(row[name], abs=1e-6), name
    for step in (1, 2):
        assert drawn(tmp_path / "1", step) == drawn(tmp_path / "2", step)
    assert_same_weights(tmp_path / "1", tmp_path / "2", within=1e-5)


def test_training_on_recorded_rollouts_needs_no_sampler_and_gives_the_same_weights(
    undisturbed: Path, policy: Path, tmp_path: Path
) -> None:
    changes = {"evaluation": None, "rollouts": "recorded"}
    finished(start(policy, tmp_path, changes=changes, rollouts=undisturbed / "data/rollouts"))
    assert_same_weights(undisturbed, tmp_path)
    assert "vllm.tokens" not in json.loads((tmp_path / "run.json").read_text())["counters"]


def test_a_reward_of_the_user_is_trained_on(policy: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def even(item, text):\n    return any(digit in text for digit in '02468')\n")
    functions = {f"{file}:even": 1.0}
    rewards = {"accuracy": 0.0, "functions": functions}
    changes = {"steps": 1, "evaluation": None, "rewards": rewards}
    finished(start(policy, tmp_path, changes=changes, reward=file))
    (row,) = read_lines(tmp_path / "data/metrics.jsonl")
    assert row["reward"] == row["reward_even"] != row["accuracy"] and row["grad_norm"] > 0
    for group in read_groups(tmp_path / "data/rollouts/step-00001.jsonl.zst"):
        for output in group.outputs:
            assert output.reward == any(digit in output.text for digit in "02468")


@pytest.fixture(scope="module")
def reward_model(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A process reward model with a random head: scores that differ from step to step."""
    from transformers import AutoTokenizer

    from pipeline.reward.model import RewardModel, load_trunk, save_reward_model

    torch.manual_seed(1)
    model = RewardModel(load_trunk(policy, "fp32"))
    torch.nn.init.normal_(model.head.weight)
    folder = tmp_path_factory.mktemp("prm")
    settings = {"target": "process", "labels": "hard", "suffix": {}}
    tokenizer = AutoTokenizer.from_pretrained(policy)
    save_reward_model(folder, model, model.state_dict(), tokenizer, settings)
    return folder


def test_process_supervision_with_replaced_groups_and_votes_in_training_on_two_files(
    policy: Path, reward_model: Path, tmp_path: Path
) -> None:
    asked = [tmp_path / "few.jsonl", tmp_path / "many.test.jsonl"]
    for path, numbers in zip(asked, (range(30, 32), range(40, 50)), strict=True):
        write_lines(path, map(question, numbers))
    changes = {
        "supervision": "process",
        "rewards": {"accuracy": 1.0, "model": 0.5},
        "rounds": 2,
        "steps": 20,
        "token_budget": 500,
        "iteration": 2,
    }
    finished(start(policy, tmp_path, changes=changes, reward_model=reward_model, evaluation=asked))
    log, votes = (read_lines(tmp_path / f"data/{name}.jsonl") for name in ("metrics", "evaluation"))
    assert sum(row["sampled_tokens"] for row in log[:-1]) < 500 <= sum(row["sampled_tokens"] for row in log)
    assert all(0 < row["reward_model"] < 1 and row["logprob_gap_max"] <= 5e-5 for row in log)
    for row in votes:
        of = row["accuracy_of"]  # evaluation_questions are 8: 2 of the first file and 6 of the second
        assert set(of) == {"few", "many"} and 2 * of["few"] + 6 * of["many"] == pytest.approx(
            8 * row["accuracy"]
        )
    first = list(read_groups(tmp_path / "data/rollouts/step-00001.jsonl.zst"))
    counts = [len(output.step_rewards) for group in first for output in group.outputs]
    assert log[0]["solution_steps"] == pytest.approx(sum(counts) / len(counts))
    for group in first:
        for output in group.outputs:
            assert output.step_ends[-1] == len(output.tokens) - 1
            expected = 0.5 * output.rewards["model"] + output.rewards["accuracy"]
            assert len(output.step_rewards) > 1 or output.step_rewards[0] == pytest.approx(expected)


def scorer_of(folder: Path, supervision: str, model: float, **inputs: Path) -> Any:
    """The reward model that the stage of a section loads."""
    from pipeline.rl.__main__ import load_scorer

    section = RlSection(precision="fp32", supervision=supervision, rewards={"model": model})
    named = {name: [str(path)] for name, path in inputs.items()}
    return load_scorer(Stage("rl", "x", section, "", named, folder, folder, folder, {}), "cpu")


def changed_file(folder: Path, target: Path, file: str, change: Callable[[Any], None]) -> Path:
    """A copy of a model with another content of a file of JSON."""
    shutil.copytree(folder, target)
    content = json.loads((target / file).read_text())
    change(content)
    (target / file).write_text(json.dumps(content))
    return target


def exchange_two_tokens(tokenizer: Any) -> None:
    vocabulary = tokenizer["model"]["vocab"]
    (one, first), (two, second) = list(vocabulary.items())[-2:]
    vocabulary |= {one: second, two: first}


def test_a_reward_model_that_does_not_fit_is_named(policy: Path, reward_model: Path, tmp_path: Path) -> None:
    assert scorer_of(tmp_path, "process", 1.0, reward_model=reward_model, parent=policy) is not None
    outcome = changed_file(
        reward_model, tmp_path / "outcome", "reward.json", lambda found: found.update(target="outcome")
    )
    other = changed_file(reward_model, tmp_path / "other", "tokenizer.json", exchange_two_tokens)
    for supervision, weight, inputs, message in (
        ("process", 0.0, {}, "the weight of its scores, is 0"),
        ("process", 1.0, {}, "names no reward_model"),
        ("process", 1.0, {"reward_model": outcome}, "an outcome reward model, but rl.supervision is process"),
        ("outcome", 1.0, {"reward_model": other, "parent": policy}, "vocabulary is not that of"),
    ):
        with pytest.raises(InputError, match=message):
            scorer_of(tmp_path, supervision, weight, **inputs)


def test_too_few_questions_are_named() -> None:
    from pipeline.rl.__main__ import check_batch

    check_batch(8, 20, 100)
    with pytest.raises(InputError, match="rl.questions_per_step is 64, but prompts has 20 questions"):
        check_batch(64, 20, 100)
