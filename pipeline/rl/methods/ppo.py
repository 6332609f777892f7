"""PPO (paper 4.1.1): the clipped objective (Eq. 1) on a critic's advantages; the KL term is in the reward."""

from collections.abc import Sequence

from torch import Tensor

from pipeline.config.rl import RlSection
from pipeline.rl.methods import Method
from pipeline.rl.metrics import Watched
from pipeline.rl.objectives import grpo_loss, importance_weights
from pipeline.rl.packed_outputs import MicroBatch, Output, output_of
from pipeline.rl.rollout import Group


def _outputs(groups: Sequence[Group], section: RlSection) -> list[Output]:
    """Return all outputs that have tokens; the critic makes their advantages from the rewards."""
    return [
        output_of(output, number, group.prompt, 0.0)
        for number, group in enumerate(groups)
        for output in group.outputs
        if output.tokens
    ]


def clipped_loss(
    section: RlSection, batch: MicroBatch, logprobs_N: Tensor, watched: Watched, kl: bool = False
) -> Tensor:
    """Return the negative clipped objective; `kl`: with GRPO's KL term where there is a reference."""
    packed, importance_N = batch.packed, None
    if section.importance_cap is not None:
        importance_N = importance_weights(batch.old_N, packed.sampler_logprobs_N, section.importance_cap)
        watched.add(importance=(packed.weights_N * importance_N).sum())
    terms = grpo_loss(
        logprobs_N,
        batch.old_N,
        batch.reference_N if kl else None,
        packed.advantages_N,
        packed.weights_N,
        section.clip,
        section.kl_coefficient,
        section.clip_high,
        importance_N,
    )
    watched.add(clip_low=terms.clip_low, clip_high=terms.clip_high)
    if kl and batch.reference_N is not None:
        watched.add(kl=terms.kl)
    return terms.loss


METHOD = Method(
    source="policy",
    judge="model",
    outputs=_outputs,
    loss=clipped_loss,
    coefficient=lambda section, batch, logprobs_N: batch.packed.advantages_N,
    reference=lambda section: section.kl_coefficient > 0,
    critic=True,
)
