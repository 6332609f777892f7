"""RFT, rejection sampling fine-tuning (A.1.2): likelihood of the right outputs of the initial model (8)."""

from collections.abc import Sequence

from torch import Tensor

from pipeline.config.rl import RlSection
from pipeline.rl.methods import Method
from pipeline.rl.metrics import Watched
from pipeline.rl.objectives import likelihood_loss
from pipeline.rl.packed_outputs import MicroBatch, Output, output_of
from pipeline.rl.rollout import Group


def _outputs(groups: Sequence[Group], section: RlSection) -> list[Output]:
    """Return right outputs with advantage 1; that of the others is 0, which trains nothing."""
    return [
        output_of(output, number, group.prompt, 1.0)
        for number, group in enumerate(groups)
        for output in group.outputs
        if output.verdict == "right" and output.tokens
    ]


def _loss(section: RlSection, batch: MicroBatch, logprobs_N: Tensor, watched: Watched) -> Tensor:
    return likelihood_loss(logprobs_N, batch.packed.advantages_N, batch.packed.weights_N)


METHOD = Method(
    source="parent",
    judge="rule",
    outputs=_outputs,
    loss=_loss,
    coefficient=lambda section, batch, logprobs_N: batch.packed.advantages_N,
    reference=lambda section: False,
)
