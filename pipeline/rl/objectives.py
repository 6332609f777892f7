"""The objectives of paper section 4 as pure tensor functions: group advantages, KL estimate, clipped
surrogate.

Legend of shapes: Q questions; G outputs of each; K_i steps of output i; |o_i| its tokens; N tokens of any set
of outputs in one row, in any order. Probabilities are natural logarithms, of the token that was sampled.

The paper leaves the standard deviation open. Default here: the population's; in a group whose rewards are all
equal every advantage is 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


def _normalised(rewards: Tensor, sample_std: bool) -> Tensor:
    """(rewards - mean) / std over the last dimension; 0 where all are equal, whatever the rounding."""
    flat = rewards.amax(-1, keepdim=True) == rewards.amin(-1, keepdim=True)
    if rewards.shape[-1] == 1:
        return torch.zeros_like(rewards)
    centred = rewards - rewards.mean(-1, keepdim=True)
    spread = rewards.std(-1, correction=int(sample_std), keepdim=True)
    return torch.where(flat, 0.0, centred / torch.where(flat, 1.0, spread))


def outcome_advantages(rewards_QG: Tensor, sample_std: bool = False) -> Tensor:
    """Outcome supervision (4.1.2): an output's reward relative to its group, for all its tokens; (Q, G)."""
    return _normalised(rewards_QG, sample_std)


def process_advantages(
    step_rewards: Sequence[Tensor],
    step_ends: Sequence[Tensor],
    lengths: Sequence[int],
    sample_std: bool = False,
) -> list[Tensor]:
    """Process supervision (4.1.3) for one group of G outputs; returns G tensors of shape (|o_i|,).

    `step_rewards[i]` (K_i,) are the rewards of output i's steps and `step_ends[i]` (K_i,) the index of each
    step's last token, rising. Mean and std are those of all steps of all outputs. A token's advantage is the
    sum of the normalised rewards of the steps that end at it or after it; tokens after the last step's end
    have 0.
    """
    counts = [len(rewards) for rewards in step_rewards]
    normalised = _normalised(torch.cat(list(step_rewards)), sample_std).split(counts)
    advantages = []
    for rewards, ends, length in zip(normalised, step_ends, lengths, strict=True):
        here_and_later = torch.arange(length)[:, None] <= ends[None, :]
        advantages.append((here_and_later * rewards).sum(-1))
    return advantages


def kl_estimate(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Estimate of KL(policy || reference) per token (Eq. 4, Schulman's k3): x - log x - 1 with x = ref /
    policy.

    Never negative, and unbiased for tokens sampled from the policy. Shape of its arguments.
    """
    log_ratio = reference_logprobs - logprobs
    return torch.expm1(log_ratio) - log_ratio


def clipped_surrogate(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """min(ratio * A, clip(ratio, 1 - clip, 1 + clip) * A) per token (Eq. 3), to be maximised."""
    ratio = torch.exp(logprobs - old_logprobs)
    return torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)


def clipped(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """Where the clip takes the gradient away; boolean, shape of its arguments."""
    ratio = torch.exp(logprobs - old_logprobs)
    return torch.where(advantages >= 0, ratio > 1 + clip, ratio < 1 - clip) & (advantages != 0)


@dataclass(frozen=True)
class GrpoTerms:
    """What the GRPO loss of N tokens is made of; sums weighted by each token's share of the batch."""

    loss: Tensor
    kl: Tensor
    clip_share: Tensor


def grpo_loss(
    logprobs_N: Tensor,
    old_logprobs_N: Tensor,
    reference_logprobs_N: Tensor | None,
    advantages_N: Tensor,
    weights_N: Tensor,
    clip: float,
    kl_coefficient: float,
) -> GrpoTerms:
    """The negative of the GRPO objective (Eq. 3), in parts that may be added over micro-batches.

    `weights_N` is each token's share: 1 / (outputs in the batch * |o_i|), so that the sum over all tokens is
    the mean over outputs of the mean over their tokens. The KL term stands outside the clip, in the loss and
    not in the reward; without `reference_logprobs_N` there is none. Gradient flows through `logprobs_N`
    alone.
    """
    objective_N = clipped_surrogate(logprobs_N, old_logprobs_N.detach(), advantages_N, clip)
    kl = torch.zeros((), device=logprobs_N.device)
    if reference_logprobs_N is not None:
        kl_N = kl_estimate(logprobs_N, reference_logprobs_N.detach())
        objective_N = objective_N - kl_coefficient * kl_N
        kl = (weights_N * kl_N).sum().detach()
    with torch.no_grad():
        share = (weights_N * clipped(logprobs_N, old_logprobs_N, advantages_N, clip)).sum()
    return GrpoTerms(-(weights_N * objective_N).sum(), kl, share)


def gradient_coefficient(
    logprobs: Tensor, reference_logprobs: Tensor, advantages: Tensor, kl_coefficient: float
) -> Tensor:
    """What multiplies a token's grad log pi in GRPO's gradient when policy and old policy are one (21)."""
    return advantages + kl_coefficient * torch.expm1(reference_logprobs - logprobs)
