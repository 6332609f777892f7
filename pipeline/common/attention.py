"""Attention inside documents: causal, and never from one document of a packed row to another.

Registered with transformers as `documents`. A GPU runs torch's variable-length flash kernel, which needs no
further package; other devices run plain causal attention document by document. Neither builds a T x T mask:
a document of length L costs L x L. Shape suffixes: B rows, T positions, N = B*T, H heads, E size of a head.
"""

import inspect
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface

DOCUMENTS = "documents"
KNOWN = frozenset(inspect.signature(varlen_attn).parameters)


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


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    position_ids: Tensor | None = None,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int = 0,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of `query` (B, H, T, E) to `key` and `value`, as (B, T, H, E).

    Document boundaries come from `document_arguments`, or else from `position_ids`; a mask (B, 1, T, T)
    replaces both. Raises RuntimeError without any of the three, because attention across documents would go
    unnoticed, and for rows longer than the model's sliding window.
    """
    if attention_mask is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **others)
    if cu_seq_lens_q is None:
        if position_ids is None:
            raise RuntimeError(f"{type(module).__name__} passes no positions to its attention")
        documents = document_arguments(position_ids.expand(query.shape[0], -1))
        cu_seq_lens_q, max_length_q = documents["cu_seq_lens_q"], documents["max_length_q"]
    window = others.get("sliding_window")
    if window and max_length_q > window:
        raise RuntimeError(f"{type(module).__name__} sees {window} tokens back; rows have {max_length_q}")
    flat = [tensor.transpose(1, 2).flatten(0, 1) for tensor in (query, key, value)]
    if has_flash_kernel(value):
        flat = [
            tensor.to(value.dtype) for tensor in flat
        ]  # rotary embeddings return fp32 where weights are fp32
        output_NHE = _variable_length(*flat, cu_seq_lens_q, max_length_q, scaling)
    else:
        # fp32, because the CPU's flash kernel takes four times as long for bf16 gradients.
        flat = [tensor.float() if tensor.dtype == torch.bfloat16 else tensor for tensor in flat]
        with torch.autocast(query.device.type, enabled=False):
            output_NHE = _one_by_one(*flat, cu_seq_lens_q.tolist(), scaling).to(value.dtype)
    return output_NHE.unflatten(0, (query.shape[0], query.shape[2])), None


def has_flash_kernel(value: Tensor) -> bool:
    """Whether the variable-length flash kernel runs on the device and in the type of `value`."""
    return value.is_cuda and value.dtype in (torch.bfloat16, torch.float16)


def _one_by_one(
    query_NHE: Tensor, key_NHE: Tensor, value_NHE: Tensor, ends: list[int], scaling: float | None
) -> Tensor:
    """Causal attention of each document; neighbours of equal length share a call."""
    heads = query_NHE.shape[1]
    if key_NHE.shape[1] != heads:
        groups = heads // key_NHE.shape[1]
        key_NHE, value_NHE = (tensor.repeat_interleave(groups, dim=1) for tensor in (key_NHE, value_NHE))
    lengths = [stop - start for start, stop in zip(ends, ends[1:], strict=False)]
    runs = [(length, len(list(run))) for length, run in groupby(lengths)]
    sizes = [length * count for length, count in runs]
    parts = []
    for (length, _), *tensors in zip(
        runs, query_NHE.split(sizes), key_NHE.split(sizes), value_NHE.split(sizes), strict=True
    ):
        q, k, v = (tensor.unflatten(0, (-1, length)).transpose(1, 2) for tensor in tensors)
        output = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling)
        parts.append(output.transpose(1, 2).flatten(0, 1))
    return torch.cat(parts)


def _variable_length(
    query_NHE: Tensor, key_NHE: Tensor, value_NHE: Tensor, ends: Tensor, longest: int, scaling: float | None
) -> Tensor:
    """All documents in one flash kernel, whose Python signature differs between versions of torch."""
    options: dict[str, Any] = {"window_size": (-1, 0)} if "window_size" in KNOWN else {"is_causal": True}
    if scaling is not None and "scale" in KNOWN:
        options["scale"] = scaling
    if key_NHE.shape[1] != query_NHE.shape[1]:
        if "enable_gqa" in KNOWN:
            options["enable_gqa"] = True
        else:
            groups = query_NHE.shape[1] // key_NHE.shape[1]
            key_NHE, value_NHE = (tensor.repeat_interleave(groups, dim=1) for tensor in (key_NHE, value_NHE))
    return varlen_attn(query_NHE, key_NHE, value_NHE, ends, ends, longest, longest, **options)


def _no_mask(*_: Any, **__: Any) -> None:
    """`document_arguments` separate the documents, not a mask."""
    return None


AttentionInterface.register(DOCUMENTS, attend)
AttentionMaskInterface.register(DOCUMENTS, _no_mask)
