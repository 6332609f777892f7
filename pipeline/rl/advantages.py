"""Advantages: group-relative for GRPO (paper 4.1.2, 4.1.3), generalised advantage estimation (GAE) for PPO.

Shapes: Q questions; G outputs of each; K_i steps of output i; |o_i| its tokens; T tokens of one output.

The paper does not say which standard deviation GRPO divides by: the default is the population's, and a group
with equal rewards gets advantages of 0. Nor does it give PPO's gamma and lambda: 1 and 1, the defaults, weigh
all later rewards alike.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Std = Literal["population", "sample", "none"]


def _normalised(rewards: Tensor, std: Std, floor: float) -> Tensor:
    """(rewards - mean) / (std + floor) over the last dimension; exactly 0 where all are equal."""
    if rewards.shape[-1] == 0:
        return rewards
    flat = rewards.amax(-1, keepdim=True) == rewards.amin(-1, keepdim=True)
    centred = torch.where(flat, 0.0, rewards - rewards.mean(-1, keepdim=True))
    if std == "none" or rewards.shape[-1] == 1:
        return centred
    spread = rewards.std(-1, correction=int(std == "sample"), keepdim=True)
    return centred / torch.where(flat, 1.0, spread + floor)


def outcome_advantages(rewards_QG: Tensor, std: Std = "population", floor: float = 0.0) -> Tensor:
    """Outcome supervision (4.1.2): an output's reward relative to its group, for all its tokens; (Q, G).

    `std`: the standard deviation to divide by; `none` only subtracts the mean (Dr. GRPO). `floor` is added to
    it, so that rewards which hardly differ get small advantages.
    """
    return _normalised(rewards_QG, std, floor)


def process_advantages(
    step_rewards: Sequence[Tensor],
    step_ends: Sequence[Tensor],
    lengths: Sequence[int],
    std: Std = "population",
    floor: float = 0.0,
) -> list[Tensor]:
    """Process supervision (4.1.3) for one group of G outputs; returns G tensors of shape (|o_i|,).

    `step_rewards[i]` (K_i,) are the rewards of output i's steps and `step_ends[i]` (K_i,) the index of each
    step's last token, ascending. Mean and std are taken over all steps of all outputs. A token's advantage is
    the sum of the normalised rewards of the steps that end at or after it: 0 after the last step.
    """
    counts = [len(rewards) for rewards in step_rewards]
    normalised = _normalised(torch.cat(list(step_rewards)), std, floor).split(counts)
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
