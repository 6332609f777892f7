"""The forecast's formulas. N: weights; L: layers; d: hidden; f: mlp; kv: width of keys; R: ranks.

FLOPs of training: 6 N per token, of a forward pass alone 2 N. Attention over the sequence is left out (7 %
for a 7B if one document fills 4K). MFU counts these model FLOPs, for compiled layers that keep activations;
recomputation adds 2 N of work per token, and layers that are not compiled take `EAGER` as long.

Memory of training, per GPU (DeepSpeed, AdamW), with b = 2 bytes in bf16 and 4 otherwise: weights b N (over R
at ZeRO stage 3); gradients, which are summed in fp32, 4 N (over R from stage 2); fp32 weights and two moments
in the optimiser, 12 N / R; a communication buffer of at most 5e8 elements (but stage 1 in bf16 communicates
at the step, when activations are gone), at stage 3 also up to 1e9 gathered weights. `offload` moves gradients
and optimiser to main memory. Activations per token and layer in bf16: 8 f + 20 d + 4 kv bytes, compiled
6 f + 12 d + 4 kv; in fp32 16 f + 32 d + 8 kv; with checkpointing b d, and one layer in full. Logits: a chunk
in fp32 and its gradient; the output layer's gradient is also summed in fp32.

Main memory: a machine holds a copy of what its ranks write of a checkpoint, 12 N / R each; the first, below
stage 3, b N of weights too.

Decoding: at most min(B W / (b N + B T k), F / (2 N)) tokens per second with B sequences at once of T tokens,
memory bandwidth W and F FLOP/s: each step reads all weights and the cache, k = 2 L kv b bytes per token.
"""

from dataclasses import dataclass

from pipeline.plan.shapes import Shape

CHUNK_ELEMENTS = 2**28  # logits held at once on a GPU (pipeline/common/linear_loss.py)
BUCKET = 500_000_000  # DeepSpeed's buckets, elements (pipeline/common/training.py)
LIVE = 1_000_000_000  # weights that ZeRO-3 keeps gathered, elements (DeepSpeed's default)
OVERHEAD = 2e9  # CUDA context, kernels and NCCL, bytes
VLLM_OVERHEAD = 1e9  # vLLM's own activations and graphs, which it keeps when asleep, bytes
OFFLOADED = 20  # bytes of main memory for each weight whose gradient and optimiser are there
EAGER = 1.2  # time of layers that are not compiled (assumed, not measured)
PROCESS = 5e9  # main memory of a rank's program and libraries, bytes (assumed, not measured)
MAX_SEQUENCES = 256  # sequences in a vLLM engine at once


@dataclass(frozen=True)
class Gpu:
    """`flops` dense bf16 FLOP/s, `memory` bytes, `bandwidth` bytes/s."""

    name: str
    flops: float
    memory: float
    bandwidth: float


def size_of(precision: str) -> int:
    """Bytes of a weight."""
    return 2 if precision == "bf16" else 4


def hours(flops: float, gpu: Gpu, mfu: float) -> float:
    """GPU-hours that training `flops` takes."""
    return flops / (gpu.flops * mfu * 3600)


def activations(
    shape: Shape, tokens: int, precision: str, checkpointing: bool, compiled: bool = False
) -> float:
    """Bytes kept for the backward pass over `tokens`."""
    size = size_of(precision)
    if compiled and precision == "bf16":
        layer = 6 * shape.mlp + 12 * shape.hidden + 4 * shape.kv_width
    else:
        wide = 4 * size * shape.mlp + 2 * size * shape.kv_width
        layer = wide + (20 if precision == "bf16" else 32) * shape.hidden
    if checkpointing:
        return tokens * (shape.layers * size * shape.hidden + layer)
    return tokens * shape.layers * layer


def logits(shape: Shape, tokens: int, precision: str) -> float:
    """Bytes of the largest chunk of logits and of the output layer's gradient."""
    rows = min(tokens, max(1, CHUNK_ELEMENTS // shape.vocabulary))
    return (rows + shape.hidden) * shape.vocabulary * (4 + size_of(precision))


def training_state(
    parameters: int, precision: str, zero_stage: int, ranks: int, offload: bool = False
) -> dict[str, float]:
    """Bytes of weights, gradients, optimiser and buffers on one GPU."""
    size = size_of(precision)
    gathered = min(parameters, LIVE) * size if ranks > 1 and zero_stage == 3 else 0
    at_the_step = zero_stage == 1 and precision == "bf16"
    each = 8 if zero_stage < 3 and precision != "bf16" else 4  # DeepSpeed keeps those of fp32 weights twice
    return {
        "weights": parameters * size / (ranks if zero_stage == 3 else 1),
        "gradients": 0 if offload else parameters * each / (ranks if zero_stage >= 2 else 1),
        "optimiser": 0 if offload else 12 * parameters / ranks,
        "buffers": gathered + (0 if at_the_step else min(parameters, BUCKET) * size),
    }


def cache_bytes(shape: Shape, precision: str) -> int:
    """Bytes of the keys and values of one token."""
    return 2 * shape.layers * shape.kv_width * size_of(precision)


def cache_tokens(shape: Shape, precision: str, gpu: Gpu, share: float) -> int:
    """Tokens whose keys and values fit beside the weights in vLLM's share of the memory."""
    left = gpu.memory * share - shape.parameters * size_of(precision) - VLLM_OVERHEAD
    return max(0, int(left // cache_bytes(shape, precision)))


def decode_rate(shape: Shape, precision: str, gpu: Gpu, share: float, context: int) -> float:
    """Upper bound of tokens per second and GPU when writing sequences of `context` tokens; 0 if none fits."""
    live = max(1, context // 2)
    batch = min(MAX_SEQUENCES, cache_tokens(shape, precision, gpu, share) // live)
    if batch == 0:
        return 0.0
    read = shape.parameters * size_of(precision) + batch * live * cache_bytes(shape, precision)
    return min(batch * gpu.bandwidth / read, gpu.flops / (2 * shape.parameters))


def checkpoint_copy(parameters: int, precision: str, zero_stage: int, ranks: int, here: int) -> float:
    """Bytes of main memory for the checkpoint that is being written, on the machine of rank 0 with `here` of
    all `ranks`.
    """
    weights = parameters * size_of(precision) if zero_stage < 3 else 0
    return weights + 12 * parameters * here / ranks


def checkpoint_disk(parameters: int, precision: str, kept: int = 2) -> float:
    """Bytes of the exported model and of the `kept` checkpoints beside it."""
    size = size_of(precision)
    return parameters * (size + kept * (size + 12))
