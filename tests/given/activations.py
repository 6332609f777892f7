"""What autograd keeps of a forward pass for the backward pass."""

from collections.abc import Callable

import torch


def kept_bytes(model: torch.nn.Module, forward: Callable[[], object]) -> int:
    """Bytes that autograd keeps while `forward` runs, weights apart; on the meta device too."""
    weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}  # which holds them, or another storage could get the same place

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage()._cdata not in weights:
            kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        forward()
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
