"""What a rank trains: the policy, PPO's critic beside it, and the reference that stays as it began."""

from typing import Any

from pipeline.common import checkpoint
from pipeline.common.model import TokenLogprobs, load_model
from pipeline.common.stage import Stage
from pipeline.common.training import build_engine, prepare, settings_from
from pipeline.config.rl import RlSection
from pipeline.rl.critic import load_critic
from pipeline.rl.train import Models


def build_models(stage: Stage[RlSection], parent: str) -> Models:
    """Engines and reference that the section's method needs, from the weights of `parent`."""
    section, launch = stage.config, stage.launch
    settings = settings_from(section, launch)
    model = load_model(parent, section.precision)
    prepare(model, launch | {"compile": False})  # rows have as many lengths as there are rows
    engine = build_engine(TokenLogprobs(model), settings)
    critic = (
        build_engine(load_critic(parent, section.precision), settings) if section.method == "ppo" else None
    )
    reference = None
    if section.method == "dpo" or (section.method in ("grpo", "ppo") and section.kl_coefficient):
        reference = TokenLogprobs(load_model(parent, section.precision))
        reference.eval().requires_grad_(False).to(engine.device)
    return Models(engine, reference, critic, int(launch.get("micro_batch", 8)))


def save(models: Models, stage: Stage[RlSection], step: int, state: dict[str, Any]) -> None:
    """A checkpoint after `step` steps. The critic's is written first: a policy's never lacks it."""
    if models.critic is not None:
        checkpoint.save(models.critic, stage.work / "critic", step, {}, stage.fingerprint)
    checkpoint.save(models.engine, stage.work / "checkpoints", step, state, stage.fingerprint)


def resume(models: Models, stage: Stage[RlSection]) -> tuple[int, dict[str, Any] | None]:
    """Load the newest checkpoint; returns the steps done and the state saved with it, or (0, None)."""
    path = checkpoint.newest(stage.work / "checkpoints")
    if path is None:
        return 0, None
    if models.critic is not None:
        checkpoint.load(models.critic, stage.work / "critic" / path.name, stage.fingerprint)
    return checkpoint.step_of(path), checkpoint.load(models.engine, path, stage.fingerprint)
