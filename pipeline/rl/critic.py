"""PPO's critic (paper 4.1.1): a model of the policy's size that says what a token's state will earn.

Shapes: B rows, T positions, D hidden size, N output tokens of the rows.
"""

from typing import Any

import torch
from torch import Tensor, nn

from pipeline.common.packing import IGNORE
from pipeline.reward.model import load_trunk
from pipeline.rl.objectives import generalised_advantages, penalised_rewards
from pipeline.rl.rows import Rows


class Critic(nn.Module):
    """The trunk of a language model with a scalar head that starts at 0."""

    def __init__(self, trunk: nn.Module) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = nn.Linear(trunk.config.hidden_size, 1, dtype=trunk.dtype)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(
        self, tokens_BT: Tensor, positions_BT: Tensor, targets_BT: Tensor, mask_BTT: Tensor
    ) -> Tensor:
        """Values (N,), fp32, of the states in which the output tokens `targets_BT` were chosen."""
        hidden_BTD = self.trunk(
            input_ids=tokens_BT,
            position_ids=positions_BT,
            attention_mask=mask_BTT[:, None],
            use_cache=False,
        ).last_hidden_state
        return self.head(hidden_BTD[targets_BT != IGNORE]).squeeze(-1).float()


def load_critic(source: str, precision: str) -> Critic:
    """A new critic on the trunk of the model that training starts from."""
    return Critic(load_trunk(source, precision))


def values_of(critic: Any, rows: Rows) -> Tensor:
    """Values of the rows' output tokens, (N,); `critic` is a `Critic` or an engine around one."""
    return critic(rows.tokens_BT, rows.positions_BT, rows.targets_BT, rows.mask_BTT)


@torch.no_grad()
def estimate(
    rows: Rows, values_N: Tensor, reference_N: Tensor | None, kl_coefficient: float, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """(advantages, returns) of the rows' tokens, (N,) each, by GAE over the penalised rewards (Eq. 2).

    The old policy's log-probabilities in the penalty are those that the sampler reported.
    """
    sampled_N = rows.sampler_logprobs_N
    reference_N = sampled_N if reference_N is None else reference_N
    rewards_N = penalised_rewards(rows.rewards_O, sampled_N, reference_N, rows.lengths_O, kl_coefficient)
    lengths = rows.lengths_O.tolist()
    pairs = [
        generalised_advantages(rewards, values, gamma, lam)
        for rewards, values in zip(rewards_N.split(lengths), values_N.split(lengths), strict=True)
    ]
    return torch.cat([advantages for advantages, _ in pairs]), torch.cat([returns for _, returns in pairs])
