"""GRPO (paper 4.1): group-relative advantages, by output or by step, and a KL term in the loss (Eq. 3)."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from pipeline.config.rl import RlSection
from pipeline.rl.methods import Method
from pipeline.rl.methods.ppo import clipped_loss
from pipeline.rl.objectives import gradient_coefficient, outcome_advantages, process_advantages
from pipeline.rl.packed_outputs import MicroBatch, Output, output_of
from pipeline.rl.rollout import Group


def _outputs(groups: Sequence[Group], section: RlSection) -> list[Output]:
    """Return the groups' outputs; without a KL term, groups whose advantages are all 0 are left out.

    Outputs without a single token count in their group's mean, but have nothing to train on.
    """
    found = []
    for number, group in enumerate(groups):
        outputs = [
            output_of(output, number, group.prompt, advantage)
            for output, advantage in zip(group.outputs, _advantages(group, section), strict=True)
            if output.tokens
        ]
        if section.kl_coefficient or any(any(output.advantages) for output in outputs):
            found += outputs
    return found


def _advantages(group: Group, section: RlSection) -> list[float] | list[list[float]]:
    """Return one for each output (outcome supervision, 4.1.2) or for each token (process, 4.1.3)."""
    if section.supervision == "outcome":
        rewards = torch.tensor(group.rewards, dtype=torch.float64)
        return outcome_advantages(rewards[None], section.advantage_std)[0].tolist()
    advantages = process_advantages(
        [torch.tensor(output.step_rewards, dtype=torch.float64) for output in group.outputs],
        [torch.tensor(output.step_ends) for output in group.outputs],
        [len(output.tokens) for output in group.outputs],
        section.advantage_std,
    )
    return [values.tolist() for values in advantages]


def _coefficient(section: RlSection, batch: MicroBatch, logprobs_N: Tensor) -> Tensor:
    reference_N = logprobs_N if batch.reference_N is None else batch.reference_N
    return gradient_coefficient(logprobs_N, reference_N, batch.packed.advantages_N, section.kl_coefficient)


METHOD = Method(
    source="policy",
    judge="model",
    outputs=_outputs,
    loss=partial(clipped_loss, kl=True),
    coefficient=_coefficient,
    reference=lambda section: section.kl_coefficient > 0,
    supervision=("outcome", "process"),
)
