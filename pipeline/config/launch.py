"""How the workflow runs: never part of a fingerprint, so a change reruns nothing."""

from typing import Literal

from pipeline.config.section import Section, key


class LaunchSection(Section):
    """Machine facts of all stages. Cluster resources (GPUs, memory, time) are set in `profiles`."""

    threads: int = key(1, "CPU threads of one training, sampling or evaluation process", ge=1)
    join_memory: float = key(
        1.0, "main memory of a join of tables; what does not fit waits on disk; GB", gt=0
    )
    ranks: int = key(1, "processes of a program that uses GPUs, on one machine: one per GPU", ge=1)
    micro_batch: int = key(8, "packed sequences in a rank's memory at once; changes no result", ge=1)
    zero_stage: int = key(
        1, "DeepSpeed ZeRO: 1 shards the optimiser, 2 the gradients too, 3 the weights too", ge=1, le=3
    )
    offload_optimizer: bool = key(False, "ZeRO 3: gradients and optimiser in main memory, steps on the CPU")
    frozen: Literal["whole", "split", "main_memory"] = key(
        "whole",
        "rl: reference and reward model: whole on each GPU, or split among ranks or their main memory",
    )
    activation_checkpointing: bool = key(False, "recompute activations in the backward pass to save memory")
    compile: bool = key(True, "compile the layers on a GPU (ZeRO 1 and 2); no effect on a CPU")
    save_minutes: float = key(
        10.0, "minutes between two checkpoints; a killed run repeats the work since", ge=0
    )
    hang_minutes: float = key(
        30.0, "minutes without progress, after which a rank says where it hangs and is run again", gt=0
    )
    gpu_memory: float = key(0.4, "share of a GPU's memory for vLLM beside a training rank", gt=0, lt=1)
    tensor_parallel: int = key(1, "ranks that share one sampler's weights; a divisor of `ranks`", ge=1)
    sleep: bool = key(False, "rl on GPUs: the sampler frees its memory while the policy trains")
