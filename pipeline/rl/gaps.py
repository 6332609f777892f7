"""How far the policy's log-probabilities are from the sampler's, over the tokens of a step on all ranks.

Rounding makes them differ, at a few tokens by nats: mean and limits must not hang on those. So a gap counts
as 1 nat at most where the sampler is judged. A sampler whose weights are stale differs at most tokens.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.protocol.ending import say
from pipeline.protocol.stage import InputError
from pipeline.rl.packed_outputs import IGNORE, PackedOutputs
from pipeline.rl.watch import check_finite, summed

# Mean of the gaps, each 1 nat at most, from which on the sampler is stale. Measured on small models: rounding
# gives 1e-5 in fp32 and up to 0.05 in bf16; rollouts of another model give 0.4 to 0.9.
STALE = {"fp32": 0.01, "bf16": 0.2}
GAP_METRICS = ("logprob_gap_max", "logprob_gap_mean", "logprob_gap_p99")
OUTLIER = {"fp32": 0.1, "bf16": 2.0}  # nats; a line is written about tokens with larger gaps


class StaleSampler(InputError):
    """A step's outputs were not sampled from the policy's weights."""


@dataclass
class Gaps:
    """The gaps of this rank's tokens; of the worst (gap, token id, log-probability by sampler, by policy)."""

    gaps: list[Tensor] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    worst: tuple[float, int, float, float] = (0.0, -1, 0.0, 0.0)

    def add(self, packed: PackedOutputs, policy_N: Tensor) -> None:
        """Look at the tokens of a micro-batch that are trained on. Raises InputError for a NaN."""
        trained_N = packed.weights_N > 0
        policy_n, sampler_n = policy_N[trained_N], packed.sampler_logprobs_N[trained_N]
        if not len(policy_n):
            return
        gap_n = (policy_n - sampler_n).abs()
        gap, at = gap_n.max(0)
        check_finite("log-probability gap", gap.item())
        if gap.item() > self.worst[0]:
            token = packed.targets_BT[packed.targets_BT != IGNORE][trained_N][at]
            self.worst = (gap.item(), int(token), sampler_n[at].item(), policy_n[at].item())
        self.gaps.append(gap_n.float().cpu())

    def judge(self, step: int, precision: str, device: Any) -> None:
        """Set the metrics over all ranks, which must all call it: largest gap, mean and 99th percentile.

        Says in one line what the tokens beyond `OUTLIER` are. Raises StaleSampler, on all ranks, if the
        tokens were not sampled from the policy's weights.
        """
        own = torch.cat([torch.empty(0), *self.gaps])
        sums = own.sum(), own.clamp(max=1.0).sum(), (own > OUTLIER[precision]).sum()
        count, total, bounded, outliers = summed([len(own), *(value.item() for value in sums)], device)
        if not count:
            return
        ranks: list[Any] = [None] * dist.get_world_size()
        tail = math.ceil(count / 100)
        dist.all_gather_object(ranks, (self.worst, own.topk(min(tail, len(own))).values.tolist()))
        worst = max(worst for worst, _ in ranks)
        if outliers and dist.get_rank() == 0:
            gap, token, sampler, policy = worst
            say(
                f"rl step {step}: {outliers:.0f} of {count:.0f} tokens differ by more than "
                f"{OUTLIER[precision]:g} nats between sampler and policy; most, by {gap:.3g}, token {token}: "
                f"{sampler:.4g} by the sampler, {policy:.4g} by the policy"
            )
        if bounded > STALE[precision] * count:
            raise StaleSampler(
                f"rl step {step}: sampler and policy disagree by {bounded / count:.3g} nats a token (each at "
                f"most 1; allowed {STALE[precision]}), so the sampler's weights are stale"
            )
        percentile = sorted(value for _, tops in ranks for value in tops)[-tail]
        self.metrics = dict(zip(GAP_METRICS, (worst[0], total / count, percentile), strict=True))
