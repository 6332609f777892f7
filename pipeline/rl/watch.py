"""Metrics of a step: of its rollouts, and of its updates over all ranks, for its line of `metrics.jsonl`."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.evaluate.metrics import parted
from pipeline.protocol.stage import InputError
from pipeline.rl.rollout import Group, Rollout

SHOWN_GROUPS = 2
SHOWN_FACTS = ("text", "reward", "rewards", "verdict", "reason", "extracted", "finish_reason")


def summed(values: Sequence[float], device: Any) -> list[float]:
    """Sum each value over all ranks."""
    total = torch.tensor(values, dtype=torch.float64, device=device)
    if dist.get_world_size() > 1:
        dist.all_reduce(total)
    return total.tolist()


def check_finite(what: str, value: float) -> None:
    """Raise InputError unless `value` is a finite number."""
    if not math.isfinite(value):
        raise InputError(f"rl: the {what} is {value}; lower learning_rate, or start from sound weights")


@dataclass
class Watched:
    """Metrics that the micro-batches of one update add up on this rank: sums weighted by token shares."""

    sums: dict[str, float] = field(default_factory=dict)

    def add(self, **values: Tensor) -> None:
        """Add each value to the sum of its name."""
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value.item()

    def over_ranks(self, device: Any) -> dict[str, float]:
        """Return the sums of all ranks."""
        names = sorted(self.sums)
        return dict(zip(names, summed([self.sums[name] for name in names], device), strict=True))


CAUSES = {
    "right": ("are right", "ask harder questions"),
    "cut off": ("were cut off", "raise rl.max_tokens"),
    "no box": ("have no box", "set rl.answer to any, or fine-tune on answers in \\boxed{}"),
    "no answer": ("have no answer", "look at samples.jsonl: does the model know the form of the prompt?"),
    "undecided": ("are undecided", "look at the answers in prompts: the grader does not understand them"),
    "failed": ("made the grader fail", "report one of them: that is a bug"),
    "wrong": ("are wrong", "ask easier questions, or start from a better model"),
}


def cause(output: Rollout, boxed: bool) -> str:
    """Return the reason for an output's reward, a key of `CAUSES`; `boxed`: the answer must be in a box."""
    if output.verdict == "right":
        return "right"
    if output.finish_reason != "stop":
        return "cut off"
    if output.extracted is None and output.verdict == "wrong":
        return "no box" if boxed else "no answer"
    return output.verdict


def nothing_to_learn(groups: Sequence[Group], boxed: bool) -> str | None:
    """Return one line if no group has an output that is better than another: what the outputs are, and the
    remedy for the most frequent cause.
    """
    if not all(group.flat for group in groups):
        return None
    outputs = [output for group in groups for output in group.outputs]
    counts = Counter(cause(output, boxed) for output in outputs).most_common()
    causes = ", ".join(f"{number} {CAUSES[name][0]}" for name, number in counts)
    reward = "no reward" if not any(output.reward for output in outputs) else "equal rewards in each group"
    return f"{reward}, so nothing is learnt: of {len(outputs)} outputs {causes}; {CAUSES[counts[0][0]][1]}"


def cut_after_answer(row: Mapping[str, Any], before: Mapping[str, Any] | None) -> str | None:
    """Return one line if many right outputs of a step were cut off after their answer, and those of the step
    `before` were not: the reward pays them all the same.
    """

    def told(metrics: Mapping[str, Any]) -> str | None:
        return parted(metrics["accuracy"], metrics["right_and_finished"])

    if (line := told(row)) is None or (before and told(before)):
        return None
    return f"{line}: the others were cut off; raise rl.max_tokens, or set rl.mask_truncated"


def few(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Choose outputs to look at: of two questions the best and the worst one, if their rewards differ."""
    found = []
    for group in sorted(groups, key=lambda group: group.flat)[:SHOWN_GROUPS]:
        best, worst = (choose(group.outputs, key=lambda output: output.reward) for choose in (max, min))
        for output in (best,) if group.flat else (best, worst):
            row = {"id": group.id, "question": group.question, "reference": group.reference}
            found.append(row | {name: getattr(output, name) for name in SHOWN_FACTS})
    return found


def summarise(groups: Sequence[Group], parts: Sequence[str]) -> dict[str, Any]:
    """Return means over the outputs of all groups, `sampled_tokens` their sum.

    `reward_<part>`: each of the reward's `parts` before weighting. `entropy` (nats per token): estimated as
    the samples' mean negative log-probability. `undecided`: the grader gave no verdict; `not_judged`: it
    failed. `empty`: no text. `zero_variance_share`: groups whose rewards are all equal. `solution_steps`,
    under process supervision: scored steps of an output.
    """
    outputs = [output for group in groups for output in group.outputs]
    tokens = sum(len(output.tokens) for output in outputs)

    def mean(value: Callable[[Rollout], float]) -> float:
        return sum(map(value, outputs)) / len(outputs)

    steps = mean(lambda output: len(output.step_rewards))
    return {
        "reward": mean(lambda output: output.reward),
        **{f"reward_{part}": mean(lambda output, part=part: output.rewards.get(part, 0.0)) for part in parts},
        "accuracy": mean(lambda output: output.verdict == "right"),
        "right_and_finished": mean(
            lambda output: output.verdict == "right" and output.finish_reason == "stop"
        ),
        "undecided": mean(lambda output: output.verdict == "undecided"),
        "not_judged": mean(lambda output: output.verdict == "failed"),
        "empty": mean(lambda output: not output.text.strip()),
        "length": tokens / len(outputs),
        **({"solution_steps": steps} if steps else {}),
        "truncated": mean(lambda output: output.finish_reason != "stop"),
        "entropy": -sum(sum(output.logprobs) for output in outputs) / max(tokens, 1),
        "zero_variance_share": sum(group.flat for group in groups) / len(groups),
        "sampled_tokens": tokens,
    }
