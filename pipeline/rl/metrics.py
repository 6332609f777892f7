"""Metrics of a step: of its rollouts, and of its updates over all ranks, for its line of `metrics.jsonl`.

Policy and sampler give the same tokens log-probabilities that differ by rounding, at a few tokens by nats:
mean and limits must not hang on those. So a gap counts as 1 nat at most where the sampler is judged. A
sampler whose weights are stale differs at most tokens.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.core.ending import say
from pipeline.core.stage import InputError
from pipeline.evaluate.metrics import describe_unfinished
from pipeline.evaluate.tool_use import ROUNDS_USED
from pipeline.rl.packed_outputs import PackedOutputs
from pipeline.rl.rewards import PROGRAM
from pipeline.rl.rollout import Group, Rollout

# Mean of the gaps, each 1 nat at most, from which on the sampler is stale. Measured on small models: rounding
# gives 1e-5 in fp32 and up to 0.05 in bf16; rollouts of another model give 0.4 to 0.9.
STALE = {"fp32": 0.01, "bf16": 0.2}
GAP_METRICS = ("logprob_gap_max", "logprob_gap_mean", "logprob_gap_p99")
OUTLIER = {"fp32": 0.1, "bf16": 2.0}  # nats; a line is written about tokens with larger gaps
SHOWN_GROUPS = 2
SHOWN_FACTS = ("text", "reward", "rewards", "verdict", "reason", "extracted", "finish_reason")


def sum_over_ranks(values: Sequence[float], device: Any) -> list[float]:
    """Sum each value over all ranks."""
    total = torch.tensor(values, dtype=torch.float64, device=device)
    if dist.get_world_size() > 1:
        dist.all_reduce(total)
    return total.tolist()


def check_finite(what: str, value: float) -> None:
    """Raise InputError unless `value` is a finite number."""
    if not math.isfinite(value):
        raise InputError(f"rl: the {what} is {value}; lower learning_rate, or start from sound weights")


def check_judged(rows: Sequence[Mapping[str, Any]], outputs: int) -> None:
    """Raise InputError if the grader failed on more than 0.1 % of the outputs so far, and on more than one;
    each step in `rows` has so many `outputs`.
    """
    failed, total = round(sum(row["not_judged"] for row in rows) * outputs), len(rows) * outputs
    if failed > max(1, MAX_FAILED * total):
        raise InputError(
            f"rl: the grader failed on {failed} of {total} outputs; report one of them: that is a bug"
        )


@dataclass
class Watched:
    """Metrics that the micro-batches of one update add up on this rank: sums weighted by token shares. They
    stay on the device until the update is done.
    """

    sums: dict[str, Tensor] = field(default_factory=dict)

    def add(self, **values: Tensor) -> None:
        """Add each value to the sum of its name."""
        for name, value in values.items():
            self.sums[name] = value.detach().double() + self.sums.get(name, 0.0)

    def over_ranks(self) -> dict[str, float]:
        """Return the sums of all ranks."""
        if not self.sums:
            return {}
        names = sorted(self.sums)
        total = torch.stack([self.sums[name] for name in names])
        if dist.get_world_size() > 1:
            dist.all_reduce(total)
        return dict(zip(names, total.tolist(), strict=True))


class StaleSampler(InputError):
    """A step's outputs were not sampled from the policy's weights."""


@dataclass
class Gaps:
    """The gaps between sampler and policy at this rank's tokens, and their metrics.

    `rows`: of each micro-batch (share of the loss, token id, log-probability by sampler, by policy), (4, N),
    on the device until they are judged.
    """

    rows: list[Tensor] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)

    def add(self, packed: PackedOutputs, policy_N: Tensor) -> None:
        """Keep the tokens of a micro-batch."""
        values = packed.weights_N, packed.targets_N, packed.sampler_logprobs_N, policy_N
        self.rows.append(torch.stack([value.double() for value in values]))

    def judge(self, step: int, precision: str, device: Any) -> None:
        """Set the metrics over all ranks, which must all call it: largest gap, mean and 99th percentile.

        Says in one line what the tokens beyond `OUTLIER` are. Raises StaleSampler, on all ranks, if the
        tokens were not sampled from the policy's weights, and InputError for a NaN.
        """
        share_N, *seen = torch.cat(self.rows, 1).cpu()
        token_n, sampler_n, policy_n = (value_N[share_N > 0] for value_N in seen)
        own = (policy_n - sampler_n).abs()
        worst_here = (0.0, -1.0, 0.0, 0.0)
        if len(own):
            at = own.argmax()  # a NaN is the largest
            worst_here = (own[at].item(), token_n[at].item(), sampler_n[at].item(), policy_n[at].item())
            check_finite("log-probability gap", worst_here[0])
        sums = own.sum(), own.clamp(max=1.0).sum(), (own > OUTLIER[precision]).sum()
        count, total, bounded, outliers = sum_over_ranks(
            [len(own), *(value.item() for value in sums)], device
        )
        if not count:
            return
        ranks: list[Any] = [None] * dist.get_world_size()
        tail = math.ceil(count / 100)
        dist.all_gather_object(ranks, (worst_here, own.topk(min(tail, len(own))).values.tolist()))
        worst = max(worst for worst, _ in ranks)
        if outliers and dist.get_rank() == 0:
            gap, token, sampler, policy = worst
            say(
                f"rl step {step}: {outliers:.0f} of {count:.0f} tokens differ by more than "
                f"{OUTLIER[precision]:g} nats between sampler and policy; most, by {gap:.3g}, token "
                f"{int(token)}: {sampler:.4g} by the sampler, {policy:.4g} by the policy"
            )
        if bounded > STALE[precision] * count:
            raise StaleSampler(
                f"rl step {step}: sampler and policy disagree by {bounded / count:.3g} nats a token (each at "
                f"most 1; allowed {STALE[precision]}), so the sampler's weights are stale"
            )
        percentile = sorted(value for _, tops in ranks for value in tops)[-tail]
        self.metrics = dict(zip(GAP_METRICS, (worst[0], total / count, percentile), strict=True))


MAX_FAILED = 0.001  # share of outputs on which the grader may fail
CAUSES = {
    "right": ("are right", "ask harder questions"),
    "cut off": ("were cut off", "raise rl.max_tokens"),
    "no round left": ("asked for one more program's output", "raise evaluate.tool_rounds"),
    "no box": ("have no box", "set rl.answer to any, or fine-tune on answers in \\boxed{}"),
    "no output": ("are no programs that print an answer", "fine-tune on programs that print it"),
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
        return "no round left" if output.finish_reason == ROUNDS_USED else "cut off"
    if output.reason.startswith(PROGRAM):
        return "no output"
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

    def describe(metrics: Mapping[str, Any]) -> str | None:
        return describe_unfinished(metrics["accuracy"], metrics["right_and_finished"])

    if (line := describe(row)) is None or (before and describe(before)):
        return None
    return f"{line}: the others were cut off; raise rl.max_tokens, or set rl.mask_truncated"


def choose_outputs(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Choose outputs to look at: of two questions the best and the worst one, if their rewards differ."""
    found = []
    for group in sorted(groups, key=lambda group: group.flat)[:SHOWN_GROUPS]:
        best, worst = (choose(group.outputs, key=lambda output: output.reward) for choose in (max, min))
        for output in (best,) if group.flat else (best, worst):
            row = {"id": group.id, "question": group.question, "reference": group.reference}
            found.append(row | {name: getattr(output, name) for name in SHOWN_FACTS})
    return found


def summarise(groups: Sequence[Group], parts: Sequence[str], mode: str = "cot") -> dict[str, Any]:
    """Return means over the outputs of all groups, `sampled_tokens` their sum.

    `reward_<part>`: each of the reward's `parts` before weighting. `entropy` (nats per token): estimated as
    the samples' mean negative log-probability. `undecided`: the grader gave no verdict; `not_judged`: it
    failed. `programs_failed`, in mode pal: those that printed no answer. `tool_outputs`, in mode tool: of
    programs, read by the policy. `empty`: no text.
    `zero_variance_share`: groups whose rewards are all equal. `solution_steps`, under process supervision:
    scored steps of an output.
    """
    outputs = [output for group in groups for output in group.outputs]
    tokens = sum(group.tokens for group in groups)

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
        **(
            {"programs_failed": mean(lambda output: output.reason.startswith(PROGRAM))}
            if mode == "pal"
            else {}
        ),
        **({"tool_outputs": mean(lambda output: len(output.tool_spans))} if mode == "tool" else {}),
        "empty": mean(lambda output: not output.text.strip()),
        "length": tokens / len(outputs),
        **({"solution_steps": steps} if steps else {}),
        "truncated": mean(lambda output: output.finish_reason != "stop"),
        "entropy": -sum(sum(output.logprobs) for output in outputs) / max(tokens, 1),
        "zero_variance_share": sum(group.flat for group in groups) / len(groups),
        "sampled_tokens": tokens,
    }
