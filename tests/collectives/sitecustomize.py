"""Stands in for NCCL on a machine without GPUs: a collective on a tensor off the engine's device fails.

It also lets ZeRO 3 treat a small model as a large one: weights are whole only while a layer uses them. By
itself DeepSpeed keeps matrices below 100,000 weights, and whatever is used again within a billion weights.

A program with this folder on PYTHONPATH runs this file first.
DeepSpeed's engines then call their device `cpu:0`. What `pipeline` puts there is an `OnEngine` tensor, and so
is all that is computed from it; torch itself knows only one CPU, so results do not change.
"""

import functools
import importlib.abc
import importlib.machinery
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

PIPELINE = str(Path(__file__).resolve().parents[2] / "pipeline")

COLLECTIVES = ("all_reduce", "broadcast", "reduce", "all_gather_into_tensor", "reduce_scatter_tensor")
FACTORIES = ("tensor", "zeros")
LARGE = {
    "stage3_param_persistence_threshold": 0,
    "stage3_max_reuse_distance": 0,
    "stage3_max_live_parameters": 0,
    "stage3_prefetch_bucket_size": 0,
}


def called_by_pipeline() -> bool:
    return sys._getframe(2).f_code.co_filename.startswith(PIPELINE)


def install(torch: ModuleType, distributed: ModuleType) -> None:
    """Wrap the functions that make tensors, and the collectives; only calls from `pipeline` are checked."""
    from deepspeed.runtime.zero import partition_parameters
    from torch.utils._device import _device_constructors

    engine = torch.device("cpu", 0)
    # torch looks up once which functions `with torch.device("meta")` is for. It would find ours, which are
    # not those that are called in the end; transformers then leaves the rotary table without numbers.
    _device_constructors()

    class OnEngine(torch.Tensor):
        pass

    def making(make: Any, largest: int) -> Any:
        """`make`, whose tensors on the engine's device of at most `largest` dimensions are `OnEngine`."""

        def wrapped(*arguments: Any, **options: Any) -> Any:
            found = make(*arguments, **options)
            if not called_by_pipeline() or found.dim() > largest:
                return found
            devices = [value for value in (*arguments, *options.values()) if isinstance(value, torch.device)]
            return found.as_subclass(OnEngine) if engine in devices else found

        return wrapped

    def checked(name: str, collective: Any) -> Any:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            if not called_by_pipeline():
                return collective(*arguments, **options)
            tensor, *rest = arguments
            if not isinstance(tensor, OnEngine):
                raise RuntimeError(f"{name}: a tensor on {tensor.device}, not on the engine's device")
            return collective(tensor.as_subclass(torch.Tensor), *rest, **options)

        return wrapped

    for name in FACTORIES:
        setattr(torch, name, making(getattr(torch, name), 2))
        # ZeRO 3 puts back what it found here after it has built a model.
        setattr(partition_parameters, f"_orig_torch_{name}", getattr(torch, name))
    torch.Tensor.to = making(torch.Tensor.to, 1)  # not the rows that go through a model
    for name in COLLECTIVES:
        setattr(distributed, name, checked(name, getattr(distributed, name)))


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls back once DeepSpeed, and torch with it, has been imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "pipeline.training.engine":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            import deepspeed
            import torch
            import torch.distributed

            original = deepspeed.DeepSpeedEngine.__init__

            def init(self: Any, *arguments: Any, **options: Any) -> None:
                original(self, *arguments, **options)
                self.device = torch.device("cpu", 0)

            initialize = deepspeed.initialize

            @functools.wraps(initialize)
            def as_if_large(*arguments: Any, **options: Any) -> Any:
                if options["config"]["zero_optimization"]["stage"] == 3:
                    options["config"]["zero_optimization"] |= LARGE
                return initialize(*arguments, **options)

            deepspeed.DeepSpeedEngine.__init__ = init
            deepspeed.initialize = as_if_large
            install(torch, torch.distributed)
            execute(module)

        spec.loader.exec_module = exec_module
        return spec


if __name__ == "sitecustomize":
    sys.meta_path.insert(0, AfterImport())
