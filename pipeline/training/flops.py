"""FLOP of a model's training and the machine's peak FLOP/s, which together give its utilisation (MFU).

Only necessary arithmetic counts, not recomputed activations or padding: 6 times the weights for each token,
4 times where only adapters are trained, whose own is left out; the output layer only where there is a target,
and causal attention inside documents.
"""

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from pipeline.training.lora import adapters, own_parameters
from pipeline.training.model import full_shape
from pipeline.training.packing import PackedRow

# Dense bf16 FLOP/s from datasheets, by a part of the device's name; the first match counts.
PEAKS = {
    "B200": 2.25e15,
    "H200": 9.89e14,
    "H100 PCIe": 7.56e14,
    "H100": 9.89e14,
    "A100": 3.12e14,
    "L40S": 3.62e14,
    "RTX 4090": 1.65e14,
    "A10": 1.25e14,
}


@dataclass(frozen=True)
class ModelFlops:
    """FLOP of training on one token: body, output layer, and attention per attended token. Use `of`.

    `passes`: how many times a forward pass training takes; the frozen weights of adapters have no gradient.
    """

    body: int
    head: int
    attention: int
    passes: int = 3

    @classmethod
    def of(cls, model: nn.Module) -> "ModelFlops":
        """Count those of a transformers model, whether or not ZeRO-3 has split its weights."""
        config = model.config.get_text_config()
        head = config.vocab_size * config.hidden_size
        embeddings = head if config.tie_word_embeddings else 2 * head
        shapes = [full_shape(parameter) for _, parameter, _ in own_parameters(model)]
        matrices = sum(shape.numel() for shape in shapes if len(shape) >= 2)
        passes = 2 if adapters(model) else 3
        width = config.num_attention_heads * (
            getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        )
        each = 2 * passes
        return cls(each * (matrices - embeddings), each * head, 6 * config.num_hidden_layers * width, passes)

    def row(self, row: PackedRow, targets: int) -> int:
        """Count the FLOP of training on a row with so many `targets`."""
        starts = (row.positions[: row.length] == 0).nonzero()[0]
        lengths = np.diff(np.append(starts, row.length))
        return self.body * row.length + self.head * targets + self.attention * int((lengths**2).sum())


def peak(device: torch.device, dtype: torch.dtype, seconds: float = 0.05) -> float:
    """Return peak FLOP/s of `device`: a known GPU's by its datasheet, else measured on matrix products."""
    if device.type == "cuda" and dtype != torch.float32:
        name = torch.cuda.get_device_name(device)
        known = [value for part, value in PEAKS.items() if part in name]
        if known:
            return known[0]
    size = 8192 if device.type == "cuda" else 1024
    left, right = torch.randn(2, size, size, device=device).to(dtype)
    best, started = 0.0, time.monotonic()
    while not best or time.monotonic() - started < seconds:
        before = time.monotonic()
        (left @ right)[0, 0].item()
        best = max(best, 2 * size**3 / (time.monotonic() - before))
    return best
