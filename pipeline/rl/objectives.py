"""The objectives of the paper (section 4, appendix A.1) as pure tensor functions.

Group advantages (outcome, process) and GAE are re-exported from `advantages`. Shapes: N tokens of any
outputs, concatenated; O outputs; P pairs of a right and a wrong output. Log-probabilities are natural
logarithms, of the token that was sampled.

Every loss is a sum over tokens (or pairs) of weight x term, so losses of parts of a batch add up;
`token_weights` gives the weights of the paper's mean and of other means in use. Defaults are the paper's.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.rl.advantages import generalised_advantages, outcome_advantages, process_advantages

__all__ = [
    "LossTerms",
    "clipped",
    "clipped_surrogate",
    "dpo_loss",
    "generalised_advantages",
    "gradient_coefficient",
    "grpo_loss",
    "importance_weights",
    "kl_estimate",
    "likelihood_loss",
    "outcome_advantages",
    "penalised_rewards",
    "process_advantages",
    "sequence_logprobs",
    "token_weights",
    "value_loss",
]

Mean = Literal["output", "token", "constant"]


def token_weights(
    lengths_O: Tensor, outputs: int, mean: Mean = "output", *, tokens: int = 0, longest: int = 0
) -> Tensor:
    """Each token's share of the loss, (N,), for outputs of `lengths_O` tokens out of a batch of `outputs`.

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
    """Estimate of KL(policy || reference) per token (Eq. 4, Schulman's k3): x - log x - 1 with x = ref /
    policy.

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
    """Boolean masks (lower, upper): where each bound of the clip removes the gradient."""
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
    """The negative of the GRPO objective (Eq. 3); without a reference, of the PPO objective (Eq. 1).

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
    """GRPO's factor of grad log pi(token) while policy and old policy are equal (Eq. 21)."""
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
    """PPO's reward of each token (Eq. 2), (N,): -beta log(policy / reference), and at an output's last token
    its reward on top."""
    rewards_N = -kl_coefficient * (logprobs_N - reference_logprobs_N).detach()
    last_O = lengths_O.cumsum(0) - 1
    return rewards_N.index_add(0, last_O, final_rewards_O.to(rewards_N.dtype))


def value_loss(
    values_N: Tensor, old_values_N: Tensor, returns_N: Tensor, weights_N: Tensor, clip: float | None = None
) -> Tensor:
    """The critic's loss: weighted half squared error against the returns.

    With `clip` the loss no longer falls once a value is further than that from its value before the update.
    """
    errors_N = (values_N - returns_N).square()
    if clip is not None:
        near_N = old_values_N + (values_N - old_values_N).clamp(-clip, clip)
        errors_N = torch.maximum(errors_N, (near_N - returns_N).square())
    return 0.5 * (weights_N * errors_N).sum()


def sequence_logprobs(logprobs_N: Tensor, lengths_O: Tensor, mean: bool = True) -> Tensor:
    """Mean (or sum) of the tokens' log-probabilities of each output, (O,)."""
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
