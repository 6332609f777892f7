"""GRPO's formulas against hand-worked values, autograd, finite differences and a NumPy reference."""

import numpy as np
import pytest
import torch

from pipeline.rl.objectives import (
    clipped,
    clipped_surrogate,
    grpo_loss,
    kl_estimate,
    outcome_advantages,
    process_advantages,
)


def close(found: torch.Tensor, expected: list[float], tolerance: float = 5e-5) -> bool:
    return torch.allclose(found.double(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=tolerance)


def test_outcome_advantages_by_hand() -> None:
    rewards = torch.tensor([[0.9, 0.3, 0.8, 0.2]])
    assert close(outcome_advantages(rewards)[0], [1.1508, -0.8220, 0.8220, -1.1508])
    assert close(outcome_advantages(rewards, std="sample")[0], [0.9966, -0.7119, 0.7119, -0.9966])


def test_tokens_after_the_last_step_have_no_advantage() -> None:
    (advantages,) = process_advantages([torch.tensor([1.0, 0.0])], [torch.tensor([0, 2])], [5])
    assert close(advantages, [0.0, -1.0, -1.0, 0.0, 0.0])


def test_one_step_per_output_is_outcome_supervision() -> None:
    rewards = torch.tensor([0.9, 0.3, 0.8, 0.2])
    process = process_advantages([r[None] for r in rewards], [torch.tensor([2])] * 4, [3] * 4)
    assert torch.allclose(torch.stack(process), outcome_advantages(rewards[None])[0, :, None].expand(4, 3))


@pytest.mark.parametrize("reward", [0.0, 0.1, 1.0, -3.7])
def test_equal_rewards_give_no_advantage(reward: float) -> None:
    """0.1 * 16 / 16 is not 0.1 in floating point: rounding must not become an advantage."""
    assert (outcome_advantages(torch.full((2, 16), reward)) == 0).all()
    assert (outcome_advantages(torch.full((2, 1), reward), std="sample") == 0).all()


def test_kl_estimate_by_hand_and_never_negative() -> None:
    ratios = torch.tensor([2.0, 0.5, 1.0])
    assert close(kl_estimate(torch.zeros(3), ratios.log()), [0.306853, 0.193147, 0.0], 1e-6)
    generator = torch.Generator().manual_seed(1)
    assert (
        kl_estimate(torch.randn(1000, generator=generator), torch.randn(1000, generator=generator)) >= 0
    ).all()


def test_kl_estimate_has_the_mean_of_the_exact_divergence() -> None:
    generator = torch.Generator().manual_seed(2)
    policy, reference = torch.randn(2, 7, dtype=torch.float64, generator=generator).log_softmax(-1)
    exact = (policy.exp() * (policy - reference)).sum()
    assert torch.isclose((policy.exp() * kl_estimate(policy, reference)).sum(), exact)


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "gradient"),
    [
        (1.0, 2.0, 2.0, 2.0),
        (1.5, 1.0, 1.2, 0.0),  # already much more likely: no further push
        (1.5, -1.0, -1.5, -1.5),  # a bad token that became likelier is pushed down in full
        (0.5, 1.0, 0.5, 0.5),
        (0.5, -1.0, -0.8, 0.0),
    ],
)
def test_clipped_surrogate_by_hand(ratio: float, advantage: float, value: float, gradient: float) -> None:
    logprob = torch.tensor(ratio, dtype=torch.float64).log().requires_grad_()
    surrogate = clipped_surrogate(logprob, torch.zeros(()), torch.tensor(advantage), 0.2)
    surrogate.backward()
    assert surrogate.item() == pytest.approx(value)
    assert logprob.grad.item() == pytest.approx(gradient)  # d ratio / d logprob = ratio
    low, high = clipped(logprob, torch.zeros(()), torch.tensor(advantage), 0.2)
    assert (low.item(), high.item()) == (gradient == 0 and ratio < 1, gradient == 0 and ratio > 1)


def batch(seed: int) -> dict[str, torch.Tensor]:
    """Three outputs of 2, 5 and 1 tokens."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda: torch.randn(8, dtype=torch.float64, generator=generator)  # noqa: E731
    lengths = torch.tensor([2] * 2 + [5] * 5 + [1], dtype=torch.float64)
    logprobs = draw()
    return {
        "logprobs_N": logprobs,
        "old_logprobs_N": logprobs + 0.3 * draw(),
        "reference_logprobs_N": logprobs + 0.3 * draw(),
        "advantages_N": draw(),
        "weights_N": 1 / (3 * lengths),
    }


def reference_loss(values: dict[str, np.ndarray], clip: float, beta: float) -> float:
    """Eq. 3 as it is printed, with loops."""
    total, start = 0.0, 0
    for length in (2, 5, 1):
        tokens = 0.0
        for t in range(start, start + length):
            ratio = np.exp(values["logprobs_N"][t] - values["old_logprobs_N"][t])
            advantage = values["advantages_N"][t]
            x = np.exp(values["reference_logprobs_N"][t] - values["logprobs_N"][t])
            surrogate = min(ratio * advantage, min(max(ratio, 1 - clip), 1 + clip) * advantage)
            tokens += surrogate - beta * (x - np.log(x) - 1)
        total += tokens / length
        start += length
    return -total / 3


@pytest.mark.parametrize("seed", range(5))
def test_grpo_loss_equals_a_numpy_reference(seed: int) -> None:
    values = batch(seed)
    terms = grpo_loss(**values, clip=0.2, kl_coefficient=0.04)
    expected = reference_loss({name: value.numpy() for name, value in values.items()}, 0.2, 0.04)
    assert terms.loss.item() == pytest.approx(expected, abs=1e-12)
