"""Attention inside documents: causal, and never from one document of a packed row to another.

Registered with transformers as `documents`. A GPU runs torch's variable-length flash kernel, which needs no
further package; other devices run plain causal attention document by document. Neither builds a T x T mask:
a document of length L costs L x L. Documents may share their beginning, which is then in the row once: a
document's queries are its own tokens, its keys also those of the beginning. FlexAttention would do that with
a mask of blocks, but has no gradient on a CPU, so that it could not be tested.

Shape suffixes: B rows, T positions, N = B*T, H heads, E size of a head, S documents, K keys.
"""

import sys
from itertools import groupby, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

DOCUMENTS = "documents"
UNSUPPORTED = ("softcap", "s_aux")  # arguments that change the scores: a cap, sinks


def document_arguments(positions_BT: Tensor) -> dict[str, Any]:
    """Keyword arguments that a transformers model passes on to its attention: the document boundaries of
    `positions_BT`, its rows laid end to end. A document begins at each position 0 and at each row's start.
    """
    starts_BT = positions_BT == 0
    starts_BT[:, 0] = True
    starts = starts_BT.flatten().nonzero().squeeze(1)
    ends = F.pad(starts, (0, 1), value=positions_BT.numel()).to(torch.int32)
    length = positions_BT.shape[1]  # a constant upper bound, so that compiled code is reused
    return {
        "cu_seq_lens_q": ends,
        "cu_seq_lens_k": ends,
        "max_length_q": length,
        "max_length_k": length,
    }


def shared_arguments(queries_S: Tensor, keys_S: Tensor, places_K: Tensor, longest: int) -> dict[str, Any]:
    """Return the same where documents share a beginning.

    Document s has the next `queries_S[s]` positions of the rows laid end to end, and sees the next
    `keys_S[s]` of `places_K`, the places of all documents' keys: the last of them are its own positions, to
    which it is causal. No document has more than `longest` keys. The numbers of documents and of keys differ
    between batches of one shape: compiled code takes any.
    """
    ends = [F.pad(lengths_S.cumsum(0), (1, 0)).to(torch.int32) for lengths_S in (queries_S, keys_S)]
    for tensor in (*ends, places_K) if "torch._dynamo" in sys.modules else ():  # its import takes seconds
        torch._dynamo.mark_dynamic(tensor, 0)
    return {
        "cu_seq_lens_q": ends[0],
        "cu_seq_lens_k": ends[1],
        "max_length_q": longest,
        "max_length_k": longest,
        "key_places": places_K,
        # With four dimensions it is taken as it is: else transformers looks for documents, on the host.
        "attention_mask": queries_S.new_empty(0, 0, 0, 0),
    }


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    position_ids: Tensor | None = None,
    cu_seq_lens_q: Tensor | None = None,
    cu_seq_lens_k: Tensor | None = None,
    max_length_q: int = 0,
    max_length_k: int = 0,
    key_places: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of `query` (B, H, T, E) to `key` and `value`, as (B, T, H, E).

    Document boundaries come from `document_arguments` or `shared_arguments`, or else from `position_ids`.
    Raises RuntimeError without any, because attention across documents would go unnoticed, and for attention
    of a kind that no kernel here computes.
    """
    for name in UNSUPPORTED:
        if others.get(name) is not None:
            raise RuntimeError(f"{type(module).__name__} asks for {name}, which packed attention lacks")
    if cu_seq_lens_q is None:
        ends = document_arguments(_checked(module, position_ids).expand(query.shape[0], -1))
        cu_seq_lens_q, max_length_q = ends["cu_seq_lens_q"], ends["max_length_q"]
        cu_seq_lens_k, max_length_k = cu_seq_lens_q, max_length_q
    window = others.get("sliding_window")
    flat = [tensor.transpose(1, 2).flatten(0, 1) for tensor in (query, key, value)]
    kernel = has_flash_kernel(value)
    if kernel:  # rotary embeddings return fp32 where weights are fp32
        flat = [tensor.to(value.dtype) for tensor in flat]
    else:  # fp32, because the CPU's flash kernel takes four times as long for bf16 gradients
        flat = [tensor.float() if tensor.dtype == torch.bfloat16 else tensor for tensor in flat]
    if key_places is not None:
        flat[1:] = [_Chosen.apply(tensor, key_places) for tensor in flat[1:]]
    if kernel:
        places = cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k
        # Causal. Where a document has more keys than queries, the mask is aligned to the last of both.
        before = window - 1 if window else -1
        options = {"window_size": (before, 0), "scale": scaling, "enable_gqa": query.shape[1] != key.shape[1]}
        output_NHE = varlen_attn(*flat, *places, **options)
    else:
        with torch.autocast(query.device.type, enabled=False):
            ends = cu_seq_lens_q.tolist(), cu_seq_lens_k.tolist()
            output_NHE = _one_by_one(*flat, *ends, scaling, window).to(value.dtype)
    return output_NHE.unflatten(0, (query.shape[0], query.shape[2])), None


def _checked(module: nn.Module, positions: Tensor | None) -> Tensor:
    """Positions by which documents can be told apart: each begins at 0 and goes on in ones."""
    if positions is None:
        raise RuntimeError(f"{type(module).__name__} passes no positions to its attention")
    if ((positions[:, 1:] != positions[:, :-1] + 1) & (positions[:, 1:] != 0)).any():
        raise RuntimeError(f"{type(module).__name__} does not pass on which documents share a beginning")
    return positions


class _Chosen(torch.autograd.Function):
    """Rows of a tensor by index, whose gradients are added up in fp32: many documents share a beginning."""

    @staticmethod
    def forward(ctx: Any, tensor_NHE: Tensor, places_K: Tensor) -> Tensor:
        ctx.save_for_backward(places_K)
        ctx.size = len(tensor_NHE)
        return tensor_NHE.index_select(0, places_K)

    @staticmethod
    def backward(ctx: Any, gradient_KHE: Tensor) -> tuple[Tensor, None]:
        exact = torch.promote_types(gradient_KHE.dtype, torch.float32)
        total_NHE = gradient_KHE.new_zeros((ctx.size, *gradient_KHE.shape[1:]), dtype=exact)
        total_NHE.index_add_(0, *ctx.saved_tensors, gradient_KHE.to(exact))
        return total_NHE.to(gradient_KHE.dtype), None


def has_flash_kernel(value: Tensor) -> bool:
    """Say whether the variable-length flash kernel runs on the device and in the type of `value`."""
    return value.is_cuda and value.dtype in (torch.bfloat16, torch.float16)


def _one_by_one(
    query_NHE: Tensor,
    key_KHE: Tensor,
    value_KHE: Tensor,
    query_ends: list[int],
    key_ends: list[int],
    scaling: float | None,
    window: int | None,
) -> Tensor:
    """Causal attention of each document, its queries being the last of its keys, to the last `window` keys;
    neighbours of equal lengths share a call.
    """
    heads = query_NHE.shape[1]
    if key_KHE.shape[1] != heads:
        groups = heads // key_KHE.shape[1]
        key_KHE, value_KHE = (tensor.repeat_interleave(groups, dim=1) for tensor in (key_KHE, value_KHE))
    lengths = [tuple(stop - start for start, stop in pairwise(ends)) for ends in (query_ends, key_ends)]
    runs = [(pair, len(list(run))) for pair, run in groupby(zip(*lengths, strict=True))]
    split = [
        tensor.split([pair[i > 0] * count for pair, count in runs])
        for i, tensor in enumerate((query_NHE, key_KHE, value_KHE))
    ]
    parts = []
    for ((own, seen), _), *tensors in zip(runs, *split, strict=True):
        q, k, v = (
            tensor.unflatten(0, (-1, length)).transpose(1, 2)
            for tensor, length in zip(tensors, (own, seen, seen), strict=True)
        )
        mask, is_windowed = None, window is not None and seen > window
        if own != seen or is_windowed:
            mask = torch.ones(own, seen, dtype=torch.bool, device=q.device).tril(seen - own)
        if is_windowed:
            mask = mask.triu(seen - own - window + 1)
        output = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, scale=scaling)
        parts.append(output.transpose(1, 2).flatten(0, 1))
    return torch.cat(parts)


def _no_mask(*_: Any, **__: Any) -> None:
    """`document_arguments` separate the documents, not a mask."""
    return None


AttentionInterface.register(DOCUMENTS, attend)
AttentionMaskInterface.register(DOCUMENTS, _no_mask)
