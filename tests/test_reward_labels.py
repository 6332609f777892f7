"""Labels of a reward model: steps, labels from a scripted completer, replay, and their memory."""

import gc
import json
import signal
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from given.instances import open_stage
from given.lines import write_lines
from mathverdict.answers import Verdict
from tiny_model import save_tiny_model

from pipeline.config.reward import RewardSection
from pipeline.core.errors import Interrupted
from pipeline.core.launch.queue import Queue
from pipeline.core.stage import InputError
from pipeline.evaluate.benchmarks import Item
from pipeline.reward.labelled import draw_earlier, read_labels, write_solutions
from pipeline.reward.labels import Labeller, Solution, SolutionSampler
from pipeline.reward.measure import reranking
from pipeline.reward.steps import locate_steps, split_steps
from pipeline.reward.train import example_of
from pipeline.training.tokenizer import load_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Any:
    return load_tokenizer(save_tiny_model(tmp_path_factory.mktemp("tiny"), seed=0))


def ids_of(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("3+4=7\n7-2=5\n\nThe answer is 5.", ["3+4=7\n", "7-2=5\n\n", "The answer is 5."]),
        ("\n\n", []),
        ("one \n ", ["one \n "]),
    ],
)
def test_steps_joined_are_the_text(text, steps):
    assert split_steps(text) == steps


def test_special_tokens_belong_to_no_step(tokenizer):
    tokens = ids_of(tokenizer, "a=1\nb=2\nend") + [tokenizer.eos_token_id]
    assert locate_steps(tokenizer, tokens) == [("a=1\n", 3), ("b=2\n", 7), ("end", 10)]
    assert locate_steps(tokenizer, [tokenizer.eos_token_id]) == []


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
    ("text", "steps"),
    [
        ("a\n b\nd", ["a\n ", "b\n", "d"]),
        ("a=7\nb=7", ["a=7\n", "b=7"]),
        ("a\n\nd", ["a\n\n", "d"]),
        ("a\ncd", ["a\n", "cd"]),
        ("先有3个\n再加4个", ["先有3个\n", "再加4个"]),
    ],
)
def test_each_step_ends_in_its_own_token_whatever_the_tokenizer_merges(byte_level, text, steps):
    """A prefix up to a step's end must hold the whole step and nothing of the next one's words."""
    tokens = [*byte_level(text)["input_ids"], byte_level.eos_token_id]
    found = locate_steps(byte_level, tokens)
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
            rows = [ids_of(self.tokenizer, text) for text in texts]
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


def labeller_of(tokenizer, script: dict[str, list[str]]) -> tuple[Labeller, ScriptedEngine]:
    """A labeller whose policy completes its own solutions."""
    sampler, engine = scripted(tokenizer, script)
    return Labeller(sampler.section, sampler), engine


def labels(labeller: Labeller, tokenizer) -> list[Solution]:
    return labeller.label([Item("q", "3+4?", "7")], [ids_of(tokenizer, "Q")])


def test_step_labels_come_from_the_verdicts_on_completions(tokenizer):
    labeller, engine = labeller_of(tokenizer, SOLUTIONS | completions("Q"))
    found = labels(labeller, tokenizer)
    assert [(s.count, s.right, s.hard, s.soft) for s in found] == LABELS
    assert sorted(engine.asked) == ["Q", "Q3+4=7\n", "Q3+4=8\n"]  # equal prefixes once
    ranked = reranking(found, [[0.9, 0.9], [0.2, 0.1], [0.9, 0.3]])
    assert ranked["best_of_n"]["4"] == 1.0 and ranked["maj@n"]["4"] == 1.0 and ranked["pass@n"]["1"] == 0.5


def test_what_the_grader_failed_on_labels_nothing(tokenizer, monkeypatch):
    labeller, _ = labeller_of(tokenizer, SOLUTIONS | completions("Q"))
    judge = labeller._verdicts

    def failing(items, texts):
        failed = Verdict("failed", None, "the grader failed: ValueError")
        found = zip(judge(items, texts), texts, strict=True)
        return [failed if "no box" in text or text == BAD else verdict for verdict, (_, text) in found]

    monkeypatch.setattr(labeller, "_verdicts", failing)
    found = labels(labeller, tokenizer)
    assert [(s.right, s.soft) for s in found] == [(True, [2 / 3, 1.0]), (False, [2 / 3, 0.0])]


def test_labelling_stops_after_a_batch_on_a_signal_and_goes_on_from_there(tokenizer, tmp_path, monkeypatch):
    from pipeline.core import ending
    from pipeline.reward.__main__ import label_all
    from pipeline.training.engine import start_process_group

    start_process_group()
    items = [Item(f"q{number}", "3+4?", "7") for number in range(3)]
    prompts = [ids_of(tokenizer, "Q")] * 3
    sampler, engine = scripted(tokenizer, SOLUTIONS | completions("Q"))
    section = RewardSection(**(sampler.section.model_dump() | {"label_batch": 1}))
    stage = open_stage(tmp_path, section, {}, "rm")
    labeller = Labeller(section, sampler)
    monkeypatch.setattr(ending, "_received", signals := [])
    grade = labeller._verdicts
    monkeypatch.setattr(labeller, "_verdicts", lambda *words: signals.append(signal.SIGTERM) or grade(*words))
    with pytest.raises(Interrupted, match="test rm: labels so far: SIGTERM"):
        label_all(stage, Queue(), labeller, items, prompts)
    assert engine.asked.count("Q") == 1
    monkeypatch.setattr(labeller, "_verdicts", grade)
    signals.clear()
    assert len(label_all(stage, Queue(), labeller, items, prompts)) == 3 * len(LABELS)
    assert engine.asked.count("Q") == 3


def peak_of(work: Callable[[], object]) -> int:
    """Bytes that this process grows by, at most, while `work` runs."""

    def memory(name: str) -> int:
        status = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(name))

    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = memory("VmRSS")
    work()
    return memory("VmHWM") - before


@pytest.mark.slow
def test_the_memory_of_labels_does_not_grow_with_their_number(tmp_path):
    """20,000 solutions of 60 tokens, of 1,250 questions: as objects they take 60 MB."""
    from pipeline.reward.__main__ import label_all
    from pipeline.training.engine import start_process_group

    def label(items: list[Item], prompts: list[list[int]]) -> list[Solution]:
        words = {"steps": ["x\n", "y"], "ends": [29, 59], "hard": [1, 0], "soft": [0.5, 0.0]}
        words |= {"right": False, "extracted": None, "count": 1}
        return [
            Solution(item.id, item.text, item.answer, prompt, list(range(start, start + 60)), **words)
            for item, prompt in zip(items, prompts, strict=True)
            for start in range(1000, 1016)
        ]

    def use() -> None:
        solutions = label_all(
            stage, Queue(), SimpleNamespace(start=lambda: None, label=label), items, prompts
        )
        assert len(solutions) == 20_000 and solutions.table.nbytes == 40 * 20_000
        tokens = [len(example_of(solution, section).tokens) for solution in solutions]
        assert set(tokens) == {70} == set(solutions.table["length"].tolist())

    start_process_group()
    items = [Item(f"q{number}", f"{number}+4?", "7") for number in range(1250)]
    prompts = [list(range(2000, 2010))] * len(items)
    section = RewardSection()
    stage = open_stage(tmp_path, section, {}, "rm")
    assert peak_of(use) < 25e6
    lines = [json.loads(line) for line in (tmp_path / "partial/labels.jsonl").open()]
    assert [row["id"] for row in lines[::16]] == [item.id for item in items]


def test_an_outcome_model_needs_no_completions(tokenizer):
    sampler, engine = scripted(tokenizer, SOLUTIONS)
    sampler.section = RewardSection(**(sampler.section.model_dump() | {"target": "outcome"}))
    found = labels(Labeller(sampler.section, sampler), tokenizer)
    assert engine.asked == ["Q"]
    whole = [(s.count, s.steps, s.hard, s.soft) for s in found]
    assert whole[:2] == [(2, [GOOD], [1], [1.0]), (1, [BAD], [0], [0.0])]
    assert [tokenizer.decode(s.tokens[: s.ends[0] + 1]) for s in found[:2]] == [GOOD, BAD]


def solution(number: int, question: int = 0) -> Solution:
    words = {"steps": ["x"], "ends": [0], "hard": [1], "soft": [1.0], "extracted": None}
    return Solution(
        f"q{question}", f"{question}?", "7", [question], [number, 5], right=True, count=1, **words
    )


def test_a_tenth_of_the_training_solutions_are_drawn_once_each_from_earlier_rounds(tmp_path):
    def write(name: str, numbers: range) -> str:
        return str(write_lines(tmp_path / name, (asdict(solution(number)) for number in numbers)))

    files = [write("rm-1.jsonl", range(50, 90)), write("rm-0.jsonl", range(70))]
    history = read_labels(files, seed=3)
    assert sorted(s.tokens[0] for s in history) == list(range(90))  # of both rounds, the common ones once
    new = write_solutions(tmp_path / "new.jsonl", (solution(number) for number in range(60, 150)))
    drawn = draw_earlier(new, history, 0.1)
    assert len(drawn) == 10 == round(0.1 * (len(new) + len(drawn)))
    together = {(*s.prompt, *s.tokens) for s in [*new, *drawn]}
    assert len(together) == 100 and all(s.tokens[0] < 60 for s in drawn)
    assert list(drawn) == list(draw_earlier(new[::-1], history[::-1], 0.1))
    assert list(drawn) != list(draw_earlier(new, read_labels(files, seed=4), 0.1))
    assert len(draw_earlier(new, history, 0.0)) == 0
    with pytest.raises(InputError, match="810 earlier solutions .* hold 60 others"):
        draw_earlier(new, history, 0.9)
    (tmp_path / "old.jsonl").write_text('{"id": "q"}\n')
    with pytest.raises(InputError, match="old.jsonl: line 1: not a Solution, question: Field required"):
        read_labels([str(tmp_path / "old.jsonl")])
