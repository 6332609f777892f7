"""From scored groups to outputs to train on: each method's coefficient of every token (paper 5.2.1).

GRPO: group advantages by outcome or by step. RFT and Online RFT: 1 for right outputs, the others are left
out. PPO: rewards, from which the critic makes advantages. DPO: pairs of a right and a wrong output. Outputs
without a single token have a part in their group's mean, but nothing to train on.
"""

from collections.abc import Sequence

import torch

from pipeline.config.rl import RlSection
from pipeline.rl.objectives import outcome_advantages, process_advantages
from pipeline.rl.rollout import Group, Rollout
from pipeline.rl.rows import Output


def training_outputs(groups: Sequence[Group], section: RlSection) -> list[Output]:
    """Outputs of the groups with a coefficient per token; what cannot change the gradient is left out."""
    if section.method in ("rft", "online_rft"):
        return [
            _output(number, output, [1.0] * len(output.tokens))
            for number, group in enumerate(groups)
            for output in group.outputs
            if output.verdict == "right" and output.tokens
        ]
    if section.method == "ppo":
        return [
            _output(number, output, [0.0] * len(output.tokens))
            for number, group in enumerate(groups)
            for output in group.outputs
            if output.tokens
        ]
    found = [_advantaged(number, group, section) for number, group in enumerate(groups)]
    return [
        output
        for outputs in found
        if section.kl_coefficient or any(any(output.coefficients) for output in outputs)
        for output in outputs
    ]


def _advantaged(number: int, group: Group, section: RlSection) -> list[Output]:
    """GRPO's outputs of one group (4.1.2, 4.1.3)."""
    lengths = [len(output.tokens) for output in group.outputs]
    if section.supervision == "process":
        advantages = process_advantages(
            [torch.tensor(output.step_rewards, dtype=torch.float64) for output in group.outputs],
            [torch.tensor(output.step_ends) for output in group.outputs],
            lengths,
            section.advantage_std,
        )
        per_token = [values.tolist() for values in advantages]
    else:
        rewards = torch.tensor(group.rewards, dtype=torch.float64)
        whole = outcome_advantages(rewards[None], section.advantage_std)[0].tolist()
        per_token = [[value] * length for value, length in zip(whole, lengths, strict=True)]
    return [
        _output(number, output, values)
        for output, values in zip(group.outputs, per_token, strict=True)
        if output.tokens
    ]


def preference_pairs(groups: Sequence[Group]) -> tuple[list[Output], list[list[int]]]:
    """DPO's outputs, right before wrong, and the prompt of each pair; `Output.group` numbers the pairs.

    The i-th right output of a question meets its i-th wrong one; undecided ones are neither.
    """
    outputs: list[Output] = []
    prompts: list[list[int]] = []
    for group in groups:
        sides = [[o for o in group.outputs if o.verdict == name and o.tokens] for name in ("right", "wrong")]
        for pair in zip(*sides, strict=False):
            outputs += [_output(len(prompts), output, [0.0] * len(output.tokens)) for output in pair]
            prompts.append(group.prompt)
    return outputs, prompts


def _output(group: int, output: Rollout, coefficients: list[float]) -> Output:
    return Output(group, output.tokens, output.logprobs, coefficients, output.reward)
