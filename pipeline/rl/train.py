"""The train phase of one exploration: mu updates on its groups (paper 4.1, Algorithm 1 lines 9-11).

The method says which outputs to train on and what the loss is; packing, weights, the frozen log-probabilities
and the checks are the same for all. What cannot change the gradient is not computed: the reference's pass
where the method needs none, and the old policy's pass (its log-probabilities are those of the first update).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.config.rl import RlSection
from pipeline.rl.critic import prepare_critic, update_critic
from pipeline.rl.learner import Learner
from pipeline.rl.methods import Method, method_of
from pipeline.rl.metrics import GAP_METRICS, Gaps, Watched, check_finite, sum_over_ranks
from pipeline.rl.objectives import token_weights
from pipeline.rl.packed_outputs import (
    MicroBatch,
    Output,
    PackedOutputs,
    WeightsOf,
    micro_batches,
    output_logprobs,
    row_length,
    split_into_rows,
)
from pipeline.rl.rollout import Group, Rollout
from pipeline.training.engine import update


def make_micro_batches(
    groups: Sequence[Group], section: RlSection, rows_at_once: int, fixed: bool = False
) -> list[MicroBatch]:
    """Return this rank's rows of the batch; ranks get equally many micro-batches, the last may have weight 0.
    `fixed`: all of one shape.
    """
    method, rank, ranks = method_of(section), dist.get_rank(), dist.get_world_size()
    outputs = method.outputs(without_cut(groups) if section.mask_truncated else groups, section)
    weights_of = _shares(method, groups, outputs, section)
    rows = split_into_rows(outputs, section.row_tokens, whole=method.pairs)
    width = max([section.row_tokens, *map(row_length, rows)])  # the same on all ranks
    batches = list(micro_batches(rows[rank::ranks], rows_at_once, weights_of, width, fixed))
    if len(batches) * rows_at_once < len(rows[::ranks]):
        idle = [Output(0, [0], [0], [0.0], [0.0])] * 2  # two: enough for a method that wants pairs
        filler = next(micro_batches([idle], rows_at_once, weights_of, width, fixed))
        filler.weights_N.zero_()
        batches.append(filler)
    return [MicroBatch(packed) for packed in batches]


def without_cut(groups: Sequence[Group]) -> list[Group]:
    """Empty outputs that were cut at the token limit: their rewards still count."""

    def kept(output: Rollout) -> Rollout:
        done = output.finish_reason == "stop"
        return output if done else replace(output, tokens=[], logprobs=[], tool_spans=[])

    return [replace(group, outputs=[kept(output) for output in group.outputs]) for group in groups]


def _shares(
    method: Method, groups: Sequence[Group], outputs: Sequence[Output], section: RlSection
) -> WeightsOf:
    """Return what gives tokens their share of the loss: outputs left out count; pairs weigh the same."""
    if method.pairs:
        return lambda lengths_O: torch.full((int(lengths_O.sum()),), 2 / max(len(outputs), 1))
    return partial(
        token_weights,
        outputs=sum(len(group.outputs) for group in groups),
        mean=section.loss_mean,
        tokens=sum(group.tokens for group in groups),
        longest=section.max_tokens,
    )


def train_on(
    learner: Learner,
    groups: Sequence[Group],
    section: RlSection,
    learning_rate: float,
    on_policy: bool = True,
) -> dict[str, float | None]:
    """Make mu updates on the groups, the same on all ranks; returns the step's metrics (None: not measured).

    `on_policy`: the groups were sampled from the current weights, so that policy and sampler must give the
    same log-probabilities. Raises StaleSampler, before the weights change, when they do not, and InputError
    when the loss is not finite.
    """
    started = time.monotonic()
    # A GPU chooses kernels, cuts its memory and compiles anew for each shape.
    fixed = learner.engine.device.type == "cuda"
    batches = make_micro_batches(groups, section, learner.rows_at_once, fixed)
    metrics: dict[str, float | None] = {"lr": learning_rate}
    if batches:
        if learner.critic is not None:
            prepare_critic(learner.critic, learner.reference, batches, section)
        own = sum(batch.packed.length for batch in batches)
        metrics["trained_tokens"] = round(sum_over_ranks([own], learner.engine.device)[0])
        for number in range(section.updates):
            watched, gaps = Watched(), Gaps() if on_policy and number == 0 else None
            what = Update(learner, section, groups[0].step, number == 0, batches[-1], watched, gaps)
            loss, norm = update(learner.engine, batches, what.loss, learning_rate)
            check_finite("loss", loss)
            metrics |= {"loss": loss, "grad_norm": norm, **watched.over_ranks()}
            metrics |= gaps.metrics if gaps else {}
            if learner.critic is not None:
                metrics |= update_critic(learner.critic, batches, section, learning_rate)
    names = ("loss", "grad_norm", "kl", "clip_low", "clip_high", *GAP_METRICS)
    return dict.fromkeys(names) | metrics | {"train_seconds": time.monotonic() - started}


@dataclass(frozen=True)
class Update:
    """One update of a step. The `first` fixes the old and reference log-probabilities; where there are
    `gaps`, they judge the sampler by the whole batch, after the forward pass of this rank's `last`
    micro-batch.
    """

    learner: Learner
    section: RlSection
    step: int
    first: bool
    last: MicroBatch
    watched: Watched
    gaps: Gaps | None

    def loss(self, batch: MicroBatch) -> Tensor:
        """Return the micro-batch's part of the loss."""
        learner, section = self.learner, self.section
        packed = batch.packed.to(learner.engine.device)
        logprobs_N = output_logprobs(learner.engine, packed)
        if self.first:
            batch.old_N = logprobs_N.detach()
            if learner.reference is not None and batch.reference_N is None:
                with torch.no_grad():
                    batch.reference_N = output_logprobs(learner.reference, packed)
        if self.gaps is not None:
            self.gaps.add(packed, batch.old_N)
            self.watched.add(**divergences(packed, batch.old_N))
            if batch is self.last:
                self.gaps.judge(self.step, section.precision, learner.engine.device)
        return method_of(section).loss(section, replace(batch, packed=packed), logprobs_N, self.watched)


def divergences(packed: PackedOutputs, policy_N: Tensor) -> dict[str, Tensor]:
    """Estimate (k3) KL(sampler || policy) and, by importance weights, KL(policy || sampler) from tokens drawn
    from the sampler.
    """
    shares_N = packed.weights_N
    gap_N = torch.where(shares_N > 0, policy_N - packed.sampler_logprobs_N, 0.0)
    sampler_N = torch.expm1(gap_N) - gap_N
    trainer_N = gap_N.exp() * gap_N - torch.expm1(gap_N)
    return {"sampler_kl": (shares_N * sampler_N).sum(), "trainer_kl": (shares_N * trainer_N).sum()}
