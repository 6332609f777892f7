"""The GPU part of `make bench-training`: utilisation (MFU) by size of model, memory of the loss.

Random weights, bf16, sequences of 4096 tokens made of documents (log-normal lengths, mean about 1,000), which
do not see each other; compiled layers, variable-length attention, the fused output layer, AdamW. MFU counts
only what the mathematics needs (`pipeline/training/flops.py`), so attention across documents earns nothing.
"""

import pipeline.training.environment  # noqa: F401  # isort: skip  # before torch and deepspeed

import time

import numpy as np
import torch
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, LlamaConfig

from pipeline.training.engine import EngineSettings, build_engine, prepare, update
from pipeline.training.flops import ModelFlops, peak
from pipeline.training.linear_loss import weighted_nll
from pipeline.training.model import TokenLogprobs
from pipeline.training.packing import IGNORE, PackedRow, make_row

CONTEXT, VOCABULARY, STEPS = 4096, 102_400, 8
# hidden, MLP, layers, heads, sequences at once. The 7B has fewer layers than the paper's 30, to fit one GPU
# with its optimiser; its layers are of full size, which is what utilisation depends on.
SHAPES = {
    "0.5B": (1024, 4096, 24, 16, 8),
    "1.3B": (2048, 5504, 24, 16, 4),
    "7B, 10 of 30 layers": (4096, 11008, 10, 32, 2),
}


def make_rows(count: int, context: int, vocabulary: int) -> list[PackedRow]:
    """Rows filled with documents; the last one of a row is cut."""
    generator = np.random.default_rng(0)
    rows = []
    for _ in range(count):
        lengths, left = [], context
        while left > 1:
            lengths.append(min(left, max(2, int(generator.lognormal(6.5, 0.9)))))
            left -= lengths[-1]
        tokens = [generator.integers(0, vocabulary, length) for length in lengths]
        rows.append(make_row([(ids, np.ones(len(ids), bool)) for ids in tokens], context, 0))
    return rows


def utilisation(
    shape: tuple[int, ...], context: int = CONTEXT, vocabulary: int = VOCABULARY, steps: int = STEPS
) -> tuple[float, float]:
    """(tokens per second, MFU) of training, median step after the first three, which compile and warm up."""
    hidden, inner, layers, heads, batch = shape
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=context,
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with device:
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    launch = {"zero_stage": 1, "activation_checkpointing": False}
    prepare(model, launch)
    engine = build_engine(TokenLogprobs(model), EngineSettings(1e-4, precision="bf16"))
    rows = make_rows(batch, context, vocabulary)
    targets = sum(int((row.targets != IGNORE).sum()) for row in rows)
    names = ("tokens", "positions", "targets")
    tensors = [torch.from_numpy(np.stack([getattr(row, name) for row in rows])).to(device) for name in names]
    weights = torch.full(tensors[0].shape, 1 / targets, device=device)
    seconds = []
    for _ in range(steps):
        started = time.monotonic()
        update(engine, [tensors], lambda parts: engine(*parts, weights_BT=weights)[0], 1e-4)
        seconds.append(time.monotonic() - started)  # `update` reads the loss, so the step is done
    median = float(np.median(seconds[3:] or seconds))
    work = ModelFlops.of(model)
    flop = sum(work.row(row, int((row.targets != IGNORE).sum())) for row in rows)
    engine.destroy()
    return batch * context / median, flop / median / peak(device, torch.bfloat16)


def loss_memory(positions: int, hidden: int = 2048, vocabulary: int = VOCABULARY) -> tuple[float, float]:
    """GB that loss and gradients of `positions` take at most: fused, and by plain logits."""
    found = []
    for fused in (True, False):
        torch.cuda.empty_cache()
        states = torch.randn(positions, hidden, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        head = torch.randn(vocabulary, hidden, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        targets = torch.randint(vocabulary, (positions,), device="cuda")
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        if fused:
            weighted_nll(states, head, targets, torch.full((positions,), 1 / positions, device="cuda"))[
                0
            ].backward()
        else:
            F.cross_entropy((states @ head.T).float(), targets).backward()
        found.append((torch.cuda.max_memory_allocated() - before) / 1e9)
        del states, head, targets
    return found[0], found[1]


def gpu_rows() -> list[dict]:
    """Rows of the table. The peer of an MFU is the aim, 45 %."""
    rows = []
    for name, shape in SHAPES.items():
        speed, mfu = utilisation(shape)
        print(f"{name:20} {speed:10,.0f} tokens/s   MFU {100 * mfu:.1f} %", flush=True)
        row = {"what": f"MFU {name}, bf16, 4K, documents apart", "unit": "%", "ours": 100 * mfu, "peer": 45.0}
        rows.append(row | {"peer_name": "aim", "ratio": mfu / 0.45})
    for positions in (1024, 2048, 4096, 8192, 16384, 32768):
        fused, plain = loss_memory(positions)
        row = {"what": f"loss memory, {positions} positions", "unit": "GB", "ours": fused, "peer": plain}
        rows.append(row | {"peer_name": "plain logits", "ratio": plain / fused})
    return rows
