"""Which questions and seeds a step asks, and how samplers share the outputs."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_model import save_tiny_model

from pipeline.config.rl import RewardWeights, RlSection
from pipeline.evaluate.benchmarks import Item
from pipeline.rl.rewards import Rewarder
from pipeline.rl.rollout import Question, questions_from, rollout_seed, share_outputs


@pytest.mark.parametrize(("questions", "size", "samplers"), [(3, 5, 2), (1, 4, 3), (2, 3, 8), (16, 64, 24)])
def test_samplers_share_all_outputs_evenly(questions: int, size: int, samplers: int) -> None:
    shares = [share_outputs(questions, size, sampler, samplers) for sampler in range(samplers)]
    flat = [(index, output) for part in shares for index, outputs in part for output in outputs]
    assert flat == [(index, output) for index in range(questions) for output in range(size)]
    counts = [sum(len(outputs) for _, outputs in part) for part in shares]
    assert max(counts) - min(counts) <= 1


def test_every_pass_asks_each_question_once() -> None:
    asked = [questions_from(10, 4 * step, 4, seed=3) for step in range(5)]
    flat = [pair for step in asked for pair in step]
    assert [place for place, _ in flat] == list(range(20))
    assert (
        sorted(index for _, index in flat[:10]) == sorted(index for _, index in flat[10:]) == list(range(10))
    )
    assert asked == [questions_from(10, 4 * step, 4, seed=3) for step in range(5)]
    assert flat != [pair for step in range(5) for pair in questions_from(10, 4 * step, 4, seed=4)]


def test_seeds_differ_between_places_questions_and_runs() -> None:
    seeds = {rollout_seed(run, place, name) for run in (0, 1) for place in range(50) for name in ("a", "b")}
    assert len(seeds) == 200 and min(abs(a - b) for a in seeds for b in seeds if a != b) > 64


def test_ranks_of_one_sampler_ask_the_same_held_out_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four ranks in a row play the collective: each leaves its rows for the later ones; the last has all."""
    from pipeline.rl import explorer
    from pipeline.training.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(save_tiny_model(tmp_path, seed=0))
    items = [Item(f"q{number}", "?", str(number)) for number in range(5)]
    questions = [Question(item, tokenizer.encode(f"\\boxed{{{item.answer}}}")) for item in items]
    asked: dict[int, list[list[int]]] = {}
    rows: dict[int, Any] = {}

    def evaluated(rank: int) -> float:
        def generate(prompts: list[list[int]], **_: Any) -> list[list[SimpleNamespace]]:
            asked[rank] = prompts
            return [
                [SimpleNamespace(token_ids=prompt, logprobs=[], text=None, finish_reason="stop")]
                for prompt in prompts
            ]

        def gather(parts: list[Any], own: Any) -> None:
            rows[rank] = own
            parts[:] = [rows.get(other, own * 2) for other in range(4)]

        monkeypatch.setattr(explorer, "dist", SimpleNamespace(all_gather_object=gather))
        sampler = object.__new__(explorer.Explorer)
        facts = {"rank": rank, "ranks": 4, "shared": 2, "section": RlSection()}
        vars(sampler).update(
            facts,
            stage=SimpleNamespace(counters=Counter()),
            stop=[],
            tokenizer=tokenizer,
            generator=SimpleNamespace(generate=generate),
            rewarder=Rewarder(RewardWeights()),
        )
        return sampler.evaluate(questions)["accuracy"]

    last = [evaluated(rank) for rank in (2, 3, 0, 1)][-1]
    texts = [question.prompt for question in questions]
    assert asked[0] == asked[1] == texts[::2] and asked[2] == asked[3] == texts[1::2]
    assert last == 1.0
