"""The forecast's formulas. N: weights; L: layers; d: hidden; f: mlp; a: width of queries and keys; R: ranks.

FLOPs of training: 6 N per token, of a forward pass alone 2 N. Attention over the sequence is left out (7 %
for a 7B if one document fills 4K). MFU counts these model FLOPs, for compiled layers that keep activations;
recomputation adds 2 N of work per token, and layers that are not compiled take `EAGER` as long. A
micro-batch takes at least as long as the host needs to launch its kernels.

Memory of training, per GPU (DeepSpeed, AdamW), with b = 2 bytes in bf16 and 4 otherwise: weights b N (over R
at ZeRO stage 3); gradients, which are summed in fp32, 4 N (over R from stage 2); fp32 weights and two
moments in the optimiser, 12 N / R; a bucket of at most 5e8 gradients with its copies while it is summed over
ranks in fp32 (but stage 1 sums at the step, when activations are gone), at stage 3 also up to 1e9 gathered
weights. `offload` moves gradients and optimiser to main memory. Activations per token and layer in bf16: 8 f
+ 16 d + 4 a bytes, compiled 6 f + 8 d + 4 a; in fp32 16 f + 24 d + 8 a; where queries and keys are normed
6 a, 2 a or 8 a more; with checkpointing b d, and one layer in full. Logits: a chunk in fp32 and its gradient;
the output layer's gradient is also summed in fp32. With adapters N is theirs, but for the weights; they
have no gradients and no optimiser, and take 4 of the 6 FLOPs.

Main memory: a machine holds a copy of what its ranks write of a checkpoint, 12 N / R each; the first, below
stage 3, b N of weights too.

Network, per GPU: all-gather and reduce-scatter of S bytes receive S (R - 1) / R, all-reduce twice that. A
step gathers b N of new weights and all-reduces 4 N of gradients, at stage 2 after each micro-batch; stage 3
gathers b N twice in each micro-batch, with recomputation three times, and reduce-scatters 4 N. Only stage 3
computes meanwhile. Rings over all GPUs enter a machine once for each of its ports, so that all it receives
bounds what each of its GPUs receives. Tests compare the bytes with what DeepSpeed hands to the collectives.

Disk: three checkpoints of (b + 12) N, two that are kept and one that is written, then the model, b N.

Decoding: at most min(B W / (b N + B T k), F / (2 N)) tokens per second with B sequences at once of T tokens,
memory bandwidth W and F FLOP/s, all of the GPUs that share a sampler: each step reads all weights and the
cache, k bytes of keys and values per token. B is also bounded by the outputs that a sampler is given.
"""

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from pipeline.core.launch.section import MAX_SEQUENCES
from workflow.forecast.shapes import Shape, known

CHUNK_ELEMENTS = 2**28  # logits held at once on a GPU (pipeline/training/linear_loss.py)
BUCKET = 500_000_000  # DeepSpeed's buckets, elements (pipeline/training/engine.py)
# Bytes for each element of a bucket, as DeepSpeed 0.19.8 takes them, by bytes of a weight and ZeRO stage.
REDUCTION = {2: {1: 0, 2: 10, 3: 8}, 4: {1: 4, 2: 8, 3: 8}}
LIVE = 1_000_000_000  # weights that ZeRO-3 keeps gathered, elements (DeepSpeed's default)
OVERHEAD = 2e9  # CUDA context, kernels and NCCL, bytes
VLLM_OVERHEAD = 1e9  # vLLM's own activations and graphs, which it keeps when asleep, bytes
OFFLOADED = 20  # bytes of main memory for each weight whose gradient and optimiser are there
EAGER = 1.2  # time of layers that are not compiled (assumed, not measured)
# (weights, MFU) of training on one H200, compiled, without recomputation (docs/cluster.md).
MEASURED_MFU = ((0.5e9, 0.35), (1.3e9, 0.45), (7e9, 0.53))
LAUNCH = 25e-6  # seconds in which a host launches a kernel: 4,474 took 110 ms beside an H200
# Kernels of a layer that is not compiled, counted on Llama: of a forward and of a backward pass.
FORWARD_KERNELS, BACKWARD_KERNELS = 43, 99
COMPILED_KERNELS = 1 / 3  # share that is left of them where layers are compiled (assumed, not measured)
PROCESS = 5e9  # main memory of a rank's program and libraries, bytes (assumed, not measured)
SPLIT = 1.15  # time of sampling by GPUs that share a sampler, which wait for each other (assumed)
MAIN = 100e9  # bytes/s of main memory that an optimiser step on the CPU reaches (assumed, not measured)
COPY = 10e9  # bytes/s from a GPU to main memory that is not pinned (assumed, not measured)
CHECKPOINTS = 3  # on disk at once (pipeline/training/saver.py)


@dataclass(frozen=True)
class Gpu:
    """`flops` dense bf16 FLOP/s, `memory` bytes, its `bandwidth` and that of the `link` to the other GPUs of
    its machine in bytes/s.
    """

    name: str
    flops: float
    memory: float
    bandwidth: float
    link: float = 450e9


def gpu_named(name: str) -> Gpu:
    """Return a GPU of `known.yaml`."""
    flops, memory, bandwidth = known()["gpus"][name]
    return Gpu(name, flops * 1e12, memory * 1e9, bandwidth * 1e12, known()["links"][name] * 1e9)


def size_of(precision: str) -> int:
    """Bytes of a weight."""
    return 2 if precision == "bf16" else 4


def mfu_of(parameters: int, measured: Sequence[tuple[float, float]] = MEASURED_MFU) -> float:
    """Interpolate the measured MFU by the logarithm of the weights; constant outside of what was measured."""
    sizes = [size for size, _ in measured]
    at = bisect(sizes, parameters)
    if at in (0, len(sizes)):
        return measured[min(at, len(sizes) - 1)][1]
    (small, low), (large, high) = measured[at - 1 : at + 1]
    return low + (high - low) * log(parameters / small) / log(large / small)


def launch_hours(layers: int, forward: int, backward: int, compiled: bool) -> float:
    """Hours in which a host launches the kernels of so many passes through all layers."""
    kernels = layers * (forward * FORWARD_KERNELS + backward * BACKWARD_KERNELS)
    return kernels * (COMPILED_KERNELS if compiled else 1) * LAUNCH / 3600


def hours(flops: float, gpu: Gpu, mfu: float) -> float:
    """GPU-hours that training `flops` takes."""
    return flops / (gpu.flops * mfu * 3600)


def activations(
    shape: Shape, tokens: int, precision: str, checkpointing: bool, compiled: bool = False
) -> float:
    """Bytes kept for the backward pass over `tokens`."""
    size, bf16 = size_of(precision), precision == "bf16"
    kept = (6, 8, 4, 2) if bf16 and compiled else (8, 16, 4, 6) if bf16 else (16, 24, 8, 8)
    widths = shape.mlp, shape.hidden, shape.attention_width, shape.attention_width * shape.qk_norm
    layer = sum(each * width for each, width in zip(kept, widths, strict=True))
    if checkpointing:
        return tokens * (shape.layers * size * shape.hidden + layer)
    return tokens * shape.layers * layer


def logits(shape: Shape, tokens: int, precision: str, frozen: bool = False) -> float:
    """Bytes of the largest chunk of logits and of the output layer's gradient, if it is not `frozen`."""
    rows = min(tokens, max(1, CHUNK_ELEMENTS // shape.vocabulary))
    return (rows + shape.hidden * (not frozen)) * shape.vocabulary * (4 + size_of(precision))


def training_state(
    parameters: int, precision: str, zero_stage: int, ranks: int, offload: bool = False, frozen: int = 0
) -> dict[str, float]:
    """Bytes of weights, gradients, optimiser and buffers on one GPU; `frozen`: weights under adapters."""
    size = size_of(precision)
    gathered = min(parameters + frozen, LIVE) * size if ranks > 1 and zero_stage == 3 else 0
    each = 8 if zero_stage < 3 and precision != "bf16" else 4  # DeepSpeed keeps those of fp32 weights twice
    return {
        "weights": (parameters + frozen) * size / (ranks if zero_stage == 3 else 1),
        "gradients": 0 if offload else parameters * each / (ranks if zero_stage >= 2 else 1),
        "optimiser": 0 if offload else 12 * parameters / ranks,
        "buffers": gathered + min(parameters, BUCKET) * REDUCTION[size][zero_stage],
    }


def cache_bytes(shape: Shape, precision: str) -> int:
    """Bytes of the keys and values of one token."""
    return 2 * shape.layers * shape.kv_width * size_of(precision)


def cache_tokens(shape: Shape, precision: str, gpu: Gpu, share: float, split: int = 1) -> int:
    """Tokens whose keys and values fit beside the weights in vLLM's share of the memory of `split` GPUs."""
    weights = shape.parameters * size_of(precision)
    left = split * (gpu.memory * share - VLLM_OVERHEAD) - weights
    return max(0, int(left // cache_bytes(shape, precision)))


def decode_rate(
    shape: Shape,
    precision: str,
    gpu: Gpu,
    share: float,
    context: int,
    split: int = 1,
    given: float = MAX_SEQUENCES,
) -> float:
    """Upper bound of tokens per second and GPU when a sampler writes `given` sequences of `context` tokens at
    a time; 0 if none fits.
    """
    live = max(1, context // 2)
    batch = min(MAX_SEQUENCES, given, cache_tokens(shape, precision, gpu, share, split) // live)
    if batch == 0:
        return 0.0
    read = shape.parameters * size_of(precision) + batch * live * cache_bytes(shape, precision)
    alone = min(batch * gpu.bandwidth / read, gpu.flops / (2 * shape.parameters))
    return alone / (SPLIT if split > 1 else 1)


def moved(
    parameters: int,
    precision: str,
    zero_stage: int,
    ranks: int,
    micro_batches: float,
    again: bool,
    frozen: int = 0,
) -> float:
    """Bytes that a GPU receives in an optimiser step of so many micro-batches; `again`: it recomputes."""
    weights, gradients = parameters * size_of(precision), 4 * parameters
    if zero_stage == 3:
        gathered = (parameters + frozen) * size_of(precision)
        total = micro_batches * ((3 if again else 2) * gathered + gradients)
    else:
        total = weights + 2 * gradients * (micro_batches if zero_stage == 2 else 1)
    return total * (ranks - 1) / ranks


def checkpoint_copy(parameters: int, precision: str, zero_stage: int, ranks: int, here: int) -> float:
    """Bytes of main memory for the checkpoint that is being written, on the machine of rank 0 with `here` of
    all `ranks`.
    """
    weights = parameters * size_of(precision) if zero_stage < 3 else 0
    return weights + 12 * parameters * here / ranks


def checkpoint_disk(parameters: int, precision: str) -> int:
    """Bytes of the checkpoints that are on disk at once; the model itself is written after the last."""
    return CHECKPOINTS * parameters * (size_of(precision) + 12)
