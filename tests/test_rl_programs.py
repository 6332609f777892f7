"""Rollouts that are programs: run in the sandbox, paid for what they print, the same after a kill."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import Any

import pytest
from conftest import NO_NAMESPACES, WEAK
from given.lines import read_lines
from given.rollouts import group_of, rollout
from programs import finished, words_of
from rl_program import PRINT, kill_when_saved, save_policy, start
from sandbox_attacks import ESCAPES, PROGRAMS, outside, state

from pipeline.config.rl import RewardWeights
from pipeline.config.root import Config
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.interpreter import Interpreter
from pipeline.rl.rewards import Rewarder
from pipeline.rl.rollout import read_groups
from pipeline.rl.watch import nothing_to_learn, summarise
from pipeline.sandbox.pool import NoNamespaces
from workflow.graph import Graph
from workflow.preflight import Machine, missing

SECONDS = 20.0
CHANGES = {"mode": "pal", "steps": 3}
DIGITS, BROKEN = "0123456789", "abcde"  # no program defines these letters


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    found = Interpreter(Counter(), WEAK)
    yield found
    found.close()


def rewards_of(interpreter: Interpreter, texts: list[str], answer: str = "7") -> list[Any]:
    rewarder = Rewarder(RewardWeights(format=0.1), run=lambda found: interpreter.run_answers(found, SECONDS))
    lists = [[[1]] * len(texts), [[5]] * len(texts)]
    return rewarder.score([Item("q", "What?", answer)] * len(texts), *lists, texts, [True] * len(texts))


def test_a_program_is_paid_for_what_it_prints_and_a_failing_one_earns_nothing(
    interpreter: Interpreter,
) -> None:
    texts = {
        "```python\nprint(3 + 4)\n```": ("right", ""),
        "answer = 14 / 2": ("right", ""),
        "```python\ndef solution():\n    return 7\n```": ("right", ""),
        "print(8)": ("wrong", ""),
        "The answer is $\\boxed{7}$.": ("wrong", "program: error"),
        "print(7); 1 / 0": ("wrong", "program: error"),
        "pass": ("wrong", "program: silent"),
        "": ("wrong", "program: none"),
    }
    found = rewards_of(interpreter, list(texts))
    assert [reward.verdict.verdict for reward in found] == [verdict for verdict, _ in texts.values()]
    failed = [text for text, (_, reason) in texts.items() if reason.startswith("program: ")]
    for text, reward in zip(texts, found, strict=True):
        assert reward.parts["accuracy"] == float(reward.verdict.right)
        assert reward.parts["format"] == float(text not in failed)
        if text in failed:
            assert reward.total == 0 and reward.verdict.reason == texts[text][1]


def test_a_program_that_prints_the_question_has_not_worked_it_out(interpreter: Interpreter) -> None:
    rewarder = Rewarder(RewardWeights(), run=lambda texts: interpreter.run_answers(texts, SECONDS))
    item, text = Item("q", "What is 3 + 4?", "7"), 'print("3 + 4")'
    (reward,) = rewarder.score([item], [[1]], [[5]], [text], [True])
    assert reward.parts["accuracy"] == 0 and reward.verdict.reason.startswith("not worked out")
    (held_out,) = rewarder.judge([item], [text])
    assert held_out == item.compare("3 + 4") and held_out.right


def test_an_endless_program_ends_at_its_limit_and_earns_nothing(interpreter: Interpreter) -> None:
    rewarder = Rewarder(RewardWeights(), run=lambda texts: interpreter.run_answers(texts, 1.0))
    text = "print(7, flush=True)\nwhile True: pass"
    (reward,) = rewarder.score([Item("q", "What?", "7")], [[1]], [[5]], [text], [True])
    assert reward.total == 0 and reward.verdict.reason == "program: timeout"


@pytest.mark.skipif(WEAK, reason="this system allows no namespaces")
def test_programs_that_attack_the_sandbox_earn_nothing_and_harm_nothing(
    interpreter: Interpreter, tmp_path: Path
) -> None:
    """Those of the sandbox's own attacks that succeed outside it, and a good program after them."""
    with outside(tmp_path) as targets:
        before = state(tmp_path)
        given = {name for name in targets if name != "call"}
        attacks = [
            ESCAPES[name].format(**targets)
            for name in PROGRAMS["succeed_outside"]
            if {field for _, field, *_ in Formatter().parse(ESCAPES[name]) if field} <= given
        ]
        assert len(attacks) > 15
        found = rewards_of(interpreter, [*attacks, "print(7)"], answer="7")
        assert [reward.parts["accuracy"] for reward in found] == [0.0] * len(attacks) + [1.0]
        assert not [reward for reward in found if reward.verdict.extracted == "ESCAPED"]
        assert state(tmp_path) == before


def test_an_exploration_of_programs_that_print_nothing_says_so(interpreter: Interpreter) -> None:
    rewards = rewards_of(interpreter, ["pass", "what?"])
    outputs = [rollout(found.total, reason=found.verdict.reason) for found in rewards]
    assert summarise([group_of(outputs)], ["accuracy"], programs=True)["programs_failed"] == 1
    line = nothing_to_learn([group_of(outputs)], boxed=True)
    assert "of 2 outputs 2 are no programs that print an answer; fine-tune on programs" in line


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_policy(tmp_path_factory.mktemp("policy"), PRINT, DIGITS + BROKEN)


def test_a_run_killed_in_its_program_rollouts_ends_with_the_same_bytes(policy: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    launch = {"weak_sandbox": WEAK}
    finished(start(policy, whole, CHANGES, launch))
    log = read_lines(whole / "data/metrics.jsonl")
    assert all(0 < row["programs_failed"] < 1 for row in log) and any(row["accuracy"] for row in log)
    assert [row["step"] for row in read_lines(whole / "data/evaluation.jsonl")] == [0, 2, 3]
    for group in read_groups(whole / "data/rollouts/step-00001.jsonl.zst"):
        for output in group.outputs:
            if not (printed := re.fullmatch(r" \nprint\((.)\)", output.text)):
                continue
            if printed[1] in BROKEN:
                assert (output.reward, output.reason) == (0.0, "program: error")
            elif printed[1] in DIGITS:
                right = float(printed[1] == group.reference)
                assert (output.extracted, output.rewards["accuracy"]) == (printed[1], right)
    process = start(policy, killed, CHANGES, launch)
    kill_when_saved(process, killed, step=1)
    finished(start(policy, killed, CHANGES, launch))
    files = ("model.safetensors", "evaluation.jsonl", "samples.jsonl")
    found = [*(whole / "data/rollouts").iterdir(), *(whole / "data" / name for name in files)]
    assert len(found) == 3 + len(files)
    for path in found:
        assert path.read_bytes() == (killed / path.relative_to(whole)).read_bytes(), path.name


def test_rollouts_of_programs_are_refused_at_once_where_they_could_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(weak: bool) -> None:
        if not weak:
            raise NoNamespaces("switched off")

    monkeypatch.setattr("workflow.preflight.check", refuse)
    for mode, weak, lines in (("pal", False, 1), ("pal", True, 0), ("cot", False, 0)):
        model = {"stage": "rl", "init": str(tmp_path), "mode": mode, "benchmarks": []}
        graph = Graph(Config({"models": {"policy": model}, "sandbox": {"weak": weak}}))
        found = missing(graph, dict.fromkeys(graph.nodes, 0), True, Machine())
        assert len([line for line in found if "namespaces" in line]) == lines
    words = words_of(tmp_path / "run", CHANGES, {}, {"parent": tmp_path, "prompts": tmp_path})
    command = [*NO_NAMESPACES, sys.executable, "-m", "pipeline.rl", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "sandbox.weak: true" in done.stderr, done.stderr
