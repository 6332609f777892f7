"""Checkpoints of a DeepSpeed engine: complete or absent, and exact to the bit.

A checkpoint is a folder `step-NNNNNNN` with DeepSpeed's files (weights, optimiser, caller's state), the
random state of each rank, and `checkpoint.json`, which identifies the run and lists the digest of every file.
It gets its name when it is whole (see `saver`), so a kill leaves no partial one. One that the disk has
damaged since is noticed before it is loaded, and the one before it taken. Another number of ranks loads it
through DeepSpeed's universal format, exact but for the order of summation.
"""

import hashlib
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from pipeline.core.folders import wait_for
from pipeline.core.launch.queue import first_on_rank_0
from pipeline.core.manifest import fingerprint
from pipeline.core.stage import InputError
from pipeline.core.watchdog import Growth, beat, enter
from pipeline.training.safe_load import only_data

TAG, UNIVERSAL, NOTE = "state", "universal", "checkpoint.json"
PARTIAL = "partial"  # the folder of a checkpoint that is being written
BLOCK = 1 << 24
LOOK_SECONDS = 1.0


def newest(engine: Any, folder: Path, *others: Path) -> Path | None:
    """Return the checkpoint under `folder` with the highest step that is undamaged there and, under the same
    name, in `others`, if any.

    Later ones that are damaged are named, one line each, and deleted. Raises InputError if all are damaged,
    or if a rank does not see the files that rank 0 sees. All ranks must call it; rank 0 chooses, so they get
    the same answer on file systems that show a node's files to others late.
    """
    enter("load")
    found = _said_by_rank_0(engine, sorted((path.name for path in folder.glob("step-*")), reverse=True))
    damaged: list[tuple[str, list[Path]]] = []
    for name in found:
        places = [place / name for place in (folder, *others)]
        damage = next(filter(None, (_damage(engine, place) for place in places)), None)
        if damage is None:
            break
        damaged.append((damage, places))
    else:
        if damaged:
            raise InputError(f"{damaged[0][0]}; no checkpoint is whole: delete {folder} to start again")
        return None
    if damaged and engine.world_size > 1:
        dist.barrier()  # nothing is deleted before all ranks have looked
    for damage, old in damaged if engine.global_rank == 0 else []:
        print(f"{damage}: this checkpoint is deleted, {name} taken", file=sys.stderr, flush=True)
        for place in old:
            shutil.rmtree(place, ignore_errors=True)
    return folder / name


def _said_by_rank_0(engine: Any, value: Any) -> Any:
    """Rank 0's `value`, on all ranks."""
    values = [value]
    if engine.world_size > 1:
        dist.broadcast_object_list(values, 0)
    return values[0]


def _damage(engine: Any, path: Path) -> str | None:
    """Say what is wrong with a checkpoint, the same on all ranks; None for a whole one. Raises InputError if
    this rank does not see a file that rank 0 sees.
    """
    wrong, files = _said_by_rank_0(engine, _noted(path) if engine.global_rank == 0 else None)
    if wrong:
        return wrong
    for name in (NOTE, *files):
        wait_for(path / name)
    found = gathered(engine, digests(path, sorted(files)[engine.global_rank :: engine.world_size], beat))
    bad = next((name for name in sorted(files) if found.get(name) != files[name]), None)
    return bad and f"{path / bad} is {'damaged' if bad in found else 'missing or cannot be read'}"


def _noted(path: Path) -> tuple[str | None, dict[str, str]]:
    """Return what is wrong with a checkpoint's note or which file is missing, and the files' digests."""
    try:
        note = json.loads((path / NOTE).read_text())
        files, digest = note["files"], note.pop("digest")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{path / NOTE} is damaged or missing", {}
    if fingerprint(note) != digest:
        return f"{path / NOTE} is damaged", {}
    missing = next((name for name in sorted(files) if not (path / name).exists()), None)
    return missing and f"{path / missing} is missing or cannot be read", files


def digests(folder: Path, names: Iterable[str], after: Callable[[], object] = lambda: None) -> dict[str, str]:
    """SHA-256 of those of the files `names` in `folder` that can be read; calls `after` after each block."""
    found: dict[str, str] = {}
    for name in names:
        digest = hashlib.sha256()
        try:
            with (folder / name).open("rb") as file:
                while block := file.read(BLOCK):
                    digest.update(block)
                    after()
        except OSError:
            continue
        found[name] = digest.hexdigest()
    return found


def gathered(engine: Any, mine: dict[str, str]) -> dict[str, str]:
    """Bring the entries of all ranks together, on all ranks."""
    parts = [mine] * engine.world_size
    if engine.world_size > 1:
        dist.all_gather_object(parts, mine)
    return {name: digest for part in parts for name, digest in part.items()}


def step_of(path: Path) -> int:
    """Return the steps done when the checkpoint was written."""
    return int(path.name.removeprefix("step-"))


def load(engine: Any, path: Path, owner: str = "") -> dict[str, Any]:
    """Restore weights, optimiser and random state from `path`; returns the saved `client_state`.

    Raises InputError if the checkpoint has another `owner`, ZeRO stage or model, or would run code.
    """
    enter("load")
    saved, wanted = json.loads((path / NOTE).read_text()), identity(engine, owner)
    for name, advice in (
        ("owner", "it belongs to another configuration; delete it or give another --work"),
        ("zero_stage", "set launch.zero_stage back, or delete it to start again"),
    ):
        if saved[name] != wanted[name]:
            raise InputError(f"{path}: its {name} is {saved[name]!r}, expected {wanted[name]!r}; {advice}")
    tag = TAG if saved["ranks"] == wanted["ranks"] else _make_universal(engine, path)
    engine._config.load_universal_checkpoint = tag == UNIVERSAL
    frozen = any(not parameter.requires_grad for parameter in engine.module.parameters())  # and not saved
    decays = [group["weight_decay"] for group in engine.optimizer.param_groups]
    try:
        with only_data(path):
            found, state = engine.load_checkpoint(
                str(path), tag=tag, load_lr_scheduler_states=False, load_module_strict=not frozen
            )
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{path}: not a checkpoint of this model ({reason}); delete it to start again"
        ) from error
    if found is None:
        raise InputError(f"{path}: not a checkpoint of this engine; delete it to start again")
    if tag == UNIVERSAL:
        _repair_optimizer(engine, decays)
    random_file = path / f"random-{engine.global_rank:05d}.pt"
    if random_file.exists():  # absent if there are more ranks now
        with only_data(path):
            _restore_random_state(torch.load(random_file))
    return state["caller"]


def identity(engine: Any, owner: str) -> dict[str, Any]:
    """Whose checkpoint this is, and of how many ranks."""
    return {
        "owner": owner,
        "ranks": engine.world_size,
        "zero_stage": engine.zero_optimization_stage(),
    }


def _make_universal(engine: Any, path: Path) -> str:
    """Convert the checkpoint for any number of ranks, in a separate process; returns the new tag."""

    def convert() -> None:
        partial = path / f"{UNIVERSAL}.partial"
        for old in (partial, path / UNIVERSAL):  # anew: nothing says whether an earlier one is still whole
            shutil.rmtree(old, ignore_errors=True)
        command = [sys.executable, "-m", only_data.__module__, "--inject_missing_state"]
        command += ["--input_folder", str(path / TAG), "--output_folder", str(partial)]
        code, errors = _ran(command, Growth(partial))
        if code:
            reason = errors.strip().rpartition("\n")[2].removeprefix("error: ")
            raise InputError(f"{path}: not converted for {engine.world_size} ranks: {reason}")
        partial.rename(path / UNIVERSAL)

    first_on_rank_0(convert)
    wait_for(path / UNIVERSAL)
    return UNIVERSAL


def _ran(command: list[str], growth: Growth) -> tuple[int, str]:
    """Exit code and messages of a program that may take long: what it writes is progress."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while True:
            try:
                _, errors = process.communicate(timeout=LOOK_SECONDS)
                return process.returncode, errors
            except subprocess.TimeoutExpired:
                growth.look()


def _repair_optimizer(engine: Any, decays: list[float]) -> None:
    """Repair what DeepSpeed's universal loading breaks: the step counter stays in main memory, where a fused
    optimizer cannot read it, and at ZeRO 3 all parameters share one, which each of them increments, and all
    groups get the first one's weight decay.
    """
    optimizer = engine.optimizer.optimizer
    for parameter, state in optimizer.state.items():
        step = torch.as_tensor(state["step"], dtype=torch.float32, device=parameter.device)
        state["step"] = step.clone()
    for group, decay in zip(optimizer.param_groups, decays, strict=True):
        group["weight_decay"] = decay


def random_state() -> dict[str, Any]:
    """Return the state of this rank's random generators."""
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
