"""Environment variables that torch, DeepSpeed and vLLM read when imported; import this module before them."""

import os
import shutil
import warnings


def _has_gpu() -> bool:
    return shutil.which("nvidia-smi") is not None and os.environ.get("CUDA_VISIBLE_DEVICES") != ""


def _prepare() -> None:
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cores = len(os.sched_getaffinity(0))
    defaults = {
        # Processes that share cores cost five times the work: give each rank its own.
        "OMP_NUM_THREADS": str(max(1, cores // ranks_here)),
        # Waiting threads sleep instead of spinning, which costs far more where anything else runs.
        "OMP_WAIT_POLICY": "PASSIVE",
        "TOKENIZERS_PARALLELISM": "false",
        # The engine lives in the training process: weights go over in memory, and one kill ends everything.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "DS_LOG_LEVEL": "warning",
        # A slow engine start must not trip the process group's ten-minute default (minutes).
        "DEEPSPEED_TIMEOUT": "60",
    }
    if not _has_gpu():
        defaults |= {
            "DS_ACCELERATOR": "cpu",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


_prepare()
# vLLM's own use of deprecated names, at every start; nothing a reader of our logs can act on.
warnings.filterwarnings("ignore", category=FutureWarning, module="vllm")
