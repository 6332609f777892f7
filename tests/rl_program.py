"""Runs the RL program on a tiny model that answers questions with a digit, or with a program."""

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import Popen
from typing import Any

import programs
import pytest
import torch
from given.lines import read_lines, write_lines
from safetensors.torch import load_file
from tiny_model import save_tiny_model
from warm import Program

from pipeline.rl.rollout import read_groups

BOX, PRINT = ("\\boxed{%s}",), ("\nprint(%s)",)  # a program does not begin with a space
CALL = ("```python\nprint(%s)\n```\n```output", "\n%s\n```", "\n\\boxed{%s}")  # the second part by the tool
# Each as one token, so that a word of a call follows from the one before it alone.
CALL_WORDS = ("```python\nprint(", ")\n```\n", "```output", *(f"\n\\boxed{{{digit}}}" for digit in range(10)))
SECTION = {
    "steps": 4,
    "questions_per_step": 3,  # two ranks divide neither the questions nor the outputs
    "group_size": 15,
    "max_tokens": 12,
    "learning_rate": 3e-4,
    "kl_coefficient": 0.04,
    "rewards": {"accuracy": 1.0},
    "precision": "fp32",
    "row_tokens": 512,
    "suffix": {},
    "evaluate_every": 2,
    "evaluation_questions": 8,
    "save_every": 1,
    "seed": 5,
}


def question(number: int) -> dict[str, str]:
    """A question of more than 200 characters, each a token of the tiny model; its last digit answers."""
    return {
        "id": f"q{number}",
        "question": f"{number:02d} " + "and so on " * 20 + str(number % 10),
        "answer": str(number % 10),
    }


def save_policy(
    folder: Path, answer: Sequence[str] = BOX, values: str = "0123456789", words: Sequence[str] = ()
) -> Path:
    """Write a model that has learnt to answer with one of these values, all equally likely. Every second
    part of an answer is a tool's, which the model reads only; `words` are tokens of their own.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    save_tiny_model(folder, seed=0, spread=0.02, words=words)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    lengths = [len(tokenizer.tokenize(part.replace("%s", "0"))) for part in answer]
    owners = [place % 2 for place, length in enumerate(lengths) for _ in range(length)]
    told = torch.tensor([0, *owners, 0], dtype=torch.bool)  # neither the space before it nor the end after it
    torch.manual_seed(0)
    for _ in range(60):
        texts = [
            f"<s>User: {question(number)['question']}\n\nAssistant: "
            f"{''.join(answer).replace('%s', values[place])}</s>"
            for number, place in zip(
                torch.randint(10, 20, (16,)), torch.randint(len(values), (16,)), strict=True
            )
        ]
        tokens = tokenizer(texts, return_tensors="pt", add_special_tokens=False).input_ids
        labels = tokens.clone()
        labels[:, : -len(told)] = -100
        labels[:, -len(told) :][:, told] = -100
        loss = model(tokens, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.generation_config.eos_token_id = [2, 3]  # published models often have two
    model.save_pretrained(folder)
    return folder


def start(
    policy: Path,
    folder: Path,
    changes: dict[str, Any] | None = None,
    launch: Any = None,
    dies_at: Sequence[str] = (),
    **more_inputs: Any,
) -> Popen | Program:
    """Start the program in `folder`; see `programs.start`."""
    folder.mkdir(parents=True, exist_ok=True)
    prompts = write_lines(folder / "prompts.jsonl", map(question, range(20)))
    section = SECTION | {"prompts": "prompts.jsonl", "evaluation": "prompts.jsonl"} | (changes or {})
    inputs = {"parent": policy, "prompts": prompts, "evaluation": prompts} | more_inputs
    launch = {"micro_batch": 4, "zero_stage": 2} | (launch or {})
    return programs.start("rl", folder, section, launch, inputs, dies_at)


def drawn(folder: Path, step: int) -> list[tuple[str, list[tuple[int, list[int]]]]]:
    """Id of each question of a step, and seed and tokens of each output."""
    groups = read_groups(folder / f"data/rollouts/step-{step:05d}.jsonl.zst")
    return [(group.id, [(output.seed, output.tokens) for output in group.outputs]) for group in groups]


def send_when_saved(process: Popen | Program, number: int, folder: Path, step: int) -> None:
    """Send a signal as soon as the run has a checkpoint of that step and works on the next one."""
    deadline = time.monotonic() + 240
    rolled_out = f"work/rollouts/step-{step + 1:05d}*"
    while not list(folder.glob(rolled_out)) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)


def kill_when_saved(process: Popen | Program, folder: Path, step: int) -> None:
    """Kill a run that has a checkpoint of that step, and lose what it sampled for the next one."""
    send_when_saved(process, signal.SIGKILL, folder, step)
    assert process.wait(60) == -signal.SIGKILL, "the run ended before it could be killed"
    for recorded in (folder / "work/rollouts").glob(f"step-{step + 1:05d}*"):
        recorded.unlink()  # sampled again, not read again


def assert_same_weights(one: Path, other: Path, within: float = 0.0) -> None:
    """The published models' weights differ by no more than `within`."""
    weights, others = (load_file(folder / "data/model.safetensors") for folder in (one, other))
    assert weights.keys() == others.keys()
    assert all(torch.allclose(weights[name], others[name], rtol=0, atol=within) for name in weights)


def assert_same_course(one: Path, other: Path) -> None:
    """To rounding, the same metrics of each step, and the same outputs of the first."""
    logs = [read_lines(folder / "data/metrics.jsonl") for folder in (one, other)]
    for row, same in zip(*logs, strict=True):
        assert same["logprob_gap_max"] <= 5e-5
        for name in ("loss", "grad_norm", "accuracy", "length", "sampled_tokens"):
            assert same[name] == pytest.approx(row[name], abs=1e-6), name
    assert drawn(other, 1) == drawn(one, 1)
