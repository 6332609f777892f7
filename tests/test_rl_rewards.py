"""Rewards of outputs: the grader's verdict and its failures, steps, and functions of the user."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest
from given.rollouts import group_of, rollout

from pipeline.config.rl import RewardWeights
from pipeline.config.root import Config
from pipeline.core.stage import InputError
from pipeline.evaluate.benchmarks import Item
from pipeline.rl import metrics
from pipeline.rl import rewards as rewards_module
from pipeline.rl.metrics import nothing_to_learn
from pipeline.rl.rewards import Reward, Rewarder, reward_steps
from pipeline.rl.rollout import Group, Rollout
from workflow.graph import Graph

SHORT = '''"""A reward of the user."""
from dataclasses import dataclass


@dataclass
class Limit:
    characters: int


def short(item, text):
    return len(text) <= Limit(10).characters and item.answer in text


def broken(item, text):
    return {}[item.question]


def endless(item, text):
    return float("inf")


def silent(item, text):
    pass
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SHORT)
    return path


def scored(functions: dict[str, float]) -> list[Reward]:
    items = [Item("q1", "What is it?", "7")] * 2
    rewarder = Rewarder(RewardWeights(functions=functions))
    return rewarder.score(items, [[1]] * 2, [[5], [6]], ["\\boxed{7}", "It is \\boxed{7}."])


def test_a_function_of_the_user_is_a_weighted_part_of_the_reward(file: Path) -> None:
    one, other = scored({f"{file}:short": 0.5})
    assert one.parts == {"accuracy": 1.0, "short": 1.0} and one.total == 1.5
    assert other.parts == {"accuracy": 1.0, "short": 0.0} and other.total == 1.0


def test_a_function_of_weight_0_is_not_called(file: Path) -> None:
    assert scored({f"{file}:broken": 0.0})[0].parts == {"accuracy": 1.0}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", "mine.py:broken: question 'q1': KeyError: 'What is it[?]'"),
        ("endless", "mine.py:endless: question 'q1': expected a finite number, got inf"),
        ("silent", "mine.py:silent: question 'q1': expected a finite number, got None"),
    ],
)
def test_a_function_that_fails_is_named_with_its_question(file: Path, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        scored({f"{file}:{name}": 1.0})


def test_a_function_that_cannot_be_loaded_is_named(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="mine.py: has no 'long'"):
        scored({f"{file}:long": 1.0})
    with pytest.raises(InputError, match="none.py: no such file"):
        scored({f"{tmp_path}/none.py:short": 1.0})
    file.write_text("import nothing_of_this_name")
    with pytest.raises(InputError, match="mine.py: cannot be imported .ModuleNotFoundError"):
        scored({f"{file}:short": 1.0})


def graph(functions: dict[str, float]) -> Graph:
    model = {"stage": "rl", "init": "owner/model", "rewards": {"functions": functions}, "benchmarks": []}
    return Graph(Config({"models": {"grpo": model}}))


def test_the_file_of_a_function_is_an_input_of_the_model(file: Path) -> None:
    assert ("reward", str(file)) in graph({f"{file}:short": 0.5}).nodes["rl/grpo"].inputs


def test_steps_reach_to_the_last_token_and_carry_the_rest_of_the_reward() -> None:
    assert reward_steps([(3, 0.5), (7, 0.25)], 10, weight=2.0, rest=1.0) == ([3, 9], [1.0, 1.5])
    assert reward_steps([], 1, weight=2.0, rest=0.0) == ([0], [0.0])


def output_of(text: str, reward: Reward, **facts: str) -> Rollout:
    """An output of this text that earned the reward."""
    return rollout(reward.total, text=text, rewards=reward.parts, **asdict(reward.verdict), **facts)


def test_a_symbolic_bomb_is_undecided_and_counted() -> None:
    bomb = "\\boxed{\\left((x+1)^{9^{9}}\\right)^{9^{9}}}"
    texts = [bomb, "\\boxed{7}", ""]
    items = [Item("q", "What is it?", "x^2 + 7")] + [Item("q", "What is it?", "7")] * 2
    rewards = Rewarder(RewardWeights()).score(items, [[1]] * 3, [[5], [6], [2]], texts)
    assert [reward.verdict.verdict for reward in rewards] == ["undecided", "right", "wrong"]
    assert [reward.total for reward in rewards] == [0.0, 1.0, 0.0]
    outputs = [output_of(text, reward) for text, reward in zip(texts, rewards, strict=True)]
    seen = metrics.summarise([group_of(outputs)], ["accuracy"])
    assert seen["undecided"] == seen["empty"] == seen["accuracy"] == pytest.approx(1 / 3)


def test_an_answer_that_the_grader_fails_on_has_a_verdict_of_its_own_and_the_others_are_graded() -> None:
    items = [Item("q", "What is it?", None), Item("q", "What is it?", "7")]
    rewards = Rewarder(RewardWeights()).score(items, [[1]] * 2, [[5], [6]], ["\\boxed{7}"] * 2)
    assert [reward.verdict.verdict for reward in rewards] == ["failed", "right"]
    assert rewards[0].verdict.reason.startswith("the grader failed")


def test_a_reward_model_that_scores_nan_is_named_and_not_the_learning_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken:
        settings = {"target": "process"}

    monkeypatch.setattr(rewards_module, "score_steps", lambda *_: [[(0, 0.5), (1, float("nan"))]])
    rewarder = Rewarder(RewardWeights(accuracy=0, model=1), Broken())
    with pytest.raises(InputError, match="question 'q1': the reward model's score is nan") as error:
        rewarder.score([Item("q1", "What?", "7")], [[1]], [[5, 6]], ["\\boxed{7}"])
    assert "learning_rate" not in str(error.value)


def explored(texts: dict[str, str], boxed: bool = True) -> list[Group]:
    """A group for each text, twice, to a question whose answer is 6; with how it ended."""
    items = [Item("q", "What is 2 + 4?", "6")] * len(texts)
    lists = [[[0]] * len(texts)] * 2
    rewarder = Rewarder(RewardWeights(), boxed=boxed)
    rewards = rewarder.score(items, *lists, list(texts))
    outputs = [
        output_of(text, found, finish_reason=ended)
        for (text, ended), found in zip(texts.items(), rewards, strict=True)
    ]
    return [group_of([output] * 2) for output in outputs]


def test_an_exploration_without_any_reward_says_why_and_what_to_do() -> None:
    texts = {
        "The answer is 6.": "stop",
        "The answer is 7.": "stop",
        "\\boxed{7}": "stop",
        "2 + 4 is": "length",
    }
    assert nothing_to_learn(explored(texts), boxed=True) == (
        "no reward, so nothing is learnt: of 8 outputs 4 have no box, 2 are wrong, 2 were cut off;"
        " set rl.answer to any, or fine-tune on answers in \\boxed{}"
    )
    found = explored({"\\boxed{6}": "stop", "so \\boxed{6}": "stop"})
    assert nothing_to_learn(found, boxed=True) == (
        "equal rewards in each group, so nothing is learnt: of 4 outputs 4 are right; ask harder questions"
    )
    one, other = explored({"\\boxed{6}": "stop", "\\boxed{7}": "stop"})
    mixed = replace(one, outputs=[*one.outputs, *other.outputs])
    assert nothing_to_learn([other, mixed], boxed=True) is None


def test_right_answers_that_were_cut_off_are_told_apart_when_they_become_many() -> None:
    def summary(finished: int, cut: int) -> dict[str, float]:
        (group,) = explored({"\\boxed{6}": "stop"})
        outputs = [replace(group.outputs[0], finish_reason="stop")] * finished
        outputs += [replace(group.outputs[0], finish_reason="length")] * cut
        return metrics.summarise([replace(group, outputs=outputs)], ["accuracy"])

    few, many = summary(9, 1), summary(6, 4)
    assert (few["accuracy"], few["right_and_finished"]) == (1.0, 0.9)
    assert metrics.cut_after_answer(few, None) is None
    line = "100.0% right, but only 60.0% right and finished: the others were cut off; raise rl.max_tokens"
    for before in (None, few):
        assert metrics.cut_after_answer(many, before).startswith(line)
    assert metrics.cut_after_answer(many, many) is None  # told already


def test_any_answer_counts_where_the_section_says_so() -> None:
    texts = {"The answer is 6.": "stop", "The answer is 7.": "stop", "": "stop"}
    found = explored(texts, boxed=False)
    assert [group.outputs[0].reward for group in found] == [1.0, 0.0, 0.0]
    assert "2 have no answer" in nothing_to_learn(found[2:], boxed=False)
