"""Reward models: steps, labels from a scripted completer, packed scores, measures, exact resume."""

import itertools
import json
import shutil
import signal
import time
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from subprocess import Popen
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import zstandard
from programs import ENVIRONMENT, finished, start
from tiny_model import save_tiny_model
from warm import Program

from pipeline.common.errors import Interrupted
from pipeline.common.model import load_tokenizer
from pipeline.common.stage import InputError, Stage
from pipeline.config.reward import RewardSection
from pipeline.evaluate.benchmarks import Item
from pipeline.reward.__main__ import check_continues
from pipeline.reward.labels import Labeller, Solution, SolutionSampler
from pipeline.reward.measure import best_of_n, calibration, calibration_error, reranking
from pipeline.reward.model import RewardModel, StepScorer, load_reward_model, load_trunk, score_steps
from pipeline.reward.replay import identity, read_labels, replayed
from pipeline.reward.steps import locate_steps, split_steps, step_ends
from pipeline.reward.train import step_batches

ROOT = Path(__file__).resolve().parents[1]


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


@pytest.fixture(scope="module")
def byte_level() -> Any:
    """A byte-level BPE whose merges run over ends of lines; a Chinese character is three of its tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    space, newline = "\u0120", "\u010a"
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [(space, "b"), ("7", newline), (newline, newline), (newline, "c")]
    words = ["</s>", *alphabet, *("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE({word: index for index, word in enumerate(words)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")


@pytest.mark.parametrize(
    ("split", "text", "steps"),
    [
        ("line", "a\n b\nd", ["a\n ", "b\n", "d"]),
        ("line", "a=7\nb=7", ["a=7\n", "b=7"]),
        ("line", "a\n\nd", ["a\n\n", "d"]),
        ("line", "a\ncd", ["a\n", "cd"]),
        ("sentence", "先有3个。再加4个。", ["先有3个。", "再加4个。"]),
        ("sentence", "It is 3. b", ["It is 3. ", "b"]),
    ],
)
def test_each_step_ends_in_its_own_token_whatever_the_tokenizer_merges(byte_level, split, text, steps):
    """A prefix up to a step's end must hold the whole step and nothing of the next one's words."""
    tokens = [*byte_level(text)["input_ids"], byte_level.eos_token_id]
    found = locate_steps(byte_level, tokens, split)
    assert [step for step, _ in found] == steps
    shown, before = 0, ""
    for step, end in found:
        before += step
        prefix = byte_level.decode(tokens[: end + 1])
        assert before.startswith(prefix) and len(prefix) >= len(before.rstrip()), (prefix, before)
        assert end >= shown
        shown = end + 1
    assert found[-1][1] == len(tokens) - 2


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


GOOD, BAD = "3+4=7\n\\boxed{7}", "3+4=8\n\\boxed{8}"
SOLUTIONS = {"Q": [GOOD, GOOD, BAD, "3+4=7\n\\boxed{1}"]}
LABELS = [(2, True, [1, 1], [0.5, 1.0]), (1, False, [0, 0], [0.0, 0.0]), (1, False, [1, 0], [0.5, 0.0])]


def completions(question: str) -> dict[str, list[str]]:
    return {
        f"{question}3+4=7\n": ["\\boxed{7}", "\\boxed{7}", "no box 7", "\\boxed{6}"],
        f"{question}3+4=8\n": ["\\boxed{8}"] * 4,
    }


def scripted(tokenizer, script: dict[str, list[str]]) -> tuple[SolutionSampler, ScriptedEngine]:
    engine = ScriptedEngine(tokenizer, script)
    section = RewardSection(solutions=4, completions=4, max_tokens=40)
    return SolutionSampler(lambda: engine, tokenizer, section, context=100), engine


def labels(labeller: Labeller, tokenizer) -> list[Solution]:
    return labeller.label([Item("q", "3+4?", "7")], [tokenizer("Q", add_special_tokens=False)["input_ids"]])


def test_step_labels_come_from_the_verdicts_on_completions(tiny):
    tokenizer = load_tokenizer(tiny)
    sampler, engine = scripted(tokenizer, SOLUTIONS | completions("Q"))
    prompts = {"q": tokenizer("Q", add_special_tokens=False)["input_ids"]}
    found = labels(Labeller(sampler.section, sampler, sampler, prompts), tokenizer)
    assert [(s.count, s.right, s.hard, s.soft) for s in found] == LABELS
    assert sorted(engine.asked) == ["Q", "Q3+4=7\n", "Q3+4=8\n"]  # equal prefixes once
    ranked = reranking(found, [[0.9, 0.9], [0.2, 0.1], [0.9, 0.3]])
    assert ranked["best_of_n"]["4"] == 1.0 and ranked["maj@n"]["4"] == 1.0 and ranked["pass@n"]["1"] == 0.5


def test_labelling_stops_after_a_batch_on_a_signal_and_goes_on_from_there(tiny, tmp_path, monkeypatch):
    from pipeline.common import ending
    from pipeline.common.training import start_process_group
    from pipeline.reward.__main__ import label_all

    start_process_group()
    tokenizer = load_tokenizer(tiny)
    items = [Item(f"q{number}", "3+4?", "7") for number in range(3)]
    prompts = [tokenizer("Q", add_special_tokens=False)["input_ids"]] * 3
    own = dict(zip((item.id for item in items), prompts, strict=True))
    sampler, engine = scripted(tokenizer, SOLUTIONS | completions("Q"))
    section = RewardSection(**(sampler.section.model_dump() | {"label_batch": 1}))
    stage = Stage("reward", "rm", section, "", {}, tmp_path, tmp_path / "out", tmp_path / "m.json", {})
    labeller = Labeller(section, sampler, sampler, own)
    monkeypatch.setattr(ending, "_received", signals := [])
    grade = labeller._verdicts
    monkeypatch.setattr(labeller, "_verdicts", lambda *words: signals.append(signal.SIGTERM) or grade(*words))
    with pytest.raises(Interrupted, match="reward rm: labelled so far: SIGTERM"):
        label_all(stage, labeller, items, prompts)
    assert engine.asked.count("Q") == 1
    monkeypatch.setattr(labeller, "_verdicts", grade)
    signals.clear()
    assert len(label_all(stage, labeller, items, prompts)) == 3 * len(LABELS)
    assert engine.asked.count("Q") == 3


def test_a_completer_uses_its_own_tokens_and_format(tiny, byte_level):
    tokenizer = load_tokenizer(tiny)
    policy, asked = scripted(tokenizer, SOLUTIONS)
    completer, completed = scripted(byte_level, completions("other: "))
    labeller = Labeller(policy.section, policy, completer, {"q": byte_level("other: ")["input_ids"]})
    found = labels(labeller, tokenizer)
    assert [(s.count, s.right, s.hard, s.soft) for s in found] == LABELS
    assert asked.asked == ["Q"] and sorted(completed.asked) == ["other: 3+4=7\n", "other: 3+4=8\n"]
    assert [tokenizer.decode(s.tokens[: s.ends[0] + 1]) for s in found] == ["3+4=7\n", "3+4=8\n", "3+4=7\n"]


def solution(number: int, question: int = 0) -> Solution:
    words = {"steps": ["x"], "ends": [0], "hard": [1], "soft": [1.0], "extracted": None}
    return Solution(
        f"q{question}", f"{question}?", "7", [question], [number, 5], right=True, count=1, **words
    )


def test_a_tenth_of_the_training_solutions_are_drawn_once_each_from_earlier_rounds(tmp_path):
    def write(name: str, numbers: range) -> str:
        path = tmp_path / name
        path.write_text("".join(json.dumps(asdict(solution(number))) + "\n" for number in numbers))
        return str(path)

    history = read_labels([write("rm-1.jsonl", range(50, 90)), write("rm-0.jsonl", range(70))])
    assert sorted(s.tokens[0] for s in history) == list(range(90))  # of both rounds, the common ones once
    new = [solution(number) for number in range(60, 150)]
    drawn = replayed(new, history, 0.1, seed=3)
    assert len(drawn) == 10 == round(0.1 * (len(new) + len(drawn)))
    together = {identity(s) for s in [*new, *drawn]}
    assert len(together) == 100 and all(s.tokens[0] < 60 for s in drawn)
    assert drawn == replayed(new[::-1], history[::-1], 0.1, seed=3) != replayed(new, history, 0.1, seed=4)
    assert replayed(new, history, 0.0, seed=3) == []
    with pytest.raises(InputError, match="810 earlier solutions .* hold 60 others"):
        replayed(new, history, 0.9, seed=3)
    (tmp_path / "old.jsonl").write_text('{"id": "q"}\n')
    with pytest.raises(InputError, match="old.jsonl: line 1: not a Solution, question: Field required"):
        read_labels([str(tmp_path / "old.jsonl")])


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
    scorer = StepScorer(model, tokenizer, {"split": "line", "target": "process"})
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
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
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


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


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
    losses = [row["loss"] for row in lines(data / "metrics.jsonl")]
    assert len(losses) >= 3 and losses[0] == pytest.approx(0.6931, abs=1e-3) and losses[-1] < losses[0]
    rows = lines(data / "labels.jsonl")
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
    whole = len(lines(folder / "first/data/metrics.jsonl"))
    assert "vllm.requests" not in counters and 0 < counters["deepspeed.steps"] < whole
    assert first == {path.name: path.stat().st_mtime_ns for path in (work / "labels").iterdir()}
    for name in (
        "model.safetensors",
        "head.safetensors",
        "labels.jsonl",
        "metrics.jsonl",
        "metrics.json",
    ):
        there, here = (folder / run / "data" / name for run in ("first", "killed"))
        assert there.read_bytes() == here.read_bytes(), name


def test_ranks_zero_stage_micro_batch_and_recomputation_do_not_change_the_trajectory(folder):
    shutil.copytree(*(folder / run / "work" / "labels" for run in ("first", "two")))
    launch = {"ranks": 2, "zero_stage": 3, "micro_batch": 1, "activation_checkpointing": True}
    finished(label_and_train(folder, "two", launch))
    one, two = (lines(folder / run / "data/metrics.jsonl") for run in ("first", "two"))
    for name in ("loss", "grad_norm", "lr"):
        assert [row[name] for row in two] == pytest.approx([row[name] for row in one], rel=1e-6), name
    assert (folder / "first/data/labels.jsonl").read_bytes() == (
        folder / "two/data/labels.jsonl"
    ).read_bytes()


def test_the_next_round_continues_the_model_with_a_tenth_of_the_earlier_labels(folder):
    finished(label_and_train(folder, "second", parent="first/data", seed=1, temperature=1.5))
    counts = json.loads((folder / "second/manifest.json").read_text())["counts"]
    assert counts["replayed_solutions"] == round(0.1 * counts["training_solutions"]) > 0
    second, first = (lines(folder / run / "data/labels.jsonl") for run in ("second", "first"))
    drawn = lines(folder / "second/data/replay.jsonl")
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
    words = ["--instance", "grpo", "--config", json.dumps(section)]
    for key, path in {"parent": "model", "reward_model": "first/data", "prompts": "prompts.jsonl"}.items():
        words += ["--input", f"{key}={folder / path}"]
    words += ["--work", folder / "grpo/work", "--output", folder / "grpo/data"]
    words += ["--manifest", folder / "grpo/manifest.json"]
    finished(Program("pipeline.rl", words, ENVIRONMENT))
    steps = lines(folder / "grpo/data/metrics.jsonl")
    assert len(steps) == 2 and all(0 < row["reward"] < 1 for row in steps)  # probabilities, not verdicts
    scorer = load_reward_model(folder / "first/data")
    with zstandard.open(folder / "grpo/data/rollouts/step-00001.jsonl.zst", "rt") as file:
        groups = [json.loads(line) for line in file]
    for group in groups:
        for output in group["outputs"]:
            scored = score_steps(scorer, [group["prompt"]], [output["tokens"]])[0]
            lowest = min((score for _, score in scored), default=0.0)
            assert output["reward"] == pytest.approx(lowest, abs=1e-5)
