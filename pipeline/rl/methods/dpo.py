"""DPO (A.1.3): pairs of a right and a wrong output of the initial model."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline.config.rl import RlSection
from pipeline.rl.methods import Method
from pipeline.rl.metrics import Watched
from pipeline.rl.objectives import dpo_loss, sequence_logprobs
from pipeline.rl.packed_outputs import MicroBatch, Output, output_of
from pipeline.rl.rollout import Group


def _outputs(groups: Sequence[Group], section: RlSection) -> list[Output]:
    """Pair the i-th right output of a question with its i-th wrong one; undecided ones are neither.

    `Output.group` numbers the pairs.
    """
    pairs = []
    for group in groups:
        sides = [[o for o in group.outputs if o.verdict == name and o.tokens] for name in ("right", "wrong")]
        pairs += [(group.prompt, pair) for pair in zip(*sides, strict=False)]
    return [
        output_of(output, number, prompt, 0.0)
        for number, (prompt, pair) in enumerate(pairs)
        for output in pair
    ]


def _scores(section: RlSection, batch: MicroBatch, logprobs_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-probabilities of whole outputs (O,), of policy and reference."""
    lengths_O, mean = batch.packed.lengths_O, section.dpo.length_normalised
    return (
        sequence_logprobs(logprobs_N, lengths_O, mean),
        sequence_logprobs(batch.reference_N, lengths_O, mean),
    )


def _loss(section: RlSection, batch: MicroBatch, logprobs_N: Tensor, watched: Watched) -> Tensor:
    """Sum the pairs' losses; a pair's weight is that of its first token."""
    scores_O, reference_O = _scores(section, batch, logprobs_N)
    losses_P = dpo_loss(scores_O[::2], scores_O[1::2], reference_O[::2], reference_O[1::2], section.dpo.beta)
    lengths_O = batch.packed.lengths_O
    weights_P = batch.packed.weights_N[lengths_O.cumsum(0) - lengths_O][::2]
    preferred_P = (scores_O - reference_O)[::2] > (scores_O - reference_O)[1::2]
    watched.add(preferred=(weights_P * preferred_P).sum())
    return (weights_P * losses_P).sum()


def _coefficient(section: RlSection, batch: MicroBatch, logprobs_N: Tensor) -> Tensor:
    """Return + and - beta sigmoid(-beta margin) for right and wrong, shared by the tokens of a mean (14)."""
    scores_O, reference_O = _scores(section, batch, logprobs_N)
    ratios_O, beta = scores_O - reference_O, section.dpo.beta
    strength_P = beta * torch.sigmoid(-beta * (ratios_O[::2] - ratios_O[1::2]))
    signed_O = torch.stack([strength_P, -strength_P], 1).flatten()
    lengths_O = batch.packed.lengths_O
    return (signed_O / lengths_O if section.dpo.length_normalised else signed_O).repeat_interleave(lengths_O)


METHOD = Method(
    source="parent",
    judge="rule",
    outputs=_outputs,
    loss=_loss,
    coefficient=_coefficient,
    reference=lambda section: True,
    pairs=True,
)
