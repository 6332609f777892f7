"""Are the sampler's weights the trainer's? Checksums that do not depend on how tensors are joined or cut.

vLLM joins some tensors (q, k and v), pads the vocabulary with zeros, splits tensors among the ranks of a
sampler, and packs them on a CPU. Its own `compute_weight_checksums` hashes what lies there, so it compares
samplers with each other and not with a trainer. Ours is a sum over a tensor's numbers: the sums of parts add
up to that of the whole, zeros add nothing, and one pass over the weights is enough.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

CHUNK = 1 << 24  # numbers at a time; temporary memory is 16 bytes for each
MIX = 0x9E3779B97F4A7C15 - (1 << 64)
INTEGERS = {2: torch.int16, 4: torch.int32}  # by bytes of a number

Sums = dict[str, int]


def checksum(tensor: Tensor) -> int:
    """Sum x (x + c) over the bit patterns x of all numbers, modulo 2^64."""
    flat = tensor.detach().reshape(-1)
    bits = flat.view(INTEGERS[flat.element_size()])
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    for part in bits.split(CHUNK):
        wide = part.to(torch.int64)
        total += (wide + MIX).mul_(wide).sum()
    return total.item()


def record(worker: Any) -> None:
    """Make a CPU sampler note the sums of what it packs, before the numbers are no longer to be seen."""
    for module in worker.model_runner.get_model().modules():
        method = getattr(module, "quant_method", None)
        if method is not None:
            method.process_weights_after_loading = partial(_noted, method.process_weights_after_loading)


def _noted(process: Any, layer: nn.Module) -> None:
    layer.loaded_sums = {name: checksum(value) for name, value in layer.named_parameters(recurse=False)}
    process(layer)


def sampler_sums(worker: Any) -> tuple[Sums, Mapping[str, Sequence[str]]]:
    """Return checksums of the weights that a sampler holds, and which tensors each joined one has.

    Left out are joined heads that several ranks hold a part of in common: their sums do not add up.
    """
    model = worker.model_runner.get_model()
    common = [
        path for path, module in model.named_modules() if getattr(module, "num_kv_head_replicas", 1) > 1
    ]
    sums = {
        f"{path}.{name}": value
        for path, module in model.named_modules()
        for name, value in getattr(module, "loaded_sums", {}).items()
    }
    sums |= {name: checksum(value) for name, value in model.named_parameters() if name not in sums}
    sums = {name: value for name, value in sums.items() if name.rpartition(".")[0] not in common}
    return sums, getattr(model, "packed_modules_mapping", None) or {}


def joined(trained: Sums, packed: Mapping[str, Sequence[str]]) -> Sums:
    """Return the trainer's sums under the sampler's names."""
    names = {part: whole for whole, parts in packed.items() for part in parts}
    found: Sums = {}
    for name, value in trained.items():
        name = ".".join(names.get(word, word) for word in name.split("."))
        found[name] = _wrapped(found.get(name, 0) + value)
    return found


def stale(trained: Sums, shards: Sequence[Sums]) -> str | None:
    """Name a sampler's weight that is not the trainer's, if any is; `shards`: one for each of its ranks.

    A shard is either a part of the trainer's tensor or all of it. Weights that have another name in the
    trainer are compared by the sum of all.
    """
    own = [name for name in shards[0] if name not in trained]
    for name in shards[0]:
        if name in trained:
            parts = [shard[name] for shard in shards]
            if _wrapped(sum(parts)) != trained[name] and set(parts) != {trained[name]}:
                return name
    rest = [value for name, value in trained.items() if name not in shards[0]]
    if own and _wrapped(sum(shard[name] for shard in shards for name in own)) != _wrapped(sum(rest)):
        return own[0]
    return None


def _wrapped(value: int) -> int:
    """Return `value` modulo 2^64, as a signed number."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def noted(
    weights: Iterable[tuple[str, Tensor]], dtype: torch.dtype, sums: Sums
) -> Iterable[tuple[str, Tensor]]:
    """Pass the same weights on; their checksums in `dtype` are added to `sums` as they pass."""
    for name, tensor in weights:
        sums[name] = checksum(tensor.to(dtype))
        yield name, tensor
