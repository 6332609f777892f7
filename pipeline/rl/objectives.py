"""The objectives of the paper (section 4, appendix A.1) as pure tensor functions.

Shapes: Q questions; G outputs of each; K_i steps of output i, |o_i| its tokens; T tokens of one output; N
tokens of any outputs, concatenated; O outputs; P pairs of a right and a wrong output. Log-probabilities are
natural logarithms, of the token that was sampled.

The paper does not say which standard deviation GRPO divides by: the default is the population's, and a group
with equal rewards gets advantages of 0. Nor does it give PPO's gamma and lambda: 1 and 1, the defaults, weigh
all later rewards alike.

Every loss is a sum over tokens (or pairs) of weight x term, so losses of parts of a batch add up;
`token_weights` gives the weights of the paper's mean and of other means in use. Defaults are the paper's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Mean = Literal["output", "token", "constant"]
Std = Literal["population", "sample", "none"]
ROUNDING = 1e-6  # rewards of a group that differ by less, relative to the largest, are equal


def _normalised(rewards: Tensor, std: Std) -> Tensor:
    """(rewards - mean) / std over the last dimension; exactly 0 where all are equal but for rounding."""
    if rewards.shape[-1] == 0:
        return rewards
    most, least = rewards.amax(-1, keepdim=True), rewards.amin(-1, keepdim=True)
    flat = most - least <= ROUNDING * torch.maximum(most.abs(), least.abs())
    centred = torch.where(flat, 0.0, rewards - rewards.mean(-1, keepdim=True))
    if std == "none" or rewards.shape[-1] == 1:
        return centred
    spread = rewards.std(-1, correction=int(std == "sample"), keepdim=True)
    return centred / torch.where(flat, 1.0, spread)


def outcome_advantages(rewards_QG: Tensor, std: Std = "population") -> Tensor:
    """Outcome supervision (4.1.2): an output's reward relative to its group, for all its tokens; (Q, G).

    `std`: the standard deviation to divide by; `none` only subtracts the mean (Dr. GRPO).
    """
    return _normalised(rewards_QG, std)


def process_advantages(
    step_rewards: Sequence[Tensor],
    step_ends: Sequence[Tensor],
    lengths: Sequence[int],
    std: Std = "population",
) -> list[Tensor]:
    """Process supervision (4.1.3) for one group of G outputs; returns G tensors of shape (|o_i|,).

    `step_rewards[i]` (K_i,) are the rewards of output i's steps and `step_ends[i]` (K_i,) the index of each
    step's last token, ascending. Mean and std are taken over all steps of all outputs. A token's advantage is
    the sum of the normalised rewards of the steps that end at or after it: 0 after the last step.
    """
    counts = [len(rewards) for rewards in step_rewards]
    normalised = _normalised(torch.cat(list(step_rewards)), std).split(counts)
    advantages = []
    for rewards, ends, length in zip(normalised, step_ends, lengths, strict=True):
        here_and_later = torch.arange(length)[:, None] <= ends[None, :]
        advantages.append((here_and_later * rewards).sum(-1))
    return advantages


def generalised_advantages(
    rewards_T: Tensor, values_T: Tensor, gamma: float = 1.0, lam: float = 1.0
) -> tuple[Tensor, Tensor]:
    """GAE of one output (PPO, paper 4.1.1): (advantages, returns), each (T,).

    `rewards_T[t]` is what token t earned, `values_T[t]` the critic's value of the state in which it was
    chosen; the state after the last token is worth 0. A_t = sum over l of (gamma lam)^l delta_{t+l} with
    delta_t = r_t + gamma V_{t+1} - V_t; returns, the critic's targets, are A_t + V_t.
    """
    following = torch.cat([values_T[1:], values_T.new_zeros(1)])
    deltas = rewards_T + gamma * following - values_T
    advantages = torch.zeros_like(deltas)
    last = deltas.new_zeros(())
    for t in range(len(deltas) - 1, -1, -1):
        last = deltas[t] + gamma * lam * last
        advantages[t] = last
    return advantages, advantages + values_T


def token_weights(
    lengths_O: Tensor, outputs: int, mean: Mean = "output", *, tokens: int = 0, longest: int = 0
) -> Tensor:
    """Return each token's share of the loss, (N,), for outputs of `lengths_O` tokens, of `outputs` in all.

    `output`: mean over the tokens of an output, then over outputs (Eq. 3). `token`: one mean over all
    `tokens` of the batch (DAPO). `constant`: sum over tokens / `longest` possible length, then mean over
    outputs (Dr. GRPO).
    """
    if mean == "output":
        shares = 1 / (outputs * lengths_O)
    else:
        shares = torch.full_like(lengths_O, 1.0, dtype=torch.get_default_dtype())
        shares /= tokens if mean == "token" else outputs * longest
    return shares.repeat_interleave(lengths_O)


def kl_estimate(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Estimate KL(policy || reference) per token (Eq. 4, Schulman's k3): x - log x - 1, x = ref / policy.

    Never negative, and unbiased for tokens sampled from the policy. Shape of its arguments.
    """
    log_ratio = reference_logprobs - logprobs
    return torch.expm1(log_ratio) - log_ratio


def clipped_surrogate(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    clip: float,
    clip_high: float | None = None,
) -> Tensor:
    """min(ratio * A, clip(ratio, 1 - clip, 1 + clip_high) * A) per token (Eq. 3), to be maximised.

    `clip_high`: None is `clip`, as in the paper.
    """
    ratio = torch.exp(logprobs - old_logprobs)
    high = clip if clip_high is None else clip_high
    return torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + high) * advantages)


def clipped(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    clip: float,
    clip_high: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return boolean masks (lower, upper): where each bound of the clip removes the gradient."""
    ratio = torch.exp(logprobs - old_logprobs)
    high = clip if clip_high is None else clip_high
    return (ratio < 1 - clip) & (advantages < 0), (ratio > 1 + high) & (advantages > 0)


def importance_weights(old_logprobs: Tensor, sampler_logprobs: Tensor, cap: float) -> Tensor:
    """min(old policy / sampler, cap) per token: corrects for a sampler that differs from the old policy.

    A factor of the surrogate; no gradient flows through it.
    """
    return torch.exp(old_logprobs - sampler_logprobs).clamp(max=cap).detach()


@dataclass(frozen=True)
class LossTerms:
    """Terms of a clipped loss of N tokens, each summed with the tokens' shares of the batch as weights."""

    loss: Tensor
    kl: Tensor
    clip_low: Tensor
    clip_high: Tensor


def grpo_loss(
    logprobs_N: Tensor,
    old_logprobs_N: Tensor,
    reference_logprobs_N: Tensor | None,
    advantages_N: Tensor,
    weights_N: Tensor,
    clip: float = 0.2,
    kl_coefficient: float = 0.04,
    clip_high: float | None = None,
    importance_N: Tensor | None = None,
) -> LossTerms:
    """Return the negative of the GRPO objective (Eq. 3); without a reference, of PPO's (Eq. 1).

    `weights_N` is each token's share (`token_weights`). The KL term stands outside the clip, in the loss and
    not in the reward; without `reference_logprobs_N` there is none. `importance_N` multiplies the surrogate.
    Gradient flows through `logprobs_N` alone.
    """
    old_N = old_logprobs_N.detach()
    objective_N = clipped_surrogate(logprobs_N, old_N, advantages_N, clip, clip_high)
    if importance_N is not None:
        objective_N = importance_N * objective_N
    kl = torch.zeros((), device=logprobs_N.device)
    if reference_logprobs_N is not None:
        kl_N = kl_estimate(logprobs_N, reference_logprobs_N.detach())
        objective_N = objective_N - kl_coefficient * kl_N
        kl = (weights_N * kl_N).sum().detach()
    with torch.no_grad():
        low_N, high_N = clipped(logprobs_N, old_N, advantages_N, clip, clip_high)
    return LossTerms(
        -(weights_N * objective_N).sum(), kl, (weights_N * low_N).sum(), (weights_N * high_N).sum()
    )


def gradient_coefficient(
    logprobs: Tensor, reference_logprobs: Tensor, advantages: Tensor, kl_coefficient: float
) -> Tensor:
    """Return GRPO's factor of grad log pi(token) while policy and old policy are equal (Eq. 21)."""
    return advantages + kl_coefficient * torch.expm1(reference_logprobs - logprobs)


def likelihood_loss(logprobs_N: Tensor, coefficients_N: Tensor, weights_N: Tensor) -> Tensor:
    """-sum of weight x coefficient x log pi: SFT with coefficient 1 (6), RFT and Online RFT with I(o) (8)."""
    return -(weights_N * coefficients_N * logprobs_N).sum()


def penalised_rewards(
    final_rewards_O: Tensor,
    logprobs_N: Tensor,
    reference_logprobs_N: Tensor,
    lengths_O: Tensor,
    kl_coefficient: float,
) -> Tensor:
    """Return PPO's reward of each token (Eq. 2), (N,): -beta log(policy / reference), and at an output's last
    token its reward on top.
    """
    rewards_N = -kl_coefficient * (logprobs_N - reference_logprobs_N).detach()
    last_O = lengths_O.cumsum(0) - 1
    return rewards_N.index_add(0, last_O, final_rewards_O.to(rewards_N.dtype))


def value_loss(
    values_N: Tensor, old_values_N: Tensor, returns_N: Tensor, weights_N: Tensor, clip: float | None = None
) -> Tensor:
    """Return the critic's loss: weighted half squared error against the returns.

    With `clip` the loss no longer falls once a value is further than that from its value before the update.
    """
    errors_N = (values_N - returns_N).square()
    if clip is not None:
        near_N = old_values_N + (values_N - old_values_N).clamp(-clip, clip)
        errors_N = torch.maximum(errors_N, (near_N - returns_N).square())
    return 0.5 * (weights_N * errors_N).sum()


def sequence_logprobs(logprobs_N: Tensor, lengths_O: Tensor, mean: bool = True) -> Tensor:
    """Return the mean (or sum) of the tokens' log-probabilities of each output, (O,)."""
    owner_N = torch.arange(len(lengths_O), device=lengths_O.device).repeat_interleave(lengths_O)
    sums_O = logprobs_N.new_zeros(len(lengths_O)).index_add(0, owner_N, logprobs_N)
    return sums_O / lengths_O if mean else sums_O


def dpo_loss(
    right_P: Tensor,
    wrong_P: Tensor,
    reference_right_P: Tensor,
    reference_wrong_P: Tensor,
    beta: float,
) -> Tensor:
    """-log sigmoid(beta (log-ratio of the right - log-ratio of the wrong output)) of each pair, (P,).

    With means over tokens (`sequence_logprobs`) this is the paper's DPO (Eq. 12), with sums the standard one.
    Its gradient coefficient is beta sigmoid(-beta margin); the paper's Eq. 14 lacks the leading beta.
    """
    margin_P = (right_P - reference_right_P.detach()) - (wrong_P - reference_wrong_P.detach())
    return -F.logsigmoid(beta * margin_P)
