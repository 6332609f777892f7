"""What cpt, sft, reward and rl train with: DeepSpeed engine, schedules, one optimiser step.

Losses are normalised over the whole batch (all ranks and micro-batches), so the result does not depend on how
a batch is cut. Learning rates are pure functions of the step, so checkpoints need not hold them.
"""

import pipeline.training.environment  # noqa: F401 (sets variables that torch and DeepSpeed read when imported)

# isort: split
import atexit
import gc
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.constants import default_pg_timeout
from torch import Tensor, nn

from pipeline.core.stage import InputError, Stage
from pipeline.core.watchdog import enter
from pipeline.training.folder import context_length, model_config
from pipeline.training.isolation import PackedModel
from pipeline.training.lora import adapt
from pipeline.training.model import full_shape, load_shared_model, split_config
from pipeline.training.rendezvous import join_store
from pipeline.training.skips import Skips
from pipeline.training.tokenizer import vocabulary_size

T = TypeVar("T")
FROZEN = {"whole": None, "split": "device", "main_memory": "main_memory"}  # launch.frozen: where shares are
Schedule = Callable[[int], float]


@dataclass(frozen=True)
class EngineSettings:
    """How an engine optimises (AdamW) and spreads its state (ZeRO)."""

    learning_rate: float
    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    gradient_clipping: float = 1.0
    precision: str = "fp32"
    zero_stage: int = 1
    offload_optimizer: bool = False


def settings_from(section: Any, launch: dict[str, Any]) -> EngineSettings:
    """Take settings from a training stage's section and the launch's keys on ZeRO."""
    return EngineSettings(
        learning_rate=section.learning_rate,
        **section.optimizer.model_dump(),
        precision=section.precision,
        zero_stage=int(launch.get("zero_stage", 1)),
        offload_optimizer=bool(launch.get("offload_optimizer", False)),
    )


def start_from(source: str, tokenizer: Any, stage: Stage[Any]) -> nn.Module:
    """Load the model at `source`, to train on sequences of the section's `context` tokens of `tokenizer`.

    Raises InputError if the model supports only shorter sequences or fewer token ids.
    """
    section, longest = stage.config, context_length(source)
    known = model_config(source).get_text_config().vocab_size
    if section.context > longest:
        raise InputError(f"{stage.name}.context: {section.context} tokens; {source} was made for {longest}")
    if (entries := vocabulary_size(tokenizer)) > known:
        raise InputError(
            f"{source}: its tokenizer has {entries} entries, its weights are for {known}; "
            "give the model its own tokenizer"
        )
    start_process_group()
    model = load_shared_model(source, section.precision, split_weights(stage.launch))
    lora = getattr(section, "lora", None)
    return model if lora is None else adapt(model, lora, section.seed, stage.name)


def split_weights(launch: dict[str, Any]) -> str | None:
    """Say where the launch splits trained weights among the ranks; None if it does not."""
    return "device" if int(launch.get("zero_stage", 1)) == 3 else None


def prepare(model: nn.Module, launch: dict[str, Any]) -> None:
    """Set up activation checkpointing, and compile the layers, as the launch says."""
    model.train()  # transformers checkpoints activations only in this mode
    if launch.get("activation_checkpointing"):
        model.gradient_checkpointing_enable()
    compile_layers(model, launch)


def compile_layers(model: nn.Module, launch: dict[str, Any]) -> None:
    """Compile a model's layers on a GPU unless the launch says no or splits its weights: ZeRO-3 gathers them
    in hooks around each module, which a compiled layer skips.
    """
    if torch.cuda.is_available() and launch.get("compile", True) and int(launch.get("zero_stage", 1)) < 3:
        for layer in getattr(model.base_model, "layers", ()):
            layer.compile()


def use_threads(launch: dict[str, Any]) -> None:
    """Let torch use as many CPU threads as the launch gives this process."""
    if "threads" in launch:
        torch.set_num_threads(int(launch["threads"]))


def start_process_group() -> None:
    """Join the process group that the launcher or torchrun describes; a process started alone becomes a group
    of one.

    However many ranks and nodes there are, only the store differs. No device is bound: torch would then split
    every later group from the first one, where DeepSpeed's and vLLM's have hung (DeepSpeed issue 7266).
    """
    if dist.is_initialized():
        return
    # Groups that DeepSpeed and vLLM make have torch's default, ten minutes with NCCL: a hang would end there
    # before the watchdog tells where it is.
    c10d = dist.distributed_c10d
    c10d.default_pg_timeout = c10d.default_pg_nccl_timeout = default_pg_timeout
    accelerator = deepspeed.get_accelerator()
    store = join_store(default_pg_timeout)
    accelerator.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(
        accelerator.communication_backend_name(),
        store=store,
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=default_pg_timeout,
    )
    # DeepSpeed would compile a shared-memory all-reduce (g++, more than a minute) that only inference uses.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(verbose=False)
    gc.freeze()  # DeepSpeed looks for garbage again and again while it builds an engine: not in the libraries
    atexit.register(gc.unfreeze)  # else vLLM's bindings say that the libraries leak
    if not torch.cuda.is_available():  # a thread of gloo's that still ran at the end would abort the program
        # Of finalizers those that were made later run first: vLLM's, which leaves groups of its own.
        weakref.finalize(dist, lambda: dist.is_initialized() and dist.destroy_process_group())


def deepspeed_config(settings: EngineSettings, size: int) -> dict[str, Any]:
    """DeepSpeed's configuration for training `size` weights."""
    bucket = min(size + size % 2, 500_000_000)  # DeepSpeed wants an even number
    zero = {
        "stage": settings.zero_stage,
        "reduce_bucket_size": bucket,
        "allgather_bucket_size": bucket,
        # ZeRO 1 in bf16 reduces once a step, after the backward pass. At ZeRO 2 layers are compiled, and
        # there overlapping has corrupted gradients (DeepSpeed issues 5545 and 8061).
        "overlap_comm": settings.zero_stage == 3,
    }
    config = {
        "train_micro_batch_size_per_gpu": 1,  # unused: `update` says where a batch ends
        "gradient_accumulation_steps": 1,
        "gradient_clipping": settings.gradient_clipping,
        # Adding each gradient to the fp32 sum at once frees it; else ZeRO 1 holds all in bf16 too.
        "bf16": {"enabled": settings.precision == "bf16", "immediate_grad_update": True},
        "data_types": {"grad_accum_dtype": "fp32"},  # bf16 sums of many micro-batches lose small ones
        "communication_data_type": "fp32",  # and so do sums over ranks: off by 0.4 % at 8 of them
        "zero_optimization": zero,
        "steps_per_print": 10**9,
        "timers": {"throughput": {"enabled": False}},  # it waits for the GPU twice a micro-batch
    }
    if settings.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
        config["zero_force_ds_cpu_optimizer"] = False  # torch's AdamW is fused on the CPU too
    return config


def build_engine(module: nn.Module, settings: EngineSettings) -> Any:
    """Build a DeepSpeed engine over `module` with AdamW, whose weight decay spares norms and biases.

    Use ZeRO stages 1 to 3, which resume exactly.
    """
    start_process_group()
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if len(full_shape(p)) >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if len(full_shape(p)) < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=settings.epsilon,
        fused=True,
    )
    size = sum(full_shape(parameter).numel() for parameter in parameters)
    engine, *_ = deepspeed.initialize(
        model=module, optimizer=optimizer, config=deepspeed_config(settings, size)
    )
    engine.skips = Skips(engine)
    if isinstance(module, PackedModel):
        module.prove(engine.device)
    return engine


def build_frozen(module: nn.Module, precision: str, place: str, device: Any) -> nn.Module:
    """Prepare `module` for inference alone, its weights where `launch.frozen` says.

    Not `whole`: all ranks must call it equally often, because its weights are gathered layer by layer.
    """
    module.eval().requires_grad_(False)
    if place == "whole":
        return module.to(device)
    config = split_config(place) | {"bf16": {"enabled": precision == "bf16"}}
    engine, *_ = deepspeed.initialize(model=module, config=config)
    engine.eval()  # returns nothing
    if isinstance(module, PackedModel):
        module.prove(engine.device)
    return engine


def update(
    engine: Any, micro_batches: Sequence[T], loss_of: Callable[[T], Tensor], learning_rate: float
) -> tuple[float, float | None]:
    """Take one optimiser step over `micro_batches`; returns (loss, gradient norm before clipping).

    `loss_of(micro_batch)` runs the engine and returns this micro-batch's part of the loss, already divided by
    the size of the whole batch: the parts of all micro-batches and ranks add up to the loss. Where the norm
    is not finite it is None, and no weight changes; at the third time in a row raises InputError.
    """
    for group in engine.optimizer.param_groups:
        group["lr"] = learning_rate
    total = torch.zeros((), device=engine.device)
    with engine.skips.step():
        for index, micro_batch in enumerate(micro_batches):
            engine.set_gradient_accumulation_boundary(index == len(micro_batches) - 1)
            enter("forward")
            loss = loss_of(micro_batch)
            enter("backward")
            # DeepSpeed averages gradients over ranks, but the parts must be summed.
            engine.backward(loss * engine.world_size, scale_wrt_gas=False)
            total += loss.detach()
            engine.step()
    if engine.world_size > 1:
        dist.all_reduce(total)
    return total.item(), float(engine.get_global_grad_norm()) if engine.was_step_applied() else None


def constant(learning_rate: float, warmup_steps: int = 0) -> Schedule:
    """Rise to the peak in `warmup_steps` steps, then stay there (sft: paper section 3.2)."""
    return lambda step: learning_rate * min(1.0, (step + 1) / (warmup_steps + 1))


def multi_step(
    learning_rate: float, steps: int, warmup_steps: int, drops: Sequence[tuple[float, float]]
) -> Schedule:
    """Warm-up as in `constant`, then `factor` times the peak once `share` of all steps is done (paper 2.2).

    `drops` are (share, factor) pairs in rising order of share; the paper's are (0.8, 0.316) and (0.9, 0.1).
    """

    def at(step: int) -> float:
        if step < warmup_steps:
            return learning_rate * (step + 1) / (warmup_steps + 1)
        factor = 1.0
        for share, value in drops:
            if step >= share * steps:
                factor = value
        return learning_rate * factor

    return at
