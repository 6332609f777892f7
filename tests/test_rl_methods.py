"""Every method of the paper's Table 10: its loss has the coefficient's gradient and finds the best answer."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from given.rollouts import group_of, rollout

from pipeline.config.rl import RlSection, known_methods
from pipeline.config.root import Config
from pipeline.core.code import Code
from pipeline.core.errors import InputError
from pipeline.rl.methods import Method, method_of
from pipeline.rl.metrics import Watched
from pipeline.rl.objectives import (
    generalised_advantages,
    grpo_loss,
    importance_weights,
    likelihood_loss,
    outcome_advantages,
    penalised_rewards,
    sequence_logprobs,
    token_weights,
    value_loss,
)
from pipeline.rl.packed_outputs import MicroBatch, PackedOutputs
from workflow.graph import Graph
from workflow.keys import Keys

LENGTHS = torch.tensor([2, 5, 1, 3])  # of four outputs; pairs are (0, 1) and (2, 3), the right one first
RIGHT = torch.tensor([True, False, True, False])


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def per_token(values_O: torch.Tensor) -> torch.Tensor:
    return values_O.repeat_interleave(LENGTHS)


def margins_of(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """DPO's margins of the two pairs, by output."""
    ratios = sequence_logprobs(logprobs, LENGTHS) - sequence_logprobs(reference, LENGTHS)
    return (ratios[::2] - ratios[1::2]).repeat_interleave(2)


def micro_batch(
    method: Method,
    lengths: torch.Tensor,
    old: torch.Tensor,
    reference: torch.Tensor,
    advantages: torch.Tensor,
) -> MicroBatch:
    """Outputs of `lengths` tokens without their rows; of pairs each weighs the same."""
    none, outputs = torch.empty(0), len(lengths)
    weights = token_weights(lengths, outputs).double()
    if method.pairs:
        weights = torch.full_like(weights, 2 / outputs)
    packed = PackedOutputs(*[none] * 7, old, advantages, weights, lengths, none, 0)
    return MicroBatch(packed, old_N=old, reference_N=reference)


@pytest.mark.parametrize("name", known_methods())
def test_the_gradient_of_each_row_of_table_10_is_its_coefficient(name: str) -> None:
    logprobs = -draw(0, 11).abs()
    reference = logprobs + 0.5 * draw(1, 11)
    advantages = draw(2, 11) if name == "ppo" else per_token(draw(2, 4))
    section = RlSection(method=name, kl_coefficient=0.3, dpo={"beta": 0.3})
    method = method_of(section)
    batch = micro_batch(method, LENGTHS, logprobs, reference, advantages)
    leaf = logprobs.clone().requires_grad_()
    method.loss(section, batch, leaf, Watched()).backward()
    expected = -batch.packed.weights_N * method.coefficient(section, batch, logprobs)
    assert torch.allclose(leaf.grad, expected, atol=1e-7)


def test_coefficients_of_table_10_by_hand() -> None:
    logprobs, advantages = -draw(0, 11).abs(), per_token(draw(2, 4))
    reference = logprobs + 0.5 * draw(1, 11)

    def coefficient(name: str) -> torch.Tensor:
        section = RlSection(method=name, kl_coefficient=0.3, dpo={"beta": 0.3})
        method = method_of(section)
        batch = micro_batch(method, LENGTHS, logprobs, reference, advantages)
        return method.coefficient(section, batch, logprobs)

    for name in ("rft", "online_rft", "ppo"):  # I(o), or what the critic says
        assert torch.equal(coefficient(name), advantages)
    penalty = 0.3 * (torch.exp(reference - logprobs) - 1)
    assert torch.allclose(coefficient("grpo"), advantages + penalty, atol=1e-12)
    strength = 0.3 * torch.sigmoid(-0.3 * margins_of(logprobs, reference)) / LENGTHS
    expected = per_token(torch.where(RIGHT, strength, -strength))
    assert torch.allclose(coefficient("dpo"), expected, atol=1e-12)


def test_sft_the_first_row_of_table_10_has_coefficient_one() -> None:
    leaf, weights = draw(0, 11).requires_grad_(), token_weights(LENGTHS, len(LENGTHS)).double()
    likelihood_loss(leaf, torch.ones(11), weights).backward()
    assert torch.equal(leaf.grad, -weights)


def test_table_10_says_where_outputs_come_from_and_who_judges_them() -> None:
    paper = ("rft", "online_rft", "dpo", "ppo", "grpo")
    methods = {name: method_of(RlSection(method=name)) for name in paper}
    assert {name for name, method in methods.items() if method.online} == {"online_rft", "ppo", "grpo"}
    assert {name for name, method in methods.items() if method.judge == "model"} == {"ppo", "grpo"}
    assert {name for name, method in methods.items() if method.judge == "rule"} == {
        "rft",
        "dpo",
        "online_rft",
    }


OWN = '''"""GRPO without a clip."""
from dataclasses import replace

from pipeline.rl.methods import grpo


def loss(section, batch, logprobs_N, watched):
    ratio_N = (logprobs_N - batch.old_N).exp()
    return -(batch.packed.weights_N * ratio_N * batch.packed.advantages_N).sum()


METHOD = replace(grpo.METHOD, loss=loss)
BARE = replace(grpo.METHOD, loss=lambda section, batch, logprobs_N, watched: logprobs_N)
WRONG = replace(grpo.METHOD, loss=lambda section, batch, logprobs_N, watched: batch.nothing)
'''


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A file of a user's, of a few lines."""
    (tmp_path / "loss.py").write_text(OWN)
    return tmp_path / "loss.py"


def gradient_of(method: Method, section: RlSection) -> torch.Tensor:
    leaf = (-draw(0, 11).abs()).requires_grad_()
    batch = micro_batch(method, LENGTHS, leaf.detach() - 0.05 * draw(1, 11), leaf.detach(), draw(2, 11))
    method.loss(section, batch, leaf, Watched()).backward()
    return leaf.grad


def test_a_loss_in_a_file_of_ones_own_takes_the_place_of_a_methods(own: Path) -> None:
    chosen = RlSection(method=str(own), kl_coefficient=0)
    assert chosen == RlSection(method=f"{own}:METHOD", kl_coefficient=0)
    wide = RlSection(clip=0.9, clip_high=9, kl_coefficient=0)  # no ratio is as far from 1
    assert torch.allclose(gradient_of(method_of(chosen), chosen), gradient_of(method_of(wide), wide))
    assert method_of(chosen).online and method_of(chosen).supervision == ("outcome", "process")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("loss.py:NONE", "rl.method: .*loss.py: has no 'NONE'"),
        ("loss.py:loss", "rl.method: .*loss.py:loss: function, no Method; make one of another"),
        ("none.py", "rl.method: .*none.py: no such file"),
        (
            "loss.py:BARE",
            r"rl.method: .*:BARE: its loss gave shape \(11,\); expected a number with",
        ),
        ("loss.py:WRONG", "rl.method: .*:WRONG: its loss failed in line 14: AttributeError: .*nothing"),
    ],
)
def test_a_method_that_is_none_or_fails_is_one_line(own: Path, name: str, message: str) -> None:
    chosen = RlSection(method=f"{own.parent}/{name}")
    with pytest.raises(InputError, match=message) as error:
        gradient_of(method_of(chosen), chosen)
    assert "\n" not in str(error.value)


def test_the_file_of_a_method_is_an_input_of_the_model_by_its_bytes(own: Path) -> None:
    def key(method: str) -> str:
        model = {"stage": "rl", "init": "owner/model", "method": method, "benchmarks": []}
        return Keys(Graph(Config({"models": {"new": model}}))).key("rl/new")

    before = key(str(own))
    os.utime(own)
    assert key(str(own)) == before
    own.write_text(OWN.replace("ratio_N *", "ratio_N.sqrt() *"))
    assert key(str(own)) != before


@pytest.mark.slow
def test_a_model_is_made_by_the_code_of_every_method() -> None:
    files = Code().definitions("pipeline.rl").keys()
    assert {f"pipeline/rl/methods/{name}.py" for name in known_methods()} <= files


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.9, 0.8), (1.0, 0.0)])
def test_advantages_of_ppo_equal_their_definition(gamma: float, lam: float) -> None:
    rewards, values = draw(3, 6), draw(4, 6)
    advantages, returns = generalised_advantages(rewards, values, gamma, lam)
    r, v = rewards.numpy(), np.append(values.numpy(), 0.0)
    deltas = [r[t] + gamma * v[t + 1] - v[t] for t in range(6)]
    expected = [sum((gamma * lam) ** (s - t) * deltas[s] for s in range(t, 6)) for t in range(6)]
    assert np.allclose(advantages, expected, atol=1e-7)
    assert np.allclose(returns, expected + values.numpy(), atol=1e-7)


def test_rewards_of_ppo_carry_the_penalty_at_every_token_and_the_reward_at_the_last() -> None:
    logprobs, reference = draw(7, 11), draw(8, 11)
    rewards = penalised_rewards(torch.tensor([1.0, 0.0, 1.0, 0.5]), logprobs, reference, LENGTHS, 0.04)
    expected = -0.04 * (logprobs - reference)
    for place, reward in ((1, 1.0), (7, 1.0), (10, 0.5)):
        expected[place] += reward
    assert torch.allclose(rewards, expected, atol=1e-12)


def test_value_loss_by_hand_and_clipped() -> None:
    values, old = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 2.0])
    returns, weights = torch.tensor([2.0, 0.0]), torch.tensor([0.5, 0.5])
    assert value_loss(values, old, returns, weights).item() == pytest.approx(0.25 * (1 + 4))
    # The first value moved by 1 and may profit from 0.2 only: (0.2 - 2)^2 = 3.24.
    assert value_loss(values, old, returns, weights, clip=0.2).item() == pytest.approx(0.25 * (3.24 + 4))


def test_importance_weights_are_the_capped_ratio() -> None:
    old, sampler = draw(11, 4), draw(12, 4)
    expected = (old - sampler).exp().clamp(max=1.5)
    assert torch.allclose(importance_weights(old, sampler, cap=1.5), expected)


def test_advantages_without_std_are_distances_from_the_mean() -> None:
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    assert outcome_advantages(rewards, "none").tolist() == [[0.75, -0.25, -0.25, -0.25]]
    assert (outcome_advantages(torch.full((1, 16), 0.1), "none") == 0).all()


@pytest.mark.parametrize("name", known_methods())
def test_a_tabular_policy_finds_the_best_answer(name: str) -> None:
    """Five answers, one right. Each method moves all probability to it; RFT's limit is its data's as well."""
    logits, value = torch.zeros(5, requires_grad=True), torch.zeros((), requires_grad=True)
    optimizer = torch.optim.SGD([logits, value], lr=0.7)
    generator = torch.Generator().manual_seed(0)
    section = RlSection(method=name, kl_coefficient=0.0, dpo={"beta": 1.0})
    method = method_of(section)
    for _ in range(150):
        source = logits if method.online else torch.zeros(5)
        answers = torch.multinomial(source.softmax(0), 32, replacement=True, generator=generator).tolist()
        drawn = [
            rollout(answer == 3, [answer], verdict="right" if answer == 3 else "wrong") for answer in answers
        ]
        outputs = method.outputs([group_of(drawn)], section)
        logprobs = logits.log_softmax(0)[[output.tokens[0] for output in outputs]]
        advantages = torch.tensor([output.advantages[0] for output in outputs])
        ones, rewards = torch.ones(len(outputs)), torch.tensor([output.reward for output in outputs]).float()
        if method.critic:
            advantages = rewards - value.detach()
        reference = torch.zeros(5).log_softmax(0)[[output.tokens[0] for output in outputs]]
        batch = micro_batch(method, ones.long(), logprobs.detach(), reference, advantages)
        loss = method.loss(section, batch, logprobs, Watched())
        if method.critic:
            loss = loss + value_loss(value * ones, value.detach() * ones, rewards, ones / len(outputs))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert logits.softmax(0)[3] > 0.9
    if method.critic:
        assert value.item() > 0.8  # the critic has learnt what the policy earns


def test_grpo_under_a_kl_penalty_reaches_its_known_optimum() -> None:
    """All answers as one group, weighted by their probability: exact expectations.

    The gradient of k3 in the loss is that of KL(reference || policy), so the optimum is not the reference
    tilted by exp(reward / beta) but p = beta reference / (c - reward), with c such that p sums to 1.
    """
    reward = torch.tensor([0.0, 0.3, 1.0], dtype=torch.float64)
    reference = torch.tensor([0.2, -0.1, 0.0], dtype=torch.float64).log_softmax(0)
    low, high, beta = 1.0, 10.0, 0.5
    for _ in range(100):
        c = (low + high) / 2
        low, high = (c, high) if (beta * reference.exp() / (c - reward)).sum() > 1 else (low, c)
    logits = reference.clone().requires_grad_()
    optimizer = torch.optim.SGD([logits], lr=1.0)
    for _ in range(300):
        logprobs = logits.log_softmax(0)
        weights = logprobs.exp().detach()
        advantages = reward - (weights * reward).sum()
        optimizer.zero_grad()
        grpo_loss(logprobs, logprobs, reference, advantages, weights, 0.2, beta).loss.backward()
        optimizer.step()
    assert torch.allclose(logits.softmax(0), beta * reference.exp() / (c - reward), atol=1e-6)
