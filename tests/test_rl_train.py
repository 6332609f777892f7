"""The train phase on a real engine: what every method does with good, flat and broken input."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.common.stage import InputError
from pipeline.config.rl import RlSection
from pipeline.rl.rollout import Group, Rollout
from tests.tiny_model import log_probs, save_tiny_model

METHODS = ("grpo", "ppo", "rft", "online_rft", "dpo")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("policy"), seed=0, spread=0.1)


def section(**keys: Any) -> RlSection:
    base = {"precision": "fp32", "kl_coefficient": 0.0, "row_tokens": 64, "learning_rate": 2e-4}
    return RlSection(**(base | {"ppo": {"value_learning_rate": 1e-2}} | keys))


def models(folder: Path, chosen: RlSection, rows_at_once: int = 4) -> Any:
    from pipeline.common.model import TokenLogprobs, load_model
    from pipeline.common.training import build_engine, settings_from
    from pipeline.rl.critic import load_critic
    from pipeline.rl.train import Models

    settings = settings_from(chosen, {"zero_stage": 1})
    reference = None
    if chosen.method == "dpo" or chosen.kl_coefficient:
        reference = TokenLogprobs(load_model(folder)).eval().requires_grad_(False)
    critic = build_engine(load_critic(str(folder), "fp32"), settings) if chosen.method == "ppo" else None
    engine = build_engine(TokenLogprobs(load_model(folder)), settings)
    return Models(engine, reference, critic, rows_at_once)


def groups(folder: Path, rights: list[list[bool]], lengths: tuple[int, ...] = (6, 3, 9, 1)) -> list[Group]:
    """Groups of random outputs with the log-probabilities of the policy in `folder`; rewards are 1 or 0."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    random = torch.Generator().manual_seed(0)
    found = []
    for number, verdicts in enumerate(rights):
        prompt = torch.randint(4, 90, (7 + number,), generator=random).tolist()
        outputs = []
        for right, length in zip(verdicts, lengths, strict=True):
            tokens = torch.randint(4, 90, (length,), generator=random).tolist()
            logprobs = log_probs(model, prompt, tokens).tolist() if tokens else []
            ends = sorted({length // 2, length - 1}) if tokens else []
            outputs.append(
                Rollout(
                    seed=0,
                    tokens=tokens,
                    logprobs=logprobs,
                    finish_reason="stop",
                    text="text",
                    reward=float(right),
                    rewards={"accuracy": float(right)},
                    verdict="right" if right else "wrong",
                    extracted=None,
                    reason="",
                    step_ends=ends,
                    step_rewards=[0.5 * right, float(right)][-len(ends) :] if ends else [],
                )
            )
        found.append(Group(1, 0, f"q{number}", "", "", prompt, outputs))
    return found


MIXED = [[True, False, False, True], [False, True, True, False]]


def weights(models: Any) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in models.engine.module.parameters()]


def same(before: list[torch.Tensor], after: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, two) for one, two in zip(before, after, strict=True))


def train(models: Any, batch: list[Group], chosen: RlSection) -> dict[str, Any]:
    from pipeline.rl.train import train_on

    return train_on(models, batch, chosen, chosen.learning_rate)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_makes_right_outputs_likelier_than_wrong_ones(folder: Path, method: str) -> None:
    chosen = section(method=method, updates=5)
    batch, learner = groups(folder, MIXED), models(folder, chosen)
    before = weights(learner)
    metrics = train(learner, batch, chosen)
    assert not same(before, weights(learner))
    assert metrics["logprob_gap_max"] <= 5e-5
    model = learner.engine.module.model
    gain = {"right": [], "wrong": []}
    for group in batch:
        for output in group.outputs:
            change = log_probs(model, group.prompt, output.tokens) - torch.tensor(output.logprobs)
            gain[output.verdict].append(change.mean().item())
    assert sum(gain["right"]) > sum(gain["wrong"])
    if method == "ppo":
        assert metrics["value_loss"] < 0.4  # the critic starts at 0 where half of the outputs earn 1


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("method", ["grpo", "dpo"])
def test_groups_all_wrong_or_all_right_change_nothing(folder: Path, method: str, right: bool) -> None:
    chosen = section(method=method)
    learner = models(folder, chosen)
    before = weights(learner)
    metrics = train(learner, groups(folder, [[right] * 4] * 2), chosen)
    assert metrics["loss"] is None and metrics["grad_norm"] is None
    assert same(before, weights(learner))


def test_rejection_sampling_without_any_right_output_changes_nothing(folder: Path) -> None:
    chosen = section(method="online_rft")
    learner = models(folder, chosen)
    before = weights(learner)
    assert train(learner, groups(folder, [[False] * 4]), chosen)["loss"] is None
    assert same(before, weights(learner))


@pytest.mark.parametrize("supervision", ["outcome", "process"])
def test_an_output_without_tokens_is_in_the_mean_but_trains_nothing(folder: Path, supervision: str) -> None:
    chosen = section(supervision=supervision)
    batch = groups(folder, MIXED, lengths=(6, 0, 9, 1))
    from pipeline.rl.signal import training_outputs

    outputs = training_outputs(batch, chosen)
    assert sorted(len(output.tokens) for output in outputs) == [1, 1, 6, 6, 9, 9]
    assert train(models(folder, chosen), batch, chosen)["grad_norm"] > 0


def test_weights_that_are_not_numbers_stop_the_run_before_the_update(folder: Path) -> None:
    chosen = section()
    learner = models(folder, chosen)
    with torch.no_grad():
        learner.engine.module.model.model.norm.weight[0] = float("nan")
    before = [tensor.nan_to_num(123.0) for tensor in weights(learner)]
    with pytest.raises(InputError, match=r"log-probability gap is nan"):
        train(learner, groups(folder, MIXED), chosen)
    assert same(before, [tensor.nan_to_num(123.0) for tensor in weights(learner)])


def test_a_reward_that_is_not_a_number_stops_the_run_before_the_update(folder: Path) -> None:
    chosen = section()
    learner, batch = models(folder, chosen), groups(folder, MIXED)
    broken = dataclasses.replace(batch[0].outputs[0], reward=float("nan"))
    batch[0] = dataclasses.replace(batch[0], outputs=[broken, *batch[0].outputs[1:]])
    before = weights(learner)
    with pytest.raises(InputError, match=r"loss is nan"):
        train(learner, batch, chosen)
    assert same(before, weights(learner))


def test_stale_sampler_weights_are_noticed_before_the_update(folder: Path, tmp_path: Path) -> None:
    chosen = section()
    stale = groups(save_tiny_model(tmp_path, seed=1, spread=0.1), MIXED)
    learner = models(folder, chosen)
    before = weights(learner)
    with pytest.raises(InputError, match="the sampler's weights are stale"):
        train(learner, stale, chosen)
    assert same(before, weights(learner))


@pytest.mark.parametrize(
    "keys",
    [
        {"kl_coefficient": 0.04, "updates": 2},
        {"supervision": "process", "loss_mean": "token"},
        {"method": "ppo", "updates": 2},
        {"method": "dpo"},
    ],
)
def test_a_step_does_not_depend_on_how_its_batch_is_cut(folder: Path, keys: dict[str, Any]) -> None:
    results = []
    for rows_at_once, row_tokens in ((1, 1), (4, 64)):
        chosen = section(row_tokens=row_tokens, **keys)
        learner = models(folder, chosen, rows_at_once)
        metrics = train(learner, groups(folder, MIXED), chosen)
        results.append((metrics["loss"], metrics["grad_norm"]))
    (loss, norm), (other_loss, other_norm) = results
    assert other_loss == pytest.approx(loss, rel=1e-6, abs=1e-7)
    assert other_norm == pytest.approx(norm, rel=1e-6)


def test_process_supervision_trains_each_token_by_its_own_and_later_steps() -> None:
    from pipeline.rl.signal import training_outputs

    ends, rewards = [[1, 2, 4], [0, 3]], [[0.9, 0.8, 0.2], [0.6, 0.7]]
    outputs = [
        Rollout(0, [5] * (e[-1] + 1), [-1.0] * (e[-1] + 1), "stop", "", 0.0, {}, "wrong", None, "", e, r)
        for e, r in zip(ends, rewards, strict=True)
    ]
    first, second = training_outputs([Group(1, 0, "q", "", "", [1], outputs)], section(supervision="process"))
    expected = [-0.0828, -0.0828, -1.1586, -1.8207, -1.8207], [0.0828, 0.2483, 0.2483, 0.2483]
    assert first.coefficients == pytest.approx(expected[0], abs=1e-4)
    assert second.coefficients == pytest.approx(expected[1], abs=1e-4)


def test_steps_reach_to_the_last_token_and_carry_the_rest_of_the_reward() -> None:
    from pipeline.rl.rewards import reward_steps

    assert reward_steps([(3, 0.5), (7, 0.25)], 10, weight=2.0, rest=1.0) == ([3, 9], [1.0, 1.5])
    assert reward_steps([], 1, weight=2.0, rest=0.0) == ([0], [0.0])


def test_a_symbolic_bomb_is_undecided_and_counted() -> None:
    import pipeline.rl.watch as watch
    from pipeline.common.training import start_process_group
    from pipeline.config.rl import RewardWeights
    from pipeline.evaluate.benchmarks import Item
    from pipeline.rl.rewards import score_outputs

    start_process_group()
    bomb = "\\boxed{\\left((x+1)^{9^{9}}\\right)^{9^{9}}}"
    texts = [bomb, "\\boxed{7}", ""]
    items = [Item("q", "What is it?", "x^2 + 7")] + [Item("q", "What is it?", "7")] * 2
    rewards = score_outputs(items, [[1]] * 3, [[5], [6], [2]], texts, [True] * 3, RewardWeights(), None)
    assert [reward.verdict.verdict for reward in rewards] == ["undecided", "right", "wrong"]
    assert [reward.total for reward in rewards] == [0.0, 1.0, 0.0]
    outputs = [
        Rollout(0, [5], [-1.0], "stop", text, r.total, r.parts, r.verdict.verdict, None, r.verdict.reason)
        for text, r in zip(texts, rewards, strict=True)
    ]
    seen = watch.summarise([Group(1, 0, "q", "", "", [1], outputs)], ["accuracy"], "cpu")
    assert seen["undecided"] == seen["empty"] == seen["accuracy"] == pytest.approx(1 / 3)


def test_an_answer_that_the_grader_fails_on_is_undecided_and_the_others_are_graded() -> None:
    from pipeline.config.rl import RewardWeights
    from pipeline.evaluate.benchmarks import Item
    from pipeline.rl.rewards import score_outputs

    items = [Item("q", "What is it?", None), Item("q", "What is it?", "7")]
    rewards = score_outputs(
        items, [[1]] * 2, [[5], [6]], ["\\boxed{7}"] * 2, [True] * 2, RewardWeights(), None
    )
    assert [reward.verdict.verdict for reward in rewards] == ["undecided", "right"]
    assert rewards[0].verdict.reason.startswith("the grader failed")
