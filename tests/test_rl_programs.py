"""Rollouts that are programs, or words with programs: run in the sandbox, paid for the answer, the same after
a kill.
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from string import Formatter
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import NO_NAMESPACES, WEAK
from given.lines import read_lines
from given.rollouts import group_of, rollout
from programs import finished, words_of
from rl_program import PRINT, kill_when_saved, save_policy, start
from sandbox_attacks import ESCAPES, PROGRAMS, outside, state
from sealedpy.pool import NoNamespaces
from tiny_model import save_tiny_model

from pipeline.config.rl import RewardWeights, RlSection
from pipeline.config.root import Config, ConfigError
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.interpreter import Interpreter
from pipeline.evaluate.profiles import last_output
from pipeline.evaluate.programs import OUTPUT_FENCE
from pipeline.rl.explorer import Explorer
from pipeline.rl.metrics import nothing_to_learn, summarise
from pipeline.rl.rewards import Rewarder
from pipeline.rl.rollout import Question, read_groups
from pipeline.training.tokenizer import load_tokenizer
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
    rewarder = Rewarder(RewardWeights(), run=lambda found: interpreter.run_answers(found, SECONDS))
    lists = [[[1]] * len(texts), [[5]] * len(texts)]
    return rewarder.score([Item("q", "What?", answer)] * len(texts), *lists, texts)


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
        if text in failed:
            assert reward.total == 0 and reward.verdict.reason == texts[text][1]


def test_a_program_that_prints_the_question_has_not_worked_it_out(interpreter: Interpreter) -> None:
    rewarder = Rewarder(RewardWeights(), run=lambda texts: interpreter.run_answers(texts, SECONDS))
    item, text = Item("q", "What is 3 + 4?", "7"), 'print("3 + 4")'
    (reward,) = rewarder.score([item], [[1]], [[5]], [text])
    assert reward.parts["accuracy"] == 0 and reward.verdict.reason.startswith("not worked out")
    (held_out,) = rewarder.judge([item], [text])
    assert held_out == item.compare("3 + 4") and held_out.right


def test_an_endless_program_ends_at_its_limit_and_earns_nothing(interpreter: Interpreter) -> None:
    rewarder = Rewarder(RewardWeights(), run=lambda texts: interpreter.run_answers(texts, 1.0))
    text = "print(7, flush=True)\nwhile True: pass"
    (reward,) = rewarder.score([Item("q", "What?", "7")], [[1]], [[5]], [text])
    assert reward.total == 0 and reward.verdict.reason == "program: timeout"


def attacks_of(targets: dict[str, str]) -> list[str]:
    """The sandbox's own attacks that succeed outside it."""
    given = {name for name in targets if name != "call"}
    found = [
        ESCAPES[name].format(**targets)
        for name in PROGRAMS["succeed_outside"]
        if {field for _, field, *_ in Formatter().parse(ESCAPES[name]) if field} <= given
    ]
    assert len(found) > 15
    return found


@pytest.mark.skipif(WEAK, reason="this system allows no namespaces")
def test_programs_that_attack_the_sandbox_earn_nothing_and_harm_nothing(
    interpreter: Interpreter, tmp_path: Path
) -> None:
    """And a good program after them earns."""
    with outside(tmp_path) as targets:
        before, attacks = state(tmp_path), attacks_of(targets)
        found = rewards_of(interpreter, [*attacks, "print(7)"], answer="7")
        assert [reward.parts["accuracy"] for reward in found] == [0.0] * len(attacks) + [1.0]
        assert not [reward for reward in found if reward.verdict.extracted == "ESCAPED"]
        assert state(tmp_path) == before


class Author:
    """A sampler that goes on from a context as `write` says, up to a fence or its limit."""

    version = 0

    def __init__(self, tokenizer: Any, write: Callable[[str], str]) -> None:
        self.tokenizer, self.write = tokenizer, write

    def generate(
        self, prompts: Sequence[list[int]], *, max_tokens: Sequence[int], n: Any, **_: Any
    ) -> list[list[SimpleNamespace]]:
        numbers = [n] * len(prompts) if isinstance(n, int) else n
        return [
            [self.sample(*pair)] * number for *pair, number in zip(prompts, max_tokens, numbers, strict=True)
        ]

    def sample(self, prompt: list[int], room: int) -> SimpleNamespace:
        text, fence, _ = self.write(self.tokenizer.decode(prompt)).partition(OUTPUT_FENCE)
        ids = self.tokenizer.encode(text + fence) + ([] if fence else [self.tokenizer.eos_token_id])
        facts = {"token_ids": ids[:room], "logprobs": [-1.0] * len(ids[:room]), "finish_reason": "stop"}
        if room < len(ids):
            return SimpleNamespace(**facts | {"finish_reason": "length"}, text=None)
        return SimpleNamespace(**facts, text=text)


def explorer_of(interpreter: Interpreter, folder: Path, write: Callable[[str], str], **keys: Any) -> Explorer:
    """An explorer in mode tool whose sampler is an `Author`; all else is real."""
    tokenizer, found = load_tokenizer(save_tiny_model(folder, seed=0)), object.__new__(Explorer)
    facts = {"stage": SimpleNamespace(counters=Counter()), "section": RlSection(mode="tool", **keys)}
    facts |= {"rewarder": Rewarder(RewardWeights()), "interpreter": interpreter, "stop": [OUTPUT_FENCE]}
    vars(found).update(facts, tokenizer=tokenizer, generator=Author(tokenizer, write))
    return found


@pytest.mark.skipif(WEAK, reason="this system allows no namespaces")
def test_tool_calls_that_attack_the_sandbox_earn_nothing_and_harm_nothing(
    interpreter: Interpreter, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The model takes what it reads for the answer; a call after the attacks that prints it earns."""
    with outside(tmp_path) as targets:
        before = state(tmp_path)
        programs = [*attacks_of(targets), "print('ESCAPED')"]

        def write(context: str) -> str:
            if OUTPUT_FENCE in context:
                return f"\n\\boxed{{{last_output(context)}}}"
            return f"```python\n{programs[int(context)]}\n```\n{OUTPUT_FENCE}"

        explorer = explorer_of(
            interpreter, tmp_path_factory.mktemp("model"), write, tool_seconds=SECONDS, max_tokens=9999
        )
        item = Item("q", "What is printed?", "ESCAPED")
        asked = [
            (Question(item, explorer.tokenizer.encode(str(number))), range(1))
            for number in range(len(programs))
        ]
        outputs = [group.outputs[0] for group in explorer._sample(asked, 1)]
        assert all(len(output.tool_spans) == 1 for output in outputs)
        assert [output.reward for output in outputs] == [0.0] * (len(programs) - 1) + [1.0]
        assert state(tmp_path) == before


PARTS = [  # of the model and, every second one, of its programs
    "So\n```python\nx = 3\nprint(x)\n```\n```output",
    "\n3\n```",
    "\nand\n```python\nprint(x + 4)\n```\n```output",
    "\n7\n```",
    "\n\\boxed{7}",
]


def test_an_output_with_two_calls_holds_at_most_max_tokens_and_knows_whose_they_are(
    interpreter: Interpreter, tmp_path: Path
) -> None:
    whole, prompt = "".join(PARTS), "Q"

    def write(context: str) -> str:
        assert f"{prompt}{whole}".startswith(context)
        return whole[len(context) - len(prompt) :]

    explorer = explorer_of(interpreter, tmp_path, write, tool_rounds=3)
    ids = [*explorer.tokenizer.encode(whole), explorer.tokenizer.eos_token_id]
    edges = list(accumulate(map(len, PARTS), initial=0))
    read = list(pairwise(edges))[1::2]
    asked = [(Question(Item("q", "?", "7"), explorer.tokenizer.encode(prompt)), range(2))]
    ends = {edge + more for edge in edges for more in (-1, 0, 1)} | {len(ids), len(ids) + 9}
    for longest in sorted(ends - {-1, 0}):
        explorer.section = RlSection(mode="tool", tool_rounds=3, max_tokens=longest)
        (group,) = explorer._sample(asked, 1)
        output, same = group.outputs
        assert output.tokens == same.tokens == ids[: len(output.tokens)] and len(output.tokens) <= longest
        assert output.tool_spans == [span for span in read if span[1] < len(output.tokens)]
        told = {at for span in output.tool_spans for at in range(*span)}
        assert [logprob == 0 for logprob in output.logprobs] == [
            at in told for at in range(len(output.tokens))
        ]
        assert output.finish_reason == ("stop" if longest >= len(ids) else "length")
        assert output.reward == (longest >= len(whole))
        assert summarise([group], [], "tool")["truncated"] == (longest < len(ids))
    explorer.section = RlSection(mode="tool", tool_rounds=2)
    (group,) = explorer._sample(asked, 1)
    assert group.outputs[0].text == "".join(PARTS[:4]) and group.outputs[0].finish_reason == "rounds"
    assert group.tokens == 2 * (len(PARTS[0]) + len(PARTS[2]))
    assert "2 asked for one more program's output; raise evaluate.tool_rounds" in nothing_to_learn(
        [group], True
    )


def test_a_mode_that_judges_steps_is_refused_with_tools_and_evaluates_keys_are_its_own(
    tmp_path: Path,
) -> None:
    model = {"stage": "rl", "init": str(tmp_path), "mode": "tool", "benchmarks": []}
    graph = Graph(Config({"models": {"policy": model}, "evaluate": {"tool_rounds": 4}}))
    assert graph.nodes["rl/policy"].section["tool_rounds"] == 4
    with pytest.raises(ConfigError, match="models.policy.*mode tool has no supervision process"):
        Config({"models": {"policy": model | {"supervision": "process"}}})
    with pytest.raises(ConfigError, match="tool_rounds"):
        Config({"rl": {"tool_rounds": 3}})


def test_an_exploration_of_programs_that_print_nothing_says_so(interpreter: Interpreter) -> None:
    rewards = rewards_of(interpreter, ["pass", "what?"])
    outputs = [rollout(found.total, reason=found.verdict.reason) for found in rewards]
    assert summarise([group_of(outputs)], ["accuracy"], "pal")["programs_failed"] == 1
    line = nothing_to_learn([group_of(outputs)], boxed=True)
    assert "of 2 outputs 2 are no programs that print an answer; fine-tune on programs" in line


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_policy(tmp_path_factory.mktemp("policy"), PRINT, DIGITS + BROKEN)


def assert_same_after_kill(policy: Path, whole: Path, killed: Path, changes: dict[str, Any]) -> None:
    """A run killed in its second step ends with the bytes of one that was not."""
    launch = {"weak_sandbox": WEAK}
    finished(start(policy, whole, changes, launch))
    process = start(policy, killed, changes, launch)
    kill_when_saved(process, killed, step=1)
    finished(start(policy, killed, changes, launch))
    files = ("model.safetensors", "evaluation.jsonl", "samples.jsonl")
    found = [*(whole / "data/rollouts").iterdir(), *(whole / "data" / name for name in files)]
    assert len(found) == 3 + len(files)
    for path in found:
        assert path.read_bytes() == (killed / path.relative_to(whole)).read_bytes(), path.name
    assert [row["step"] for row in read_lines(whole / "data/evaluation.jsonl")] == [0, 2, 3]


def test_a_run_killed_in_its_program_rollouts_ends_with_the_same_bytes(policy: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    assert_same_after_kill(policy, whole, tmp_path / "killed", CHANGES)
    log = read_lines(whole / "data/metrics.jsonl")
    assert all(0 < row["programs_failed"] < 1 for row in log) and any(row["accuracy"] for row in log)
    for group in read_groups(whole / "data/rollouts/step-00001.jsonl.zst"):
        for output in group.outputs:
            if not (printed := re.fullmatch(r" \nprint\((.)\)", output.text)):
                continue
            if printed[1] in BROKEN:
                assert (output.reward, output.reason) == (0.0, "program: error")
            elif printed[1] in DIGITS:
                right = float(printed[1] == group.reference)
                assert (output.extracted, output.rewards["accuracy"]) == (printed[1], right)


def test_rollouts_of_programs_are_refused_at_once_where_they_could_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(weak: bool) -> None:
        if not weak:
            raise NoNamespaces("switched off")

    monkeypatch.setattr("workflow.preflight.check", refuse)
    for mode, weak, lines in (("pal", False, 1), ("tool", False, 1), ("pal", True, 0), ("cot", False, 0)):
        model = {"stage": "rl", "init": str(tmp_path), "mode": mode, "benchmarks": []}
        graph = Graph(Config({"models": {"policy": model}, "sandbox": {"weak": weak}}))
        found = missing(graph, dict.fromkeys(graph.nodes, 0), True, Machine())
        assert len([line for line in found if "namespaces" in line]) == lines
    words = words_of(tmp_path / "run", CHANGES, {}, {"parent": tmp_path, "prompts": tmp_path})
    command = [*NO_NAMESPACES, sys.executable, "-m", "pipeline.rl", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "sandbox.weak: true" in done.stderr, done.stderr
