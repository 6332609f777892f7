"""How the workflow runs: never part of a fingerprint, so a change reruns nothing."""

from typing import Literal

from pipeline.core.section import Section, key

MAX_SEQUENCES = 512  # written by a sampler at once


class LaunchSection(Section):
    """Machine facts of all stages. Cluster resources (GPUs, memory, time) are set in `profiles`."""

    threads: int = key(1, "CPU threads of one training, sampling or evaluation process", ge=1)
    join_memory: float = key(
        1.0,
        "crawl, corpus, decontaminate: main memory of a join of tables; what does not fit waits on disk; GB",
        gt=0,
    )
    ranks: int = key(
        1, "processes of a model's training or evaluation on one machine: one per GPU, 1 on a laptop", ge=1
    )
    micro_batch: int = key(
        8, "packed sequences that one rank holds in memory at once; the global batch does not change", ge=1
    )
    zero_stage: int = key(
        1, "DeepSpeed ZeRO stage: 1 shards the optimiser, 2 the gradients too, 3 the weights too", ge=1, le=3
    )
    offload_optimizer: bool = key(
        False, "ZeRO 3: keep gradients and the optimiser's state in main memory and step on the CPU"
    )
    frozen: Literal["whole", "split", "main_memory"] = key(
        "whole",
        "rl: where reference and reward model are: whole on each GPU, split among the ranks, or split among"
        " their shares of main memory",
    )
    activation_checkpointing: bool = key(False, "recompute activations in the backward pass to save memory")
    compile: bool = key(True, "compile the layers on a GPU (ZeRO 1 and 2); no effect on a CPU")
    save_minutes: float = key(
        10.0,
        "cpt, sft, reward: minutes between two checkpoints; a killed run repeats the work since the last",
        ge=0,
    )
    hang_minutes: float = key(
        30.0,
        "programs with ranks: minutes without progress after which a rank prints where it hangs and ends with"
        " code 85; what trains is run again from its last checkpoint",
        gt=0,
        lt=60,
    )
    gpu_memory: float = key(
        0.4,
        "rl: share of a GPU's memory that vLLM may take beside a training rank",
        gt=0,
        lt=1,
    )
    tensor_parallel: int = key(
        1, "ranks that share one sampler, its weights split among them; a divisor of `ranks`", ge=1
    )
    sleep: bool = key(
        False, "rl on GPUs: the sampler frees its memory while the policy trains, and gets its weights anew"
    )
