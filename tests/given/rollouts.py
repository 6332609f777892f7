"""Rollouts and their groups, of which a test names what it is about."""

from collections.abc import Iterable, Sequence
from typing import Any

from pipeline.rl.rollout import Group, Rollout


def rollout(reward: float = 0.0, tokens: Sequence[int] = (5,), **facts: Any) -> Rollout:
    """A finished output of these tokens, each of log-probability -1; wrong unless `facts` say otherwise."""
    common = {"seed": 0, "logprobs": [-1.0] * len(tokens), "finish_reason": "stop", "text": "text"}
    common |= {"rewards": {}, "verdict": "wrong", "extracted": None, "reason": ""}
    return Rollout(tokens=list(tokens), reward=reward, **(common | facts))


def group_of(outputs: Iterable[Rollout], prompt: Sequence[int] = (1,), **facts: Any) -> Group:
    """A group of the first step, sampled from the first weights."""
    common = {"step": 1, "version": 0, "id": "q", "question": "", "reference": ""}
    return Group(prompt=list(prompt), outputs=list(outputs), **(common | facts))
