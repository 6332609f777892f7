"""Output layer and cross-entropy fused, chunk by chunk: the logits of all positions never exist at once.

`weighted_nll`: the weight of each position is known beforehand, so the forward pass computes a chunk's
gradients from its logits; nothing is kept or computed twice. `target_logprobs`: the loss is not known yet
(policy gradients), so the backward pass computes the logits of each chunk again, unless one chunk holds all
positions.

Logits are summed and kept in fp32, as the sampler's are: rounded to bf16, one in three log-probabilities
changes by more than 2 %. The products of gradients are in the type of the hidden states. Shape suffixes:
N positions, C positions of a chunk, D hidden size, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK_ELEMENTS = {"cpu": 2**25, "cuda": 2**28}  # logits held at once, 4 bytes each


def _chunks(positions: int, head_VD: Tensor) -> list[slice]:
    size = max(1, CHUNK_ELEMENTS[head_VD.device.type] // len(head_VD))
    return [slice(start, min(start + size, positions)) for start in range(0, positions, size)]


def _logits(hidden_CD: Tensor, head_VD: Tensor) -> Tensor:
    if hidden_CD.dtype != torch.bfloat16:
        return (hidden_CD @ head_VD.T).float()
    if hidden_CD.is_cuda:
        return torch.mm(hidden_CD, head_VD.T, out_dtype=torch.float32)
    return hidden_CD.float() @ head_VD.T.float()  # products of bf16 numbers are exact in fp32


class _Gradients:
    """Gradients of hidden states and output layer, summed chunk by chunk; those not `wanted` stay None."""

    def __init__(self, hidden_ND: Tensor, head_VD: Tensor, wanted: tuple[bool, ...]) -> None:
        self.hidden_ND = torch.empty_like(hidden_ND) if wanted[0] else None
        self.head_VD = torch.zeros_like(head_VD, dtype=torch.float32) if wanted[1] else None

    def add(
        self,
        part: slice,
        logits_CV: Tensor,
        normaliser_C1: Tensor,
        targets_C1: Tensor,
        scale_C1: Tensor,
        hidden_CD: Tensor,
        head_VD: Tensor,
    ) -> None:
        """Add the gradients of sum_n scale_n * -log p(target_n) over one chunk; overwrites the logits."""
        gradient_CV = logits_CV.sub_(normaliser_C1).exp_()
        gradient_CV.scatter_add_(1, targets_C1, torch.full_like(normaliser_C1, -1.0))
        gradient_CV = gradient_CV.mul_(scale_C1).to(hidden_CD.dtype)
        if self.hidden_ND is not None:
            torch.mm(gradient_CV, head_VD, out=self.hidden_ND[part])
        if self.head_VD is None:
            return
        if gradient_CV.dtype == torch.float32:
            self.head_VD.addmm_(gradient_CV.T, hidden_CD)
        else:  # the sum over chunks is kept in fp32
            self.head_VD += gradient_CV.T @ hidden_CD


class _WeightedNll(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, head_VD: Tensor, targets_N: Tensor, weights_N: Tensor
    ) -> tuple[Tensor, Tensor]:
        product_VD = head_VD.to(hidden_ND.dtype)
        logprobs_N = torch.empty(len(targets_N), dtype=torch.float32, device=hidden_ND.device)
        gradients = _Gradients(hidden_ND, head_VD, ctx.needs_input_grad)
        for part in _chunks(len(targets_N), head_VD):
            hidden_CD, targets_C1 = hidden_ND[part], targets_N[part, None]
            logits_CV = _logits(hidden_CD, product_VD)
            normaliser_C1 = logits_CV.logsumexp(1, keepdim=True)
            logprobs_N[part] = (logits_CV.gather(1, targets_C1) - normaliser_C1).squeeze(1)
            if any(ctx.needs_input_grad):
                scale_C1 = weights_N[part, None]
                gradients.add(part, logits_CV, normaliser_C1, targets_C1, scale_C1, hidden_CD, product_VD)
        ctx.gradients, ctx.dtype = gradients, head_VD.dtype
        ctx.mark_non_differentiable(logprobs_N)
        return -(weights_N * logprobs_N).sum(), logprobs_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        hidden_ND, head_VD = ctx.gradients.hidden_ND, ctx.gradients.head_VD
        del ctx.gradients
        hidden_ND = None if hidden_ND is None else hidden_ND.mul_(scale)
        head_VD = None if head_VD is None else head_VD.mul_(scale).to(ctx.dtype)
        return hidden_ND, head_VD, None, None


class _TargetLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_ND: Tensor, head_VD: Tensor, targets_N: Tensor) -> Tensor:
        product_VD = head_VD.to(hidden_ND.dtype)
        logprobs_N = torch.empty(len(targets_N), dtype=torch.float32, device=hidden_ND.device)
        normaliser_N = torch.empty_like(logprobs_N)
        parts, logits_CV = _chunks(len(targets_N), head_VD), None
        for part in parts:
            logits_CV = _logits(hidden_ND[part], product_VD)
            normaliser_C1 = logits_CV.logsumexp(1, keepdim=True)
            normaliser_N[part] = normaliser_C1.squeeze(1)
            logprobs_N[part] = (logits_CV.gather(1, targets_N[part, None]) - normaliser_C1).squeeze(1)
        ctx.save_for_backward(hidden_ND, head_VD, targets_N, normaliser_N)
        ctx.logits_CV = logits_CV if len(parts) == 1 and any(ctx.needs_input_grad) else None
        return logprobs_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream_N: Tensor) -> tuple[Tensor | None, ...]:
        hidden_ND, head_VD, targets_N, normaliser_N = ctx.saved_tensors
        product_VD = head_VD.to(hidden_ND.dtype)
        gradients = _Gradients(hidden_ND, head_VD, ctx.needs_input_grad)
        kept_CV, ctx.logits_CV = ctx.logits_CV, None
        for part in _chunks(len(targets_N), head_VD):
            hidden_CD, targets_C1 = hidden_ND[part], targets_N[part, None]
            logits_CV = _logits(hidden_CD, product_VD) if kept_CV is None else kept_CV
            scale_C1 = -upstream_N[part, None]
            normaliser_C1 = normaliser_N[part, None]
            gradients.add(part, logits_CV, normaliser_C1, targets_C1, scale_C1, hidden_CD, product_VD)
        head_grad_VD = None if gradients.head_VD is None else gradients.head_VD.to(head_VD.dtype)
        return gradients.hidden_ND, head_grad_VD, None


def weighted_nll(
    hidden_ND: Tensor, head_VD: Tensor, targets_N: Tensor, weights_N: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the sum of `weights_N` times the negative log-probabilities of `targets_N` (nats), and without
    gradient the log-probabilities (N,), fp32.
    """
    return _WeightedNll.apply(hidden_ND, head_VD, targets_N, weights_N.float())


def target_logprobs(hidden_ND: Tensor, head_VD: Tensor, targets_N: Tensor) -> Tensor:
    """Return log-probabilities of `targets_N`, (N,), fp32."""
    return _TargetLogprobs.apply(hidden_ND, head_VD, targets_N)
