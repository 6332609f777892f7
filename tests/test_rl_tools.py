"""Rollouts of words and programs in turn: a run that is killed between a program and the words that follow on
its output ends with the same bytes.
"""

import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import WEAK
from given.lines import read_lines
from killing import bytes_of
from programs import finished
from rl_program import CALL, CALL_WORDS, question, save_policy, start

from pipeline.rl.rollout import Group, read_groups
from pipeline.training.tokenizer import load_tokenizer

STEPS = 3
CHANGES = {"mode": "tool", "steps": STEPS, "max_tokens": 24}
CALLED = re.compile(r" ```python\nprint\((\d)\)\n```\n```output\n(\d)\n```")
# An exploration samples twice: up to a program's output, and on from there; so does an evaluation. Evaluated
# before steps 1 and 3, a run has sampled four times for steps 1 and 2, four times for evaluations, and once
# for step 3, of which the programs have run.
BETWEEN = ("9", "pipeline.training.generation:Generator.generate")


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that opens the fence of a program's output, whatever the question."""
    from transformers import AutoModelForCausalLM

    folder = save_policy(tmp_path_factory.mktemp("policy"), CALL, words=CALL_WORDS)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), load_tokenizer(folder)
    texts = [f"<s>User: {question(number)['question']}\n\nAssistant:" for number in range(20)]
    prompts = tokenizer(texts, return_tensors="pt", add_special_tokens=False).input_ids
    with torch.no_grad():
        written = model.generate(prompts, max_new_tokens=5, do_sample=False)[:, prompts.shape[1] :]
    assert all(re.fullmatch(r" ```python\nprint\(\d\)\n```\n```output", tokenizer.decode(w)) for w in written)
    return folder


def without_times(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if not name.endswith(("_seconds", "_per_second"))}
        for row in log
    ]


def without_clocks(files: dict[str, bytes]) -> dict[str, bytes]:
    """All files but those that name times."""
    return {name: found for name, found in files.items() if not name.startswith(("metrics.", "tensorboard/"))}


def groups_of(folder: Path) -> list[Group]:
    return [
        group
        for step in range(1, STEPS + 1)
        for group in read_groups(folder / f"data/rollouts/step-{step:05d}.jsonl.zst")
    ]


def check_calls(groups: list[Group], tokenizer: Any) -> None:
    """In each step most outputs called the tool, and go on after what the program printed."""
    for step in range(1, STEPS + 1):
        outputs = [output for group in groups if group.step == step for output in group.outputs]
        calls = [(called, one) for one in outputs if one.tool_spans and (called := CALLED.match(one.text))]
        assert len(outputs) == 45 and len(calls) > 25, step
        for called, output in calls:
            (first, end), *_ = output.tool_spans
            assert called[1] == called[2]  # the policy itself would have written another digit
            assert tokenizer.decode(output.tokens[first:end]) == f"\n{called[1]}\n```"
            assert len(output.tokens) > end


@pytest.mark.slow
def test_a_run_killed_between_a_program_and_the_words_after_it_ends_with_the_same_bytes(
    policy: Path, tmp_path: Path
) -> None:
    launch, (whole, killed) = {"weak_sandbox": WEAK}, (tmp_path / name for name in ("whole", "killed"))
    finished(start(policy, whole, CHANGES, launch))
    assert start(policy, killed, CHANGES, launch, BETWEEN).wait(600) == -signal.SIGKILL
    recorded = {path.name[:10] for path in (killed / "work/rollouts").iterdir()}
    assert recorded == {"step-00001", "step-00002"}  # so it was killed while it sampled for step 3
    assert [row["step"] for row in read_lines(killed / "work/evaluation.jsonl")] == [0, 2]
    assert list((killed / "work").glob("**/step-0000001/checkpoint.json")) and not (killed / "data").exists()
    finished(start(policy, killed, CHANGES, launch))

    logs = [read_lines(folder / "data/metrics.jsonl") for folder in (whole, killed)]
    assert without_times(logs[0]) == without_times(logs[1])
    assert any(0 < row["accuracy"] < 1 and row["grad_norm"] > 0 for row in logs[0])  # the weights have moved
    files, same = (without_clocks(bytes_of(folder / "data")) for folder in (whole, killed))
    assert {"model.safetensors", "samples.jsonl", "rollouts/step-00003.jsonl.zst"} <= files.keys()
    assert [name for name in files | same if files.get(name) != same.get(name)] == []
    tokenizer = load_tokenizer(policy)
    for folder in (whole, killed):
        check_calls(groups_of(folder), tokenizer)
