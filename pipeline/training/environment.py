"""Set the environment variables that torch, DeepSpeed and vLLM read at import: import this module first."""

import gc
import logging
import os
import sys
import warnings

from pipeline.core.device import wants_gpu


def _prepare() -> None:
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cores = len(os.sched_getaffinity(0))
    defaults = {
        # OpenMP threads that compete for cores take five times as long: give each rank its own cores.
        "OMP_NUM_THREADS": str(max(1, cores // ranks_here)),
        # Waiting threads sleep: spinning would slow down everything else on the machine.
        "OMP_WAIT_POLICY": "PASSIVE",
        "TOKENIZERS_PARALLELISM": "false",
        # vLLM runs inside the training process: weights are passed in memory, and one kill ends both.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "DS_LOG_LEVEL": "warning",
        # Without CUDA's compiler its kernel cannot be built, and the first sample fails (vLLM issue 49497).
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        # Sequences of all lengths leave gaps in fixed segments. vLLM turns it off for what it puts to sleep.
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        # The last collectives of each group, which the watchdog writes down when a rank hangs.
        "TORCH_FR_BUFFER_SIZE": "2000",
        # Minutes. vLLM may start more slowly than the process group's default timeout of ten minutes.
        "DEEPSPEED_TIMEOUT": "60",
        # vLLM and transformers would fill a log with bars.
        "TQDM_DISABLE": "" if sys.stderr.isatty() else "1",
    }
    if not wants_gpu():
        defaults |= {
            "DS_ACCELERATOR": "cpu",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            # DeepSpeed and vLLM would load the compiler, in two seconds, for what is as fast without.
            "TORCH_COMPILE_DISABLE": "1",
        }
    os.environ |= defaults | os.environ


_prepare()
# To search the millions of objects that torch and vLLM are for garbage takes a quarter of a start.
gc.set_threshold(50_000, 20, 20)
# It logs at import, before it reads its own variable.
logging.getLogger("vllm").setLevel(os.environ["VLLM_LOGGING_LEVEL"])
# vLLM uses deprecated names at every start; readers of our logs cannot act on that.
warnings.filterwarnings("ignore", category=FutureWarning, module="vllm")
# It tells which GPU a barrier takes: the one that the rank has set.
warnings.filterwarnings("ignore", message=r"barrier\(\): using the device")
