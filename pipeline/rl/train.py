"""The train phase of one exploration: mu updates on its groups (paper 4.1, Algorithm 1 lines 9-11).

One core for all methods: rows of outputs, each token's coefficient, one loss. What cannot change the gradient
is left out: groups whose rewards are all equal when there is no KL term, RFT's wrong outputs, the reference's
pass without a KL term, the old policy's pass (its log-probabilities are those of the first update).
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipeline.common.model import IGNORE
from pipeline.common.stage import InputError
from pipeline.common.training import update
from pipeline.config.rl import RlSection
from pipeline.rl.critic import estimate, values_of
from pipeline.rl.objectives import (
    dpo_loss,
    grpo_loss,
    importance_weights,
    likelihood_loss,
    sequence_logprobs,
    token_weights,
    value_loss,
)
from pipeline.rl.rollout import Group
from pipeline.rl.rows import Output, Rows, micro_batches
from pipeline.rl.signal import preference_pairs, training_outputs
from pipeline.rl.watch import largest, summed

STALE_GAP = {"fp32": 0.01, "bf16": math.inf}  # nats; rounding alone stays under 5e-5 in fp32
WHOLE_PAIR = 1 << 30  # row length of DPO: a pair shares a row, however long


@dataclass
class MicroBatch:
    """Rows, and what stays fixed over the updates of an exploration, (N,) each."""

    rows: Rows
    old_N: Tensor | None = None
    reference_N: Tensor | None = None
    old_values_N: Tensor | None = None
    returns_N: Tensor | None = None


@dataclass(frozen=True)
class Models:
    """The engine of the policy; the frozen reference and PPO's critic (an engine) where the method has one.

    `rows_at_once`: rows in memory at a time.
    """

    engine: Any
    reference: nn.Module | None = None
    critic: Any = None
    rows_at_once: int = 8


@dataclass
class Watched:
    """What the micro-batches of one update showed on this rank: sums of token shares, and the largest gap."""

    gap: list[float] = field(default_factory=lambda: [0.0])
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, **values: Tensor) -> None:
        """Add each value to the sum of its name."""
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value.item()


def make_micro_batches(groups: Sequence[Group], section: RlSection, rows_at_once: int) -> list[MicroBatch]:
    """This rank's part of the batch; ranks get equally many, filled up with rows of weight 0."""
    if section.method == "dpo":
        outputs, prompts = preference_pairs(groups)
        row_tokens = WHOLE_PAIR
    else:
        outputs, prompts = training_outputs(groups, section), [group.prompt for group in groups]
        row_tokens = section.row_tokens
    weights_of = _shares(groups, outputs, section)
    found = list(micro_batches(outputs, prompts, row_tokens, rows_at_once, weights_of))
    counts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(counts, len(found))
    if len(found) < max(counts):
        idle = [Output(0, [0], [0.0], [0.0])] * 2  # two: a pair for DPO
        (filler,) = micro_batches(idle, [[0]], WHOLE_PAIR, 1, weights_of)
        filler.weights_N.zero_()
        found += [filler] * (max(counts) - len(found))
    return [MicroBatch(rows) for rows in found]


def _shares(groups: Sequence[Group], outputs: Sequence[Output], section: RlSection) -> Any:
    """How tokens share the loss, from what all ranks have: groups left out still count as outputs of 0."""
    numbers = [
        sum(len(group.outputs) for group in groups),
        sum(group.tokens for group in groups),
        len(outputs),
    ]
    everything, tokens, pairs = (round(total) for total in summed(numbers, "cpu"))
    if section.method == "dpo":
        return lambda lengths_O: torch.full((int(lengths_O.sum()),), 2 / max(pairs, 1))
    return partial(
        token_weights, outputs=everything, mean=section.loss_mean, tokens=tokens, longest=section.max_tokens
    )


def output_logprobs(module: Any, rows: Rows, temperature: float) -> Tensor:
    """log pi of the rows' output tokens, (N,); `module` is a `TokenLogprobs` or an engine around one."""
    logprobs_BT = module(
        rows.tokens_BT, rows.positions_BT, rows.targets_BT, temperature=temperature, mask_BTT=rows.mask_BTT
    )
    return logprobs_BT[rows.targets_BT != IGNORE]


def train_on(
    models: Models, groups: Sequence[Group], section: RlSection, learning_rate: float, on_policy: bool = True
) -> dict[str, float | None]:
    """mu updates on the groups of all ranks; returns the step's training metrics (None: nothing to measure).

    `on_policy`: the groups come from the policy as it is, so that its log-probabilities must be the
    sampler's. Raises InputError, before the weights change, when they are not, or when the loss is not
    finite.
    """
    started = time.monotonic()
    batches = make_micro_batches(groups, section, models.rows_at_once)
    metrics: dict[str, float | None] = {"lr": learning_rate}
    if batches:
        if models.critic is not None:
            _prepare_critic(models, batches, section)
        for number in range(section.updates):
            watched = Watched()
            loss_of = partial(_loss, models, section, number == 0, on_policy, watched)
            loss, norm = update(models.engine, batches, loss_of, learning_rate)
            _check_finite("gradient norm", norm)
            found = _metrics(watched, loss, norm, models.engine.device)
            kept = {"logprob_gap_max", "sampler_kl", "trainer_kl"} if number else set()
            metrics |= {name: value for name, value in found.items() if name not in kept}
            if models.critic is not None:
                metrics |= _update_critic(models, batches, section, learning_rate)
    names = ("loss", "grad_norm", "kl", "clip_low", "clip_high", "logprob_gap_max")
    return dict.fromkeys(names) | metrics | {"train_seconds": time.monotonic() - started}


def _metrics(watched: Watched, loss: float, norm: float, device: Any) -> dict[str, float | None]:
    names = sorted(watched.sums)
    sums = dict(zip(names, summed([watched.sums[name] for name in names], device), strict=True))
    gap = largest(watched.gap, device)
    return {"loss": loss, "grad_norm": norm, "logprob_gap_max": gap, **sums}


def _loss(
    models: Models,
    section: RlSection,
    first: bool,
    on_policy: bool,
    watched: Watched,
    batch: MicroBatch,
) -> Tensor:
    """The micro-batch's part of the loss; the first update fixes the old and reference log-probabilities."""
    rows = batch.rows.to(models.engine.device)
    logprobs_N = output_logprobs(models.engine, rows, section.temperature)
    if first:
        batch.old_N = logprobs_N.detach()
        if models.reference is not None and batch.reference_N is None:
            with torch.no_grad():
                batch.reference_N = output_logprobs(models.reference, rows, section.temperature)
        if on_policy:
            _watch_sampler(batch.old_N, rows, section, watched)
    loss = _method_loss(section, batch, rows, logprobs_N, watched)
    _check_finite("loss", loss.item())
    return loss


def _method_loss(
    section: RlSection, batch: MicroBatch, rows: Rows, logprobs_N: Tensor, watched: Watched
) -> Tensor:
    if section.method in ("rft", "online_rft"):
        return likelihood_loss(logprobs_N, rows.advantages_N, rows.weights_N)
    if section.method == "dpo":
        return _dpo(section, batch, rows, logprobs_N, watched)
    importance_N = None
    if section.importance_cap is not None:
        importance_N = importance_weights(batch.old_N, rows.sampler_logprobs_N, section.importance_cap)
        watched.add(importance=(rows.weights_N * importance_N).sum())
    terms = grpo_loss(
        logprobs_N,
        batch.old_N,
        batch.reference_N if section.method == "grpo" else None,  # PPO's penalty is in its rewards
        rows.advantages_N,
        rows.weights_N,
        section.clip,
        section.kl_coefficient,
        section.clip_high,
        importance_N,
    )
    watched.add(clip_low=terms.clip_low, clip_high=terms.clip_high)
    if batch.reference_N is not None and section.method == "grpo":
        watched.add(kl=terms.kl)
    return terms.loss


def _dpo(section: RlSection, batch: MicroBatch, rows: Rows, logprobs_N: Tensor, watched: Watched) -> Tensor:
    """Outputs stand in pairs, the right one first; a pair's weight is that of its first token."""
    mean = section.dpo.length_normalised
    scores_O = sequence_logprobs(logprobs_N, rows.lengths_O, mean)
    reference_O = sequence_logprobs(batch.reference_N, rows.lengths_O, mean)
    losses_P = dpo_loss(scores_O[::2], scores_O[1::2], reference_O[::2], reference_O[1::2], section.dpo.beta)
    weights_P = rows.weights_N[rows.lengths_O.cumsum(0) - rows.lengths_O][::2]
    preferred_P = (scores_O - reference_O)[::2] > (scores_O - reference_O)[1::2]
    watched.add(preferred=(weights_P * preferred_P).sum())
    return (weights_P * losses_P).sum()


def _watch_sampler(old_N: Tensor, rows: Rows, section: RlSection, watched: Watched) -> None:
    """How far sampler and policy disagree: the largest gap, and k3 estimates of KL in both directions."""
    real_N = rows.weights_N > 0
    gap_N = torch.where(real_N, old_N - rows.sampler_logprobs_N, 0.0)
    gap = gap_N.abs().max().item()
    watched.gap.append(gap)
    sampler_N = torch.expm1(gap_N) - gap_N  # KL(sampler || policy), of tokens drawn from the sampler
    trainer_N = gap_N.exp() * gap_N - torch.expm1(gap_N)  # KL(policy || sampler), by importance weights
    shares_N = rows.weights_N
    watched.add(sampler_kl=(shares_N * sampler_N).sum(), trainer_kl=(shares_N * trainer_N).sum())
    _check_finite("log-probability gap", gap)
    if gap > STALE_GAP[section.precision]:
        raise InputError(
            f"rl: sampler and policy disagree by {gap:.3g} nats: the sampler's weights are stale; run again"
        )


def _prepare_critic(models: Models, batches: Sequence[MicroBatch], section: RlSection) -> None:
    """Values, advantages and returns of the exploration, before any weight changes."""
    for batch in batches:
        rows = batch.rows.to(models.engine.device)
        with torch.no_grad():
            batch.old_values_N = values_of(models.critic, rows)
            if models.reference is not None:
                batch.reference_N = output_logprobs(models.reference, rows, section.temperature)
        advantages_N, batch.returns_N = estimate(
            rows,
            batch.old_values_N,
            batch.reference_N,
            section.kl_coefficient,
            section.ppo.gamma,
            section.ppo.lam,
        )
        batch.rows = Rows(**{**vars(rows), "advantages_N": advantages_N})


def _update_critic(
    models: Models, batches: Sequence[MicroBatch], section: RlSection, learning_rate: float
) -> dict[str, float | None]:
    """One step of the critic on the same batches; its rate follows the policy's warm-up."""

    def loss_of(batch: MicroBatch) -> Tensor:
        values_N = values_of(models.critic, batch.rows)
        weights_N, clip = batch.rows.weights_N, section.ppo.value_clip
        loss = value_loss(values_N, batch.old_values_N, batch.returns_N, weights_N, clip)
        _check_finite("value loss", loss.item())
        return loss

    rate = learning_rate / section.learning_rate * section.ppo.value_learning_rate
    loss, norm = update(models.critic, batches, loss_of, rate)
    _check_finite("gradient norm of the critic", norm)
    return {"value_loss": loss, "value_grad_norm": norm}


def _check_finite(what: str, value: float) -> None:
    if not math.isfinite(value):
        raise InputError(f"rl: the {what} is {value}; lower learning_rate, or start from sound weights")
