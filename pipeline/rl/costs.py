"""What a step costs in arithmetic, so that methods can be compared by more than sampled tokens.

Two FLOP for each weight and token of a forward pass, six where it is trained, four where its adapter is;
attention and padding are left out. Critic and reward model are taken to be as large as the policy, without
its output layer.
"""

from collections.abc import Sequence

from pipeline.rl.learner import Learner
from pipeline.rl.rollout import Group
from pipeline.training.flops import ModelFlops
from pipeline.training.model import causal_model


def step_flop(learner: Learner, groups: Sequence[Group], trained: float, updates: int, scored: bool) -> int:
    """FLOP of sampling `groups`, of scoring them by a reward model if `scored`, and of `updates` on rows of
    `trained` tokens with all networks that the method needs.
    """
    flops = ModelFlops.of(causal_model(learner.engine))
    body, whole = flops.body / flops.passes, (flops.body + flops.head) / flops.passes  # of a forward pass
    found = whole * sum(len(group.prompt) + group.tokens for group in groups)
    if scored:
        found += body * sum(len(group.prompt) * len(group.outputs) + group.tokens for group in groups)
    found += flops.passes * whole * trained * updates
    if learner.reference is not None:
        found += whole * trained
    if learner.critic is not None:
        found += body * trained * (1 + 3 * updates)
    return round(found)
