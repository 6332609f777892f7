"""The paper's unified view (5.2.1, Table 10): a method is a data source, a reward and a gradient coefficient.

Every method's gradient is the mean of coefficient x grad log pi(token): what differs is where outputs come
from, who judges them, and how strongly a token is pushed (positive) or pulled down (negative).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pipeline.rl.objectives import gradient_coefficient


@dataclass(frozen=True)
class Signal:
    """What a coefficient may depend on, for N tokens; (N,) each.

    `right`: whether the token's output has the right answer (for DPO: is the preferred one of its pair).
    `margins`: DPO's difference of mean log-ratios, right minus wrong, of the token's pair.
    """

    logprobs: Tensor
    reference_logprobs: Tensor
    right: Tensor
    advantages: Tensor
    margins: Tensor
    beta: float


@dataclass(frozen=True)
class Method:
    """A row of Table 10. `source`: who wrote the outputs: people, the model training starts from, the policy.

    `judge`: whose reward the paper used: none, the rule (the right answer) or a reward model.
    """

    source: Literal["demonstrations", "parent", "policy"]
    judge: Literal["none", "rule", "model"]
    coefficient: Callable[[Signal], Tensor]

    @property
    def online(self) -> bool:
        """Whether outputs come from the policy as it is, instead of from its beginning."""
        return self.source == "policy"


def _dpo(signal: Signal) -> Tensor:
    strength = signal.beta * torch.sigmoid(-signal.beta * signal.margins)
    return torch.where(signal.right, strength, -strength)


def _grpo(signal: Signal) -> Tensor:
    return gradient_coefficient(signal.logprobs, signal.reference_logprobs, signal.advantages, signal.beta)


METHODS: dict[str, Method] = {
    "sft": Method("demonstrations", "none", lambda signal: torch.ones_like(signal.logprobs)),
    "rft": Method("parent", "rule", lambda signal: signal.right.to(signal.logprobs)),
    "dpo": Method("parent", "rule", _dpo),
    "online_rft": Method("policy", "rule", lambda signal: signal.right.to(signal.logprobs)),
    "ppo": Method("policy", "model", lambda signal: signal.advantages),
    "grpo": Method("policy", "model", _grpo),
}
