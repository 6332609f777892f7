"""Trains one tiny model several times in one process group; test_training_exact.py runs it per world size.

Arguments: a folder with `model` and `tokens`, a name, and a JSON list of cases. A case is a run of the real
loop: {"name", "zero", "micro", "steps", "batch", "order", "recompute", "offload", "resume", "damage",
"poison", "signal", "hidden", "lora", "convert"}; its metrics and the rows that each rank read go to
`<folder>/<name>-<case>/`.
With "resume" it starts from another case's work folder, in which it first cuts the file "damage" to half its
size; with "poison" the checkpoint in it would run code, and `error.txt` says how the run ends. With "signal"
the last rank gets SIGTERM while it reads that step's rows. With "convert": "here" another number of ranks is
prepared for in a fork. With "hidden" rank 1 sees that checkpoint late.
Cases "measure", "score", "loads" and "late" are in `split_state`.
"""

import pipeline.training.environment  # noqa: F401  # isort: skip  # before torch and deepspeed

import hashlib
import json
import os
import runpy
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from split_state import check_late_writer, check_loads, check_scores, state_bytes

from pipeline.config.cpt import CptSection
from pipeline.config.lora import Lora
from pipeline.config.sft import SftSection
from pipeline.core import ending
from pipeline.core.errors import InputError, Interrupted
from pipeline.core.manifest import fingerprint, write_json
from pipeline.core.stage import Stage
from pipeline.tokens.mixture import Mixture
from pipeline.training import checkpoint
from pipeline.training.engine import build_engine, prepare, settings_from, start_from, start_process_group
from pipeline.training.model import TokenLogprobs, export_model
from pipeline.training.next_token import TrainingPlan, train
from pipeline.training.packing import PackedRow, concatenate, make_row
from pipeline.training.tokenizer import load_tokenizer

CONTEXT, BATCH = 48, 8
RAN = checkpoint._ran
SECTION = CptSection(precision="fp32", learning_rate=1e-3, context=CONTEXT)
ADAPTED = SftSection(precision="fp32", learning_rate=1e-3, context=CONTEXT, lora=Lora(rank=4, alpha=8))


def example_row(n: int, backward: bool) -> PackedRow:
    """Row `n` of steps of 20 examples each, which are packed in their order or in the opposite one."""
    step, index = divmod(n, BATCH)
    generator = np.random.default_rng(step)
    examples = [(generator.integers(4, 60, k), np.arange(k) > 1) for k in generator.integers(4, 16, 20)]
    examples = examples[::-1] if backward else examples
    rows = concatenate([len(ids) for ids, _ in examples], CONTEXT)
    assert len(rows) <= BATCH
    return make_row([examples[i] for i in rows[index]] if index < len(rows) else [], CONTEXT, 0)


class Code:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.folder),)


def poison(work: Path) -> None:
    """Replace files of the newest checkpoint, and their digests, by pickles that run code."""
    newest = max((work / "checkpoints").glob("step-*"))
    note = json.loads((newest / checkpoint.NOTE).read_text())
    del note["digest"]
    for file in (newest / checkpoint.TAG).glob("*.pt"):
        torch.save(torch.load(file, weights_only=False) | {"more": Code(work / "executed")}, file)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        note["files"][str(file.relative_to(newest))] = digest
    write_json(newest / checkpoint.NOTE, note | {"digest": fingerprint(note)})


def hide(name: str, seconds: float) -> None:
    """Let this rank see files under `name` only after some seconds, as on another node."""
    until, exists, glob = time.monotonic() + seconds, Path.exists, Path.glob

    def late(path: Path) -> bool:
        return name in path.parts and time.monotonic() < until

    Path.exists = lambda path: not late(path) and exists(path)
    Path.glob = lambda path, pattern: (found for found in glob(path, pattern) if not late(found))


def convert_here(command: list[str], _: Any) -> tuple[int, str]:
    """Run the program that converts a checkpoint in a fork: its imports take far longer than its work."""
    child = os.fork()
    if not child:
        sys.argv = command[2:]
        try:
            runpy.run_module(sys.argv[0], run_name="__main__")
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), ""


def check_released(engine: Any) -> None:
    """ZeRO 3 splits a layer's weights again before the next one, in both directions, as of a large model."""
    weights, layers, whole = list(engine.module.parameters()), engine.module.model.base_model.layers, []

    def note(*_: Any) -> None:
        whole.append(sum(bool(weight.numel()) for weight in weights))

    engine.empty_partition_cache()
    engine.optimizer.parameter_offload.get_param_coordinator()._invalidate_trace()  # else it fetches ahead
    hooks = [layer.register_forward_hook(note) for layer in layers]
    hooks += [layer.register_full_backward_pre_hook(note) for layer in layers]
    tokens_BT = torch.arange(8)[None]
    loss, _ = engine(tokens_BT, tokens_BT, tokens_BT, weights_BT=torch.zeros(1, 8))
    note()
    engine.set_gradient_accumulation_boundary(False)
    engine.backward(loss, scale_wrt_gas=False)
    engine.step()
    note()
    for hook in hooks:
        hook.remove()
    assert len(whole) == 2 * len(layers) + 2 and max(whole) <= 1 and whole[len(layers)] == 0


def run(folder: Path, name: str, case: dict) -> None:
    work, rank = folder / f"{name}-{case['name']}", dist.get_rank()
    if rank == 0 and case.get("resume"):
        shutil.copytree(folder / case["resume"], work)
        shutil.rmtree(work / "partial")
        if "damage" in case:
            os.truncate(work / case["damage"], (work / case["damage"]).stat().st_size // 2)
        if case.get("poison"):
            poison(work)
    if rank == 0:
        (work / "partial").mkdir(parents=True, exist_ok=True)
    dist.barrier()
    if rank == 1 and "hidden" in case:
        hide(case["hidden"], seconds=1)
    launch = {"zero_stage": case["zero"], "micro_batch": case["micro"], "save_minutes": case.get("save", 99)}
    launch |= {"activation_checkpointing": case.get("recompute", False)}
    launch |= {"offload_optimizer": case.get("offload", False)}
    section = ADAPTED if case.get("lora") else SECTION
    stage = Stage("cpt", "x", section, "a fingerprint", {}, work, work / "out", work / "m.json", launch)
    tokenizer = load_tokenizer(folder / "model")
    model = start_from(str(folder / "model"), tokenizer, stage)
    prepare(model, launch)
    engine = build_engine(TokenLogprobs(model), settings_from(section, launch))
    mixture = Mixture(folder / "tokens", CONTEXT, seed=3)
    order = case.get("order")

    def row(n: int) -> PackedRow:
        found = mixture.row(n) if order is None else example_row(n, order == "backward")
        digest = hashlib.sha256(found.tokens.tobytes() + found.targets.tobytes()).hexdigest()
        with (work / f"rows-{rank}.jsonl").open("a") as file:
            file.write(json.dumps([n, digest]) + "\n")
        if n // batch == case.get("signal") and rank == dist.get_world_size() - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return found

    batch = case.get("batch", BATCH)
    if case["zero"] == 3:
        check_released(engine)
    checkpoint._ran = convert_here if case.get("convert") == "here" else RAN
    plan = TrainingPlan(row, case["steps"], batch, lambda step: SECTION.learning_rate, mixture.names)
    try:
        totals = train(stage, engine, plan)
        export_model(engine, tokenizer, work / "partial")
        if rank == 0:
            (work / "totals.json").write_text(json.dumps(totals))
    except InputError as error:
        (work / "error.txt").write_text(str(error))
    except Interrupted as error:
        (work / f"interrupted-{rank}").write_text(str(error))
        ending._received.clear()
    engine.destroy()


if __name__ == "__main__":
    ending.catch_signals()
    start_process_group()
    for case in json.loads(sys.argv[3]):
        if "score" in case:
            check_scores(Path(sys.argv[1]) / "model", case["score"])
        elif "loads" in case:
            check_loads(Path(sys.argv[1]) / "model")
        elif "late" in case:
            check_late_writer(Path(sys.argv[1]) / "model", Path(sys.argv[1]) / "late")
        elif "measure" in case:
            place = Path(sys.argv[1], f"{sys.argv[2]}-{case['name']}")
            found = state_bytes(place, case["zero"], case["measure"], case["offload"])
            if dist.get_rank() == 0:
                place.with_suffix(".json").write_text(json.dumps(found))
        else:
            run(Path(sys.argv[1]), sys.argv[2], case)
