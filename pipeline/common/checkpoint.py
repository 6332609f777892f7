"""Checkpoints of a DeepSpeed engine: complete or absent, exact to the bit, newest one found by name.

A checkpoint is a folder `step-NNNNNNN` with DeepSpeed's files (weights, optimiser, caller's state) and the
random state of each rank. It is written beside its place, flushed to disk and renamed, so a kill leaves no
half of one.
"""

import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from pipeline.common.stage import InputError

TAG = "state"


def newest(folder: Path) -> Path | None:
    """The complete checkpoint with the highest step, if any."""
    return max(folder.glob("step-*"), default=None)


def step_of(path: Path) -> int:
    """Steps done when the checkpoint was written."""
    return int(path.name.removeprefix("step-"))


def save(engine: Any, folder: Path, step: int, client_state: dict[str, Any], keep: int = 2) -> Path:
    """Write `step-<step>` under `folder` and prune all but the `keep` newest; every rank calls it.

    `client_state` is the caller's (data position, counts, ...): rank 0's is kept.
    """
    partial, final = folder / "partial", folder / f"step-{step:07d}"
    if engine.global_rank == 0:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    dist.barrier()
    engine.save_checkpoint(str(partial), tag=TAG, client_state={"caller": client_state}, save_latest=False)
    torch.save(_random_state(), partial / f"random-{engine.global_rank:05d}.pt")
    dist.barrier()
    if engine.global_rank == 0:
        _flush(partial)
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        for old in sorted(folder.glob("step-*"))[:-keep]:
            shutil.rmtree(old)
    dist.barrier()
    return final


def load(engine: Any, path: Path) -> dict[str, Any]:
    """Restore weights, optimiser and random state from `path`; returns the saved `client_state`."""
    found, state = engine.load_checkpoint(str(path), tag=TAG, load_lr_scheduler_states=False)
    if found is None:
        raise InputError(f"{path}: not a checkpoint of this engine; delete it to start again")
    random_file = path / f"random-{engine.global_rank:05d}.pt"
    if random_file.exists():  # absent when the number of ranks has grown
        _restore_random_state(torch.load(random_file, weights_only=False))
    return state["caller"]


def _random_state() -> dict[str, Any]:
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def _restore_random_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def _flush(folder: Path) -> None:
    """Ask the system to write every file under `folder` and the folder itself to disk."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
