"""Whether this process computes on GPUs or on the CPU, that all libraries agree, and what a CPU can do.

`CUDA_VISIBLE_DEVICES` decides where it is set, else whether the machine has GPUs.
"""

import os
import platform
import re
import sys
from pathlib import Path

from pipeline.core.errors import InputError

NONE = ("", "-1", "NoDevFiles")  # values of CUDA_VISIBLE_DEVICES; the last one is Slurm's
INSTRUCTIONS = ("amx_bf16", "avx512f", "avx2")  # from the widest on


def kind_of_cpu() -> str:
    """Name what decides a CPU's rounding: its widest matrix or vector instructions."""
    flags = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []
    return next((kind for kind in INSTRUCTIONS if kind in flags), platform.machine())


def wants_gpu() -> bool:
    """Whether GPUs are given to this process, so that computing on the CPU would be a mistake."""
    if "DS_ACCELERATOR" in os.environ:
        return os.environ["DS_ACCELERATOR"] != "cpu"
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return any(Path("/dev").glob("nvidia[0-9]*")) if given is None else given not in NONE


def check_device() -> None:
    """Compute something on the GPU that this process is given, if any; call before weights are loaded.

    Raises InputError if torch cannot, or if DeepSpeed, where the program uses it, would take another device.
    """
    import torch  # a second, and not every caller of `wants_gpu` needs it

    build = f"torch {torch.__version__} (built for CUDA {torch.version.cuda or 'none'})"
    if wants_gpu():
        try:
            torch.cuda.init()
            device = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
            torch.ones(1, device=f"cuda:{device}").add_(1).item()
        except (RuntimeError, AssertionError) as error:
            raise InputError(
                f"{_given()}, but {build} cannot use them with {driver()}: {f'{error}.'.splitlines()[0]} "
                "See docs/cluster.md on drivers; to compute on the CPU set CUDA_VISIBLE_DEVICES="
            ) from error
    ours = "cuda" if torch.cuda.is_available() else "cpu"
    if "deepspeed" in sys.modules:
        from deepspeed.accelerator import get_accelerator

        theirs = get_accelerator().device_name()
        if theirs.partition(":")[0] != ours:
            raise InputError(
                f"{build} computes on {ours}, DeepSpeed on {theirs}, with {driver()}: leave DS_ACCELERATOR "
                "unset, and set CUDA_VISIBLE_DEVICES to this program's GPUs, or to nothing for the CPU"
            )


def _given() -> str:
    numbers = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "this machine has GPUs" if numbers is None else f"CUDA_VISIBLE_DEVICES gives GPUs {numbers}"


def driver() -> str:
    """Return the NVIDIA driver of this machine, in words."""
    try:
        found = re.search(r"\d+\.\d+(\.\d+)?", Path("/proc/driver/nvidia/version").read_text())
    except OSError:
        found = None
    return f"driver {found[0]}" if found else "no NVIDIA driver"
