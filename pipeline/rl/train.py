"""The train phase of one exploration: mu GRPO updates on its groups (paper 4.1, Algorithm 1 lines 9-11).

What cannot change the gradient is left out: groups whose rewards are all equal when there is no KL term, the
reference's pass without a KL term, the old policy's pass (its log-probabilities are those of the first
update).
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipeline.common.model import IGNORE
from pipeline.common.training import update
from pipeline.config.rl import RlSection
from pipeline.rl.objectives import grpo_loss, outcome_advantages
from pipeline.rl.rollout import Group
from pipeline.rl.rows import Output, Rows, micro_batches

STALE_GAP = {"fp32": 0.01, "bf16": math.inf}  # nats; rounding alone stays under 5e-5 in fp32


@dataclass
class MicroBatch:
    """Rows, and the log-probabilities (N,) that stay fixed over the updates of an exploration."""

    rows: Rows
    old_N: Tensor | None = None
    reference_N: Tensor | None = None


@dataclass
class Watched:
    """What the micro-batches of one update showed on this rank."""

    gap: list[float] = field(default_factory=list)
    kl: list[float] = field(default_factory=list)
    clip_share: list[float] = field(default_factory=list)


def training_outputs(groups: Sequence[Group], section: RlSection) -> list[Output]:
    """Outputs with advantages; without a KL term, groups of equal rewards have nothing to teach."""
    outputs = []
    for number, group in enumerate(groups):
        rewards = torch.tensor(group.rewards, dtype=torch.float64)
        advantages = outcome_advantages(rewards[None], section.advantage_std)[0].tolist()
        if section.kl_coefficient == 0 and not any(advantages):
            continue
        outputs += [
            Output(number, output.tokens, output.logprobs, advantage)
            for output, advantage in zip(group.outputs, advantages, strict=True)
        ]
    return outputs


def make_micro_batches(groups: Sequence[Group], section: RlSection, rows_at_once: int) -> list[MicroBatch]:
    """This rank's part of the batch; ranks get equally many, filled up with rows of weight 0."""
    ranks = dist.get_world_size()
    prompts = [group.prompt for group in groups]
    batch_outputs = ranks * len(groups) * section.group_size
    outputs = training_outputs(groups, section)
    found = list(micro_batches(outputs, prompts, section.row_tokens, rows_at_once, batch_outputs))
    counts: list[Any] = [None] * ranks
    dist.all_gather_object(counts, len(found))
    if len(found) < max(counts):
        first = groups[0].outputs[0]
        idle = [Output(0, first.tokens, first.logprobs, 0.0)]
        (filler,) = micro_batches(idle, prompts, section.row_tokens, 1, batch_outputs)
        filler.weights_N.zero_()
        found += [filler] * (max(counts) - len(found))
    return [MicroBatch(rows) for rows in found]


def output_logprobs(module: Any, rows: Rows, temperature: float) -> Tensor:
    """log pi of the rows' output tokens, (N,); `module` is a `TokenLogprobs` or an engine around one."""
    logprobs_BT = module(
        rows.tokens_BT, rows.positions_BT, rows.targets_BT, temperature=temperature, mask_BTT=rows.mask_BTT
    )
    return logprobs_BT[rows.targets_BT != IGNORE]


def train_on(
    engine: Any,
    reference: nn.Module | None,
    groups: Sequence[Group],
    section: RlSection,
    rows_at_once: int,
    learning_rate: float,
) -> dict[str, float | None]:
    """mu updates on the groups of all ranks; returns the step's training metrics (None: nothing to measure).

    Raises RuntimeError when the loss is not finite or when the sampler's log-probabilities are not the
    policy's.
    """
    started = time.monotonic()
    batches = make_micro_batches(groups, section, rows_at_once)
    if not batches:
        names = ("loss", "grad_norm", "kl", "clip_share", "logprob_gap_max")
        return {**dict.fromkeys(names), "lr": learning_rate, "train_seconds": time.monotonic() - started}
    for number in range(section.updates):
        watched = Watched()

        def loss_of(batch: MicroBatch, first: bool = number == 0, watched: Watched = watched) -> Tensor:
            return _loss(engine, reference, batch, section, first, watched)

        loss, norm = update(engine, batches, loss_of, learning_rate)
        if number == 0:
            gap = _largest(watched.gap, engine.device)
            _check(loss, norm, gap, section)
    parts = summed([sum(watched.kl), sum(watched.clip_share)], engine.device)
    return {
        "loss": loss,
        "grad_norm": norm,
        "lr": learning_rate,
        "kl": parts[0] if reference is not None else None,
        "clip_share": parts[1],
        "logprob_gap_max": gap,
        "train_seconds": time.monotonic() - started,
    }


def _loss(
    engine: Any,
    reference: nn.Module | None,
    batch: MicroBatch,
    section: RlSection,
    first: bool,
    watched: Watched,
) -> Tensor:
    """The micro-batch's part of the loss; the first update fixes the old and reference log-probabilities."""
    rows = batch.rows.to(engine.device)
    logprobs_N = output_logprobs(engine, rows, section.temperature)
    if first:
        batch.old_N = logprobs_N.detach()
        watched.gap.append((batch.old_N - rows.sampler_logprobs_N).abs().max().item())
        if reference is not None:
            with torch.no_grad():
                batch.reference_N = output_logprobs(reference, rows, section.temperature)
    terms = grpo_loss(
        logprobs_N,
        batch.old_N,
        batch.reference_N,
        rows.advantages_N,
        rows.weights_N,
        section.clip,
        section.kl_coefficient,
    )
    watched.kl.append(terms.kl.item())
    watched.clip_share.append((terms.clip_low + terms.clip_high).item())
    return terms.loss


def _check(loss: float, norm: float, gap: float, section: RlSection) -> None:
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise RuntimeError(f"loss {loss} and gradient norm {norm} must be finite")
    if not gap <= STALE_GAP[section.precision]:
        raise RuntimeError(f"sampler and policy disagree by {gap:.3g} nats: the sampler's weights are stale")


def summed(values: Sequence[float], device: torch.device) -> list[float]:
    """Sums over all ranks."""
    total = torch.tensor(values, dtype=torch.float64, device=device)
    if dist.get_world_size() > 1:
        dist.all_reduce(total)
    return total.tolist()


def _largest(values: Sequence[float], device: torch.device) -> float:
    largest = torch.tensor(values, device=device).max()  # NaN stays NaN
    if dist.get_world_size() > 1:
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return largest.item()
