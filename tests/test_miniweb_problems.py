"""Problems are right, repeatable, and their splits never meet."""

import random
import re
from typing import get_args

import pytest
from given.lines import read_lines

from pipeline.examples.miniweb.datasets import write_sft
from pipeline.examples.miniweb.problems import (
    SPLITS,
    Style,
    distinct_problems,
    is_test_pair,
    joined_sum,
    languages,
    make_problem,
    program,
    render_solution,
)

LANGUAGES = languages()
DRAWS = [(split, lang) for split in SPLITS for lang in LANGUAGES]


def draw(split: str, lang: str, count: int = 1500, seed: int = 0):
    rng = random.Random(seed)
    return [make_problem(rng, split, lang) for _ in range(count)]


@pytest.mark.parametrize(("split", "lang"), DRAWS)
def test_every_template_computes_its_answer_from_the_numbers_in_the_question(split, lang):
    for problem in draw(split, lang):
        numbers = [int(number) for number in re.findall(r"\d+", problem.question)]
        signs = [operation.sign for operation in problem.operations]
        assert len(numbers) == len(signs) + 1
        total = numbers[0]
        for sign, number in zip(signs, numbers[1:], strict=True):
            total += number if sign == "+" else -number
            assert 0 <= total <= 20
        assert problem.answer == str(total)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_wording_of_a_gain_adds_and_of_a_loss_subtracts(lang):
    for scenario in LANGUAGES[lang].scenarios + LANGUAGES[lang].held_out_scenarios:
        assert all("{n}" in text and "{things}" in text for text in (*scenario.gains, *scenario.losses))
        assert not set(scenario.gains) & set(scenario.losses)
        assert "{n}" not in scenario.ask


@pytest.mark.parametrize("lang", LANGUAGES)
def test_steps_joined_sum_and_program_agree_with_the_answer(lang, capsys):
    for problem in draw("train", lang, 200):
        for step in [*problem.steps, joined_sum(problem)]:
            left, right = step.split("=")
            assert eval(left) == int(right)
        assert problem.steps[-1].endswith(f"={problem.answer}")
        exec(program(problem), {})
        assert capsys.readouterr().out.strip() == problem.answer


def test_splits_share_no_question_and_held_out_templates_are_unseen():
    for lang, language in LANGUAGES.items():
        drawn = {split: draw(split, lang) for split in SPLITS}
        questions = {split: {problem.question for problem in drawn[split]} for split in SPLITS}
        frames = {split: {problem.template.rsplit("-", 1)[0] for problem in drawn[split]} for split in SPLITS}
        assert not questions["train"] & questions["test"]
        assert not questions["train"] & questions["heldout"]
        assert frames["train"] == frames["test"]
        assert not _texts(language.scenarios) & _texts(language.held_out_scenarios)


def _texts(scenarios):
    return {text for s in scenarios for text in (s.opener, s.ask, *s.gains, *s.losses)}


def test_each_language_has_pairs_in_both_splits():
    for language in LANGUAGES.values():
        shares = [is_test_pair(who, things) for who in language.names for things in language.things]
        assert 0.1 < sum(shares) / len(shares) < 0.3


def test_an_unknown_split_or_language_is_refused():
    with pytest.raises(ValueError, match="'validation'"):
        make_problem(random.Random(0), "validation", "en")


def test_rendered_solutions_box_the_answer():
    for problem in draw("train", "en", 20) + draw("train", "zh", 20):
        for style in get_args(Style):
            boxes = re.findall(r"\\boxed\{(\d+)\}", render_solution(problem, style))
            assert boxes == [problem.answer]


def test_data_sets_hold_distinct_questions_in_the_asked_shares(tmp_path):
    problems = distinct_problems(0, "train", 1000, chinese_share=0.2)
    assert len({problem.question for problem in problems}) == 1000
    assert sum(problem.lang == "zh" for problem in problems) == 200
    shares = [{"cot": 0.8, "direct": 0.2}, {"cot": 0.5, "tool": 0.5}, {"direct": 1.0}]
    write_sft(tmp_path / "sft.jsonl", problems, shares, seed=0)
    examples = read_lines(tmp_path / "sft.jsonl")
    for operations, share in enumerate(shares, start=1):
        sources = [
            example["source"]
            for example, problem in zip(examples, problems, strict=True)
            if len(problem.operations) == operations
        ]
        for style, weight in share.items():
            assert abs(sources.count(f"miniweb:{style}") / len(sources) - weight) < 0.12
    asked = [example["messages"][0]["content"] for example in examples]
    assert asked == [problem.question for problem in problems]
    assert all(
        f"\\boxed{{{problem.answer}}}" in example["messages"][1]["content"]
        for example, problem in zip(examples, problems, strict=True)
    )
    write_sft(tmp_path / "worked.jsonl", problems, shares, seed=0, without=("direct",))
    assert read_lines(tmp_path / "worked.jsonl") == [
        one for one in examples if one["source"] != "miniweb:direct"
    ]
