"""Writes checkpoints while training goes on.

Each rank copies its part to main memory, for which training stops, and a thread writes the copy, flushes it
to disk and reads it back for its digests. The checkpoint counts when all ranks have done so: then it gets its
name. Until then, and after a kill, the one before it is the newest.

DeepSpeed's own engines were weighed: the fast one writes while training waits; the decoupled one copies
nothing, so it waits at the next optimiser step, does not flush, and ignores that its process has died; the
third needs another package.
"""

import pipeline.training.environment  # noqa: F401  # isort: skip  # before torch and deepspeed

import copy
import os
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from deepspeed.runtime.checkpoint_engine import TorchCheckpointEngine
from torch import Tensor

from pipeline.core.manifest import fingerprint, write_json
from pipeline.core.store import put_in_place
from pipeline.core.watchdog import Growth, enter
from pipeline.training.checkpoint import (
    LOOK_SECONDS,
    NOTE,
    PARTIAL,
    TAG,
    digests,
    gathered,
    identity,
    random_state,
)

KEPT = 2


class Copies(TorchCheckpointEngine):
    """Stands in for DeepSpeed's writer: keeps copies of what it is told to save, until `write`.

    The memory of the last copies is used again, because the system takes longest to hand it out.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.files: list[tuple[Path, Any]] = []
        self.memory: list[Tensor] = []
        self.used = 0

    def forget(self) -> None:
        """Begin a new checkpoint; the old copies are lost."""
        self.files, self.used = [], 0

    def save(self, state_dict: Any, path: str | Path) -> None:
        self.files.append((Path(path), self._copied(state_dict, {})))

    def write(self) -> list[Path]:
        """Write all copies; returns the files."""
        for path, state in self.files:
            super().save(state, str(path))
        return [path for path, _ in self.files]

    def _copied(self, item: Any, seen: dict[Any, Tensor]) -> Any:
        """Copy `item` as it is now, its tensors to main memory; what stands in it twice is copied once."""
        if isinstance(item, Tensor):
            key = (item.data_ptr(), item.dtype, item.shape, item.stride())
            if key not in seen:
                seen[key] = self._room(item).copy_(item.detach())
            return seen[key]
        if isinstance(item, dict):
            return type(item)((name, self._copied(value, seen)) for name, value in item.items())
        if type(item) in (list, tuple):
            return type(item)(self._copied(value, seen) for value in item)
        return copy.deepcopy(item)

    def _room(self, tensor: Tensor) -> Tensor:
        """Return main memory for a tensor like `tensor`."""
        if self.used == len(self.memory):
            self.memory.append(torch.empty(0))
        room = self.memory[self.used]
        if (room.dtype, room.shape, room.stride()) != (tensor.dtype, tensor.shape, tensor.stride()):
            room = self.memory[self.used] = torch.empty_like(tensor, device="cpu", requires_grad=False)
        self.used += 1
        return room


class Saver:
    """Saves `engines`, each in its folder, as one checkpoint after each other; `owner`: the fingerprint of
    the model that is trained. The last `KEPT` checkpoints stay.

    A folder's checkpoints get their names in the order of `engines`: those of the last count, because the
    others are there then.
    """

    def __init__(self, engines: Mapping[Path, Any], owner: str) -> None:
        self.engines, self.owner = engines, owner
        self.step = 0
        self.written: Future[dict[Path, dict[str, str]]] | None = None
        self.thread = ThreadPoolExecutor(1, "saver")
        for engine in engines.values():
            engine.checkpoint_engine = Copies(engine._config)

    def save(self, step: int, client_state: dict[str, Any]) -> None:
        """Begin the checkpoint after `step` steps, when the last one is finished; all ranks must call it.

        `client_state` is the caller's own (data position, counts, ...); rank 0's is saved.
        """
        self.finish()
        enter("save")
        for folder, engine in self.engines.items():
            partial, copies = _partial(folder, step), engine.checkpoint_engine
            copies.forget()
            if engine.global_rank == 0:
                for old in folder.glob(f"{PARTIAL}*"):
                    shutil.rmtree(old)
                partial.mkdir(parents=True)
            dist.barrier()
            engine.save_checkpoint(
                str(partial),
                tag=TAG,
                client_state={"caller": client_state},
                save_latest=False,
                exclude_frozen_parameters=True,  # adapters alone: the model is where training started
            )
            copies.save(random_state(), partial / f"random-{engine.global_rank:05d}.pt")
        self.step = step
        self.written = self.thread.submit(self._write)

    def writes(self) -> bool:
        """Say whether this rank still writes its part. Raises what kept it from writing."""
        if self.written is None or not self.written.done():
            return self.written is not None
        self.written.result()
        return False

    def commit(self) -> None:
        """Name the checkpoint that all ranks have written, if there is one; all ranks must call it."""
        if self.written is None:
            return
        files, self.written = self.written.result(), None
        for folder, engine in self.engines.items():
            found = gathered(engine, files[folder])
            if engine.global_rank == 0:
                self._name(folder, identity(engine, self.owner) | {"files": found})

    def finish(self) -> None:
        """Wait until the checkpoint that was begun last has its name; all ranks must call it."""
        if self.written is None:
            return
        enter("save")
        growth = Growth(*(_partial(folder, self.step) for folder in self.engines))
        while not wait([self.written], LOOK_SECONDS).done:
            growth.look()
        self.commit()
        dist.barrier()

    def _write(self) -> dict[Path, dict[str, str]]:
        """Write this rank's files to disk; their digests by folder and name. Runs in the thread.

        Each rank reads what it wrote: others may see it later, and cannot flush it.
        """
        found = {}
        for folder, engine in self.engines.items():
            partial = _partial(folder, self.step)
            files = engine.checkpoint_engine.write()
            if engine.global_rank == 0:
                files += partial.glob("*.py")  # with which DeepSpeed converts it
            flush(files)
            found[folder] = digests(partial, [str(file.relative_to(partial)) for file in files])
        return found

    def _name(self, folder: Path, note: dict[str, Any]) -> None:
        partial = _partial(folder, self.step)
        write_json(partial / NOTE, note | {"digest": fingerprint(note)})
        flush([*(path for path in partial.rglob("*") if path.is_dir()), partial])
        put_in_place(partial, folder / f"step-{self.step:07d}")
        flush([folder])
        for old in sorted(folder.glob("step-*"))[:-KEPT]:
            shutil.rmtree(old)


def _partial(folder: Path, step: int) -> Path:
    """Name a checkpoint that is being written. No name comes twice: on NFS another node would for a minute
    still write into the folder that had it before, which is a checkpoint by now.
    """
    return folder / f"{PARTIAL}-{step:07d}"


def flush(paths: Iterable[Path]) -> None:
    """Flush files and folders to disk."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
