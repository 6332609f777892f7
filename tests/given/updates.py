"""A policy's update on groups of random outputs."""

from pathlib import Path
from typing import Any

import torch
from given.rollouts import group_of, rollout

from pipeline.config.rl import RlSection
from pipeline.rl.rollout import Group, Rollout
from pipeline.rl.train import train_on
from tests.tiny_model import log_probs


def section(**keys: Any) -> RlSection:
    base = {"precision": "fp32", "kl_coefficient": 0.0, "row_tokens": 64, "learning_rate": 2e-4}
    return RlSection(**(base | {"ppo": {"value_learning_rate": 1e-2}} | keys))


def learner_of(folder: Path, chosen: RlSection, rows_at_once: int = 4) -> Any:
    from pipeline.rl.learner import build_learner

    return build_learner(chosen, {"zero_stage": 1, "micro_batch": rows_at_once}, str(folder))


def groups(
    folder: Path, rights: list[list[bool]], lengths: tuple[int, ...] = (6, 3, 9, 1), precision: str = "fp32"
) -> list[Group]:
    """Groups of random outputs with the log-probabilities of the policy in `folder`; rewards are 1 or 0."""
    from pipeline.training.model import load_model

    model = load_model(folder, precision)
    random = torch.Generator().manual_seed(0)

    def draw(length: int) -> list[int]:
        return torch.randint(4, 90, (length,), generator=random).tolist()

    def output(prompt: list[int], right: bool, length: int) -> Rollout:
        tokens, ends = draw(length), sorted({length // 2, length - 1}) if length else []
        return rollout(
            float(right),
            tokens,
            logprobs=log_probs(model, prompt, tokens).tolist() if tokens else [],
            rewards={"accuracy": float(right)},
            verdict="right" if right else "wrong",
            step_ends=ends,
            step_rewards=[0.5 * right, float(right)][-len(ends) :] if ends else [],
        )

    found = []
    for number, verdicts in enumerate(rights):
        prompt = draw(7 + number)
        drawn = [output(prompt, *facts) for facts in zip(verdicts, lengths, strict=True)]
        found.append(group_of(drawn, prompt, id=f"q{number}"))
    return found


MIXED = [[True, False, False, True], [False, True, True, False]]


def weights(learner: Any) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in learner.engine.module.parameters()]


def same(before: list[torch.Tensor], after: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, two) for one, two in zip(before, after, strict=True))


def train(learner: Any, batch: list[Group], chosen: RlSection) -> dict[str, Any]:

    return train_on(learner, batch, chosen, chosen.learning_rate)
