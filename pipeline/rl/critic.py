"""The critic (paper 4.1.1): a model of the policy's size that predicts the rewards still to come at a token.

Shapes: B rows, T positions, D hidden size, N output tokens of the rows.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.config.rl import RlSection
from pipeline.reward.model import ScalarModel
from pipeline.rl.metrics import check_finite
from pipeline.rl.objectives import generalised_advantages, penalised_rewards, value_loss
from pipeline.rl.packed_outputs import MicroBatch, PackedOutputs, output_logprobs
from pipeline.training.engine import update

VALUE_CLIP = 0.2  # a value that moves further in one exploration gains nothing; the paper gives no number


class Critic(ScalarModel):
    """Predicts values, from a head that starts at 0."""

    def forward(
        self, tokens_BT: Tensor, positions_BT: Tensor, places_N: Tensor, documents: dict[str, Any]
    ) -> Tensor:
        """Return values (N,), fp32, of the states in which the output tokens at `places_N` were chosen."""
        return self.scalars(tokens_BT, positions_BT, documents, places_N)


def _values(critic: Any, packed: PackedOutputs) -> Tensor:
    """Return values of the output tokens, (N,); `critic` is a `Critic` or an engine around one."""
    return critic(packed.tokens_BT, packed.positions_BT, packed.places_N, packed.documents)


@torch.no_grad()
def prepare_critic(
    critic: Any, reference: nn.Module | None, batches: Sequence[MicroBatch], section: RlSection
) -> None:
    """Set values, advantages and returns of the exploration, before any weight changes."""
    for batch in batches:
        packed = batch.packed.to(critic.device)
        batch.old_values_N = _values(critic, packed)
        if reference is not None:
            batch.reference_N = output_logprobs(reference, packed)
        advantages_N, batch.returns_N = estimate(packed, batch.old_values_N, batch.reference_N, section)
        batch.packed = replace(packed, advantages_N=advantages_N)


@torch.no_grad()
def estimate(
    packed: PackedOutputs, values_N: Tensor, reference_N: Tensor | None, section: RlSection
) -> tuple[Tensor, Tensor]:
    """(advantages, returns) of the tokens, (N,) each, by GAE over the penalised rewards (Eq. 2).

    The old policy's log-probabilities in the penalty are those that the sampler reported.
    """
    sampled_N = packed.sampler_logprobs_N
    reference_N = sampled_N if reference_N is None else reference_N
    rewards_N = penalised_rewards(
        packed.rewards_O, sampled_N, reference_N, packed.lengths_O, section.kl_coefficient
    )
    lengths = packed.lengths_O.tolist()
    pairs = [
        generalised_advantages(rewards, values)
        for rewards, values in zip(rewards_N.split(lengths), values_N.split(lengths), strict=True)
    ]
    return torch.cat([advantages for advantages, _ in pairs]), torch.cat([returns for _, returns in pairs])


def update_critic(
    critic: Any, batches: Sequence[MicroBatch], section: RlSection, learning_rate: float
) -> dict[str, float | None]:
    """One step of the critic on the same batches; its rate follows the policy's warm-up."""

    def loss_of(batch: MicroBatch) -> Tensor:
        values_N = _values(critic, batch.packed)
        return value_loss(values_N, batch.old_values_N, batch.returns_N, batch.packed.weights_N, VALUE_CLIP)

    rate = learning_rate / section.learning_rate * section.ppo.value_learning_rate
    loss, norm = update(critic, batches, loss_of, rate)
    check_finite("value loss", loss)
    return {"value_loss": loss, "value_grad_norm": norm}
