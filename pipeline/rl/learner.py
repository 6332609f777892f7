"""What a rank trains: the policy, the critic where the method has one, and the frozen reference.

With adapters the reference is the policy without them: no second model is in memory.
"""

from dataclasses import dataclass
from typing import Any

from torch import nn

from pipeline.config.rl import RlSection
from pipeline.protocol.stage import Stage
from pipeline.reward.model import load_trunk
from pipeline.rl.critic import Critic
from pipeline.rl.methods import method_of
from pipeline.training import checkpoint
from pipeline.training.engine import (
    FROZEN,
    build_engine,
    build_frozen,
    prepare,
    settings_from,
    split_weights,
    start_process_group,
)
from pipeline.training.lora import Unadapted, adapt
from pipeline.training.model import TokenLogprobs, load_shared_model
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
        """What saves it. The critic's checkpoints come first: no policy's is ever without one."""
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


def build_learner(section: RlSection, launch: dict[str, Any], parent: str) -> Learner:
    """The learner that the section's method needs, from the weights of `parent`."""
    method, settings = method_of(section), settings_from(section, launch)
    launch = launch | {"compile": False}  # each batch of rows has another length: it would recompile
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
    return Learner(engine, reference, critic, int(launch.get("micro_batch", 8)))
