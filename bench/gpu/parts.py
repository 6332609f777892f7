"""Steps that need torch and transformers alone: parts of training beside references, and what they cost."""

import os  # isort: skip

os.environ["TORCH_COMPILE_DISABLE"] = "0"  # programs compile nothing on a CPU; step `compiling` does
import pipeline.training.environment  # noqa: F401  # isort: skip  # before torch

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from given.activations import kept_bytes
from torch._dynamo.utils import counters
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

from pipeline.rl.packed_outputs import Output, PackedOutputs, micro_batches, output_logprobs, split_into_rows
from pipeline.training.attention import attend, document_arguments
from pipeline.training.flops import ModelFlops, peak
from pipeline.training.linear_loss import target_logprobs, weighted_nll
from pipeline.training.model import TokenLogprobs
from pipeline.training.packing import PackedRow, make_row
from workflow.forecast import costs
from workflow.forecast.shapes import shape_from, shape_named

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")
CONTEXT = 4096 if GPU else 128
VOCABULARY = 102_400 if GPU else 500
# hidden, MLP, layers, heads, rows at once. Of the 7B as many layers as fit one GPU with their optimiser.
SHAPES = {
    "0.5B": (1024, 4096, 24, 16, 4),
    "1.3B": (2048, 5504, 24, 16, 2),
    "10 layers of 7B": (4096, 11008, 10, 32, 1),
}
if not GPU:
    SHAPES = {"tiny": (64, 176, 2, 4, 2)}


def seconds_of(work: Callable[[], object], times: int = 5) -> float:
    """The median of `times` runs, the device's work included."""
    found = []
    for _ in range(times):
        started = time.monotonic()
        work()
        if GPU:
            torch.cuda.synchronize()
        found.append(time.monotonic() - started)
    return float(np.median(found))


def make_rows(count: int, context: int = CONTEXT) -> list[PackedRow]:
    """Rows filled with documents of log-normal lengths, mean about 1,000 tokens; the last one is cut."""
    generator, rows = np.random.default_rng(0), []
    for _ in range(count):
        lengths, left = [], context
        while left > 1:
            lengths.append(min(left, max(2, int(generator.lognormal(6.5 if GPU else 3, 0.9)))))
            left -= lengths[-1]
        documents = [(generator.integers(0, VOCABULARY, n), np.ones(n, bool)) for n in lengths]
        rows.append(make_row(documents, context, 0))
    return rows


def tensors_of(rows: list[PackedRow]) -> list[torch.Tensor]:
    """Tokens, positions and targets of rows, on the device."""
    parts = ("tokens", "positions", "targets")
    return [torch.from_numpy(np.stack([getattr(row, part) for row in rows])).to(DEVICE) for part in parts]


def keys_of(shape: tuple[int, ...]) -> dict[str, Any]:
    """The configuration of a Llama of one of `SHAPES`."""
    hidden, inner, layers, heads, _ = shape
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    return dict(zip(names, (hidden, inner, layers, heads, VOCABULARY), strict=True))


def model_of(shape: tuple[int, ...], dtype: torch.dtype = torch.bfloat16) -> TokenLogprobs:
    """A model of random weights on the device."""
    torch.manual_seed(0)
    config = LlamaConfig(**keys_of(shape), max_position_embeddings=CONTEXT)
    with DEVICE:
        return TokenLogprobs(AutoModelForCausalLM.from_config(config, dtype=dtype)).train()


def loss_of(model: TokenLogprobs, tensors: list[torch.Tensor]) -> torch.Tensor:
    """The mean negative log-probability of all targets."""
    weights_BT = torch.full(tensors[0].shape, 1 / tensors[0].numel(), device=DEVICE)
    return model(*tensors, weights_BT=weights_BT)[0]


def attention() -> dict[str, float]:
    """The variable-length kernel and FlexAttention beside SDPA with a mask in fp32, and the times of all."""
    _, positions_BT, _ = tensors_of(make_rows(1))
    apart, documents_T = document_arguments(positions_BT), (positions_BT[0] == 0).cumsum(0)
    mask_TT = (documents_T[:, None] == documents_T).tril()

    def sees(_: int, head: int, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return (query >= key) & (documents_T[query] == documents_T[key])

    blocks = create_block_mask(sees, None, None, CONTEXT, CONTEXT, DEVICE)
    flex = torch.compile(flex_attention) if GPU else flex_attention
    draw = torch.randn(4, 1, 8, CONTEXT, 64, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(0))

    def run(dtype: torch.dtype, way: str) -> list[torch.Tensor]:
        trains = GPU or way != "flex"  # FlexAttention has no gradient on a CPU
        q, k, v, upstream = (tensor.to(dtype).requires_grad_(trains) for tensor in draw)
        if way == "mask":
            output = F.scaled_dot_product_attention(q, k, v, mask_TT)
        elif way == "flex":
            output = flex(q, k, v, block_mask=blocks)
        else:
            output = attend(torch.nn.Module(), q, k, v, None, **apart)[0].transpose(1, 2)
        return [output, *(torch.autograd.grad(output, (q, k, v), upstream.detach()) if trains else ())]

    exact, found = run(torch.float32, "mask"), {}
    for way in ("documents", "flex", "mask"):
        pairs = zip(exact, run(torch.bfloat16, way), strict=False)
        gap = max(((one - two).norm() / one.norm()).item() for one, two in pairs)
        assert gap < 0.02, f"attention by {way} differs by {gap:.3g} of its norm"  # rounding to bf16 is 0.004
        found |= {
            f"{way}: gap": gap,
            f"{way}: ms": 1e3 * seconds_of(lambda way=way: run(torch.bfloat16, way)),
        }
    return found


def loss() -> dict[str, float]:
    """The loss by chunks beside plain logits in fp32, its gradients, and the memory that both take."""
    hidden = 2048 if GPU else 32
    draw = torch.Generator(DEVICE).manual_seed(0)
    states_ND = torch.randn(CONTEXT, hidden, device=DEVICE, generator=draw).bfloat16() / hidden**0.5
    head_VD = torch.randn(VOCABULARY, hidden, device=DEVICE, generator=draw).bfloat16()
    targets_N = torch.randint(VOCABULARY, (CONTEXT,), device=DEVICE, generator=draw)
    weights_N = torch.full((CONTEXT,), 1 / CONTEXT, device=DEVICE)
    found, held = [], []
    for way in ("chunks", "again", "plain"):
        states, head = states_ND.clone().requires_grad_(), head_VD.clone().requires_grad_()
        if GPU:
            torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() if GPU else 0
        if way == "chunks":
            value = weighted_nll(states, head, targets_N, weights_N)[0]
        elif way == "again":
            value = -target_logprobs(states, head, targets_N).mean()
        else:
            value = F.cross_entropy(states.float() @ head.float().T, targets_N)
        value.backward()
        held.append((torch.cuda.max_memory_allocated() - before) / 1e9 if GPU else 0.0)
        found.append([value.detach(), states.grad, head.grad])
    gaps = [
        ((one.float() - two.float()).norm() / two.float().norm()).item()
        for way in found[:2]
        for one, two in zip(way, found[2], strict=True)
    ]
    assert max(gaps) < 0.02, f"loss or gradients differ by {max(gaps):.3g}"
    return {"gap": max(gaps), "GB": held[0], "GB with plain logits": held[2]}


def rounding() -> dict[str, float]:
    """How far log-probabilities in bf16 are from those in fp32, in nats."""
    shape, tensors = next(iter(SHAPES.values())), tensors_of(make_rows(1))
    exact = model_of(shape, torch.float32)
    with torch.no_grad():
        first = exact(*tensors)
        gap = (first - exact.to(torch.bfloat16)(*tensors)).abs().flatten()
    assert gap.mean() < 0.05, f"bf16 is {gap.mean():.3g} nats from fp32"
    return {"mean": gap.mean().item(), "p99": gap.quantile(0.99).item(), "most": gap.max().item()}


def compiling() -> dict[str, float]:
    """Compiled layers give the loss of plain ones; the seconds of compiling, and of a step with each."""
    shape, tensors = next(iter(SHAPES.values())), tensors_of(make_rows(2))
    model = model_of(shape)

    def step() -> float:
        value = loss_of(model, tensors)
        value.backward()
        return value.item()

    plain, seconds = step(), seconds_of(step)
    for layer in model.model.base_model.layers:
        layer.compile(backend="inductor" if GPU else "aot_eager")  # g++ would take a minute
    first = seconds_of(step, times=1)
    gap = abs(step() - plain) / plain
    assert gap < 0.005, f"compiled layers change the loss by {gap:.3g}"
    return {"gap": gap, "first s": first, "speed-up": seconds / seconds_of(step)}


def memory() -> dict[str, float]:
    """The most GB of a training step of each model beside what the plan says; on a CPU its activations."""
    found = {}
    for name, shape in SHAPES.items():
        plan, rows = shape_from(keys_of(shape)), make_rows(1)
        tensors, model = tensors_of(rows), model_of(shape)
        planned = costs.activations(plan, CONTEXT, "bf16", False)
        if not GPU:
            measured = kept_bytes(model, lambda model=model, tensors=tensors: loss_of(model, tensors))
        else:
            optimizer = torch.optim.AdamW(model.parameters(), fused=True)
            torch.cuda.reset_peak_memory_stats()
            for _ in range(2):
                loss_of(model, tensors).backward()
                optimizer.step()
                optimizer.zero_grad()
            measured = torch.cuda.max_memory_allocated()
            # This optimiser is torch's: weights, gradients and two moments, all in bf16.
            planned += 8 * plan.parameters + costs.logits(plan, CONTEXT, "bf16")
            del optimizer
        found |= {f"{name}: GB": measured / 1e9, f"{name}: of plan": measured / planned}
        del model
        if GPU:
            torch.cuda.empty_cache()
    return found


def utilisation() -> dict[str, float]:
    """Share of the peak FLOP/s that forward and backward pass of compiled layers reach, by model."""
    found, speed = {}, peak(DEVICE, torch.bfloat16)
    for name, shape in SHAPES.items():
        rows, model = make_rows(shape[-1]), model_of(shape)
        tensors, work = tensors_of(rows), ModelFlops.of(model.model)
        for layer in model.model.base_model.layers if GPU else ():
            layer.compile()

        def step(model: TokenLogprobs = model, tensors: list = tensors) -> None:
            loss_of(model, tensors).backward()
            model.zero_grad()

        for _ in range(3 if GPU else 1):
            step()
        flop = sum(work.row(row, row.length - 1) for row in rows)
        seconds = seconds_of(step)
        found |= {f"{name}: MFU": flop / seconds / speed, f"{name}: tokens/s": len(rows) * CONTEXT / seconds}
        del model, step
    return found


def shipped_model() -> TokenLogprobs:
    """A random model of the shape of Qwen2.5-0.5B, from which `configs/single-gpu.yaml` starts: grouped
    queries, biases, tied embeddings; on a CPU a small one of its kind.
    """
    shape = shape_named("Qwen2.5-0.5B")
    if not GPU:
        shape = replace(shape, layers=2, hidden=56, mlp=96, heads=14, kv_heads=2, head_dim=4, vocabulary=500)
    keys = {"hidden_size": shape.hidden, "intermediate_size": shape.mlp, "num_hidden_layers": shape.layers}
    keys |= {"num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads}
    config = Qwen2Config(**keys, vocab_size=shape.vocabulary, tie_word_embeddings=True)
    torch.manual_seed(0)
    with DEVICE:
        return TokenLogprobs(AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)).train()


def alike(lengths_O: torch.Tensor) -> torch.Tensor:
    """Tokens that all have the share 1 of the loss."""
    return torch.ones(int(lengths_O.sum()))


def outputs_of(steps: int) -> Iterator[PackedOutputs]:
    """Micro-batches of one row and of four, `steps` of each: 8 outputs of other lengths to a prompt."""
    draw = np.random.default_rng(0)
    for number in range(2 * steps):
        outputs = []
        for group in range(16):
            prompt = draw.integers(0, 400, CONTEXT // 40).tolist()
            for length in draw.lognormal(np.log(CONTEXT / 16), 0.5, 8).astype(int).clip(2, CONTEXT // 4):
                tokens = draw.integers(0, 400, length).tolist()
                outputs.append(Output(group, prompt, tokens, [0.0] * length, [1.0] * length))
        rows = split_into_rows(outputs, CONTEXT)[: 4 if number % 2 else 1]
        yield from micro_batches(rows, len(rows), alike, CONTEXT, True)


def rl_rows() -> dict[str, float]:
    """A micro-batch of RL, forward and backward, with one row and with four: plain, then compiled, where rows
    of other outputs must compile nothing; and how often the host waits for the GPU in one.
    """
    found, speed, model = {}, peak(DEVICE, torch.bfloat16), shipped_model()
    flops = ModelFlops.of(model.model)
    batches = [packed.to(DEVICE) for packed in outputs_of(3)]

    def step(packed: PackedOutputs) -> None:
        output_logprobs(model, packed).mean().backward()
        model.zero_grad()

    for way in ("plain", "compiled") if GPU else ("plain",):
        for layer in model.model.base_model.layers if way == "compiled" else ():
            layer.compile()
        for rows in (1, 4):
            own = [packed for packed in batches if len(packed.tokens_BT) == rows]
            step(own[0])
            step(own[1])
            graphs = counters["stats"]["unique_graphs"]
            seconds = seconds_of(lambda own=own: step(own[2]))
            assert counters["stats"]["unique_graphs"] == graphs, "other outputs compile again"
            mfu = (flops.body + flops.head) * own[2].length / seconds / speed
            found |= {f"{way}, rows {rows}: ms": 1e3 * seconds, f"{way}, rows {rows}: MFU": mfu}
    if GPU:
        with warnings.catch_warnings(record=True) as waits:
            torch.cuda.set_sync_debug_mode("warn")
            step(batches[-1])
            torch.cuda.set_sync_debug_mode("default")
        found["host waits"] = float(len(waits))
    return found
