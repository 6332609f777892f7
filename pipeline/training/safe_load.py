"""Loading of DeepSpeed's checkpoints as data: a file in `work/` must not run code.

DeepSpeed calls `torch.load(weights_only=False)`, which runs whatever a pickle names. torch can be told to
overrule that; then only tensors, plain values and the classes listed here are built. As a program, this
module is DeepSpeed's conversion to the universal format, under the same rule.
"""

import os
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from pipeline.core.errors import InputError

OVERRULE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # torch reads it at each load
RANDOM_STATE = [np.ndarray, np.dtype, np.dtypes.UInt32DType, np.zeros(0).__reduce__()[0]]


@contextmanager
def only_data(what: object) -> Iterator[None]:
    """Let each `torch.load` in the block build data only; if a file wants more, InputError names `what`."""
    from deepspeed.runtime.fp16.loss_scaler import LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    before = os.environ.get(OVERRULE)
    os.environ[OVERRULE] = "1"
    try:
        with torch.serialization.safe_globals([*RANDOM_STATE, LossScaler, ZeroStageEnum, fragment_address]):
            yield
    except pickle.UnpicklingError as error:
        name = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"it would run {name[1]}" if name else "a file is damaged"
        raise InputError(f"{what}: not loaded, {reason}; delete it to start again") from error
    finally:
        os.environ.pop(OVERRULE)
        if before is not None:
            os.environ[OVERRULE] = before


if __name__ == "__main__":
    from deepspeed.checkpoint import ds_to_universal

    arguments = ds_to_universal.parse_arguments()
    try:
        with only_data(arguments.input_folder):
            ds_to_universal.main(arguments)
    except InputError as error:
        raise SystemExit(f"error: {error}") from error
