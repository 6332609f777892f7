"""What a rank trains: the policy, the critic where the method has one, and the frozen reference.

With adapters the reference is the policy without them: no second model is in memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from pipeline.config.rl import RlSection
from pipeline.core.stage import Stage
from pipeline.reward.model import load_trunk
from pipeline.rl.critic import Critic
from pipeline.rl.methods import method_of
from pipeline.rl.rollout import Group
from pipeline.training import checkpoint
from pipeline.training.engine import (
    FROZEN,
    build_engine,
    build_frozen,
    compile_layers,
    prepare,
    settings_from,
    split_weights,
    start_process_group,
)
from pipeline.training.flops import ModelFlops
from pipeline.training.lora import Unadapted, adapt
from pipeline.training.model import TokenLogprobs, causal_model, load_shared_model
from pipeline.training.saver import Saver


@dataclass(frozen=True)
class Learner:
    """Engines of the policy and the critic, and the reference.

    `rows_at_once`: rows in memory at a time.
    """

    engine: Any
    reference: nn.Module | Unadapted | None = None
    critic: Any = None
    rows_at_once: int = 8

    def saver(self, stage: Stage[RlSection]) -> Saver:
        """Return what saves it. The critic's checkpoints come first: no policy's is ever without one."""
        critic = {stage.work / "critic": self.critic} if self.critic is not None else {}
        return Saver({**critic, stage.work / "checkpoints": self.engine}, stage.fingerprint)

    def resume(self, stage: Stage[RlSection]) -> dict[str, Any] | None:
        """Load the newest checkpoint, if any; returns the state saved with it."""
        critics = [stage.work / "critic"] if self.critic is not None else []
        path = checkpoint.newest(self.engine, stage.work / "checkpoints", *critics)
        if path is None:
            return None
        for folder in critics:
            checkpoint.load(self.critic, folder / path.name, stage.fingerprint)
        return checkpoint.load(self.engine, path, stage.fingerprint)

    def step_flop(self, groups: Sequence[Group], trained: float, updates: int, scored: bool) -> int:
        """Count the FLOP of sampling `groups`, of scoring them by a reward model if `scored`, and of
        `updates` on rows of `trained` tokens; sampled tokens alone would not compare methods.

        Two FLOP for each weight and token of a forward pass, six where it is trained, four where its adapter
        is; attention and padding are left out. Critic and reward model are taken to be as large as the
        policy, without its output layer.
        """
        flops = ModelFlops.of(causal_model(self.engine))
        body, whole = flops.body / flops.passes, (flops.body + flops.head) / flops.passes  # of a forward pass
        outputs = sum(len(output.tokens) for group in groups for output in group.outputs)
        found = whole * (sum(len(group.prompt) for group in groups) + outputs)
        if scored:
            found += body * (sum(len(group.prompt) * len(group.outputs) for group in groups) + outputs)
        found += flops.passes * whole * trained * updates
        if self.reference is not None:
            found += whole * trained
        if self.critic is not None:
            found += body * trained * (1 + 3 * updates)
        return round(found)


def build_learner(section: RlSection, launch: dict[str, Any], parent: str) -> Learner:
    """Build the learner that the section's method needs, from the weights of `parent`."""
    method, settings = method_of(section), settings_from(section, launch)
    split, place = split_weights(launch), launch.get("frozen", "whole")
    start_process_group()
    model = load_shared_model(parent, section.precision, split)
    if section.lora:
        model = adapt(model, section.lora, section.seed, "rl")
    prepare(model, launch)
    engine = build_engine(TokenLogprobs(model), settings)
    critic = reference = None
    if method.critic:
        trunk = load_trunk(parent, section.precision, split)
        prepare(trunk, launch)
        critic = build_engine(Critic(trunk), settings)
    if method.reference(section) and section.lora:
        reference = Unadapted(engine)
    elif method.reference(section):
        frozen = TokenLogprobs(load_shared_model(parent, section.precision, FROZEN[place]))
        reference = build_frozen(frozen, section.precision, place, engine.device)
        if place == "whole":
            compile_layers(frozen.model, launch)
    return Learner(engine, reference, critic, int(launch.get("micro_batch", 8)))
