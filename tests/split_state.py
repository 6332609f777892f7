"""What is split among ranks: reading a model, bytes of training state, scores, files of a checkpoint."""

import copy
import gc
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import deepspeed
import numpy as np
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, LlamaConfig

from pipeline.config.rl import RlSection
from pipeline.core.launch.clock import Clock
from pipeline.reward.model import RewardModel, load_trunk, score_places
from pipeline.rl.learner import build_learner
from pipeline.training import checkpoint, model, saver
from pipeline.training.engine import EngineSettings, build_engine, build_frozen
from pipeline.training.model import TokenLogprobs, load_model

TOKENS = 16  # so few that activations do not count


def _alive() -> int:
    """Bytes of all tensors that were made since `gc.freeze`."""
    found = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.Tensor):
            for tensor in (thing, thing.grad if thing.is_leaf else None, getattr(thing, "ds_tensor", None)):
                if tensor is not None:
                    found[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
    return sum(found.values())


class Collectives(TorchDispatchMode):
    """Calls `measure` at each collective."""

    def __init__(self, measure: Callable[[], None]) -> None:
        super().__init__()
        self.measure = measure

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: tuple = (), options: dict | None = None
    ) -> Any:
        if function.namespace == "c10d":
            self.measure()
        return function(*arguments, **(options or {}))


def state_bytes(folder: Path, zero: int, precision: str, offload: bool) -> dict[str, int]:
    """The number of weights of a small model, the most bytes while its gradients are made and reduced, and
    those of the copies for a checkpoint in `folder`.
    """
    gc.collect()
    gc.freeze()
    shape = {"hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=512, **shape)
    plain: Any = AutoModelForCausalLM.from_config(config, dtype={"bf16": torch.bfloat16}.get(precision))
    weights = sum(parameter.numel() for parameter in plain.parameters())
    settings = EngineSettings(1e-3, precision=precision, zero_stage=zero, offload_optimizer=offload)
    large = deepspeed.initialize
    deepspeed.initialize = large.__wrapped__  # the plan's peak: all weights are whole, as far as LIVE allows
    engine = build_engine(TokenLogprobs(plain), settings)
    deepspeed.initialize = large
    tokens_BT = torch.arange(TOKENS)[None]
    peak = []

    def backward(last: bool) -> None:
        engine.set_gradient_accumulation_boundary(last)
        loss, _ = engine(tokens_BT, tokens_BT, tokens_BT, weights_BT=torch.ones(1, TOKENS))
        engine.backward(loss, scale_wrt_gas=False)
        engine.step()

    def measure(*_: torch.Tensor) -> None:
        peak.append(_alive())

    backward(False)
    backward(True)  # makes the optimiser's state
    hook = plain.get_input_embeddings().weight.register_hook(measure)
    with Collectives(measure):
        backward(False)
    hook.remove()
    keeper = saver.Saver({folder: engine}, "x")
    keeper.save(1, {})
    keeper.finish()
    copies = sum(room.nbytes for room in engine.checkpoint_engine.memory)
    engine.destroy()
    return {"weights": weights, "bytes": max(peak), "copies": copies}


def check_scores(source: Path, place: str) -> None:
    """A reward model split among ranks gives each rank, for its own outputs, the scores of a whole one."""
    torch.manual_seed(7)
    whole = RewardModel(load_trunk(source, "fp32"))
    torch.nn.init.normal_(whole.head.weight)
    split = build_frozen(copy.deepcopy(whole), "fp32", place, "cpu")
    sequences = [list(range(4, 10 + n)) for n in range(5 * dist.get_rank())]  # none on rank 0
    places = [[2, len(tokens) - 1] for tokens in sequences]
    expected = score_places(whole.eval(), sequences, places, 32)
    found = score_places(split, sequences, places, 32, together=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    split.destroy()


def check_loads(folder: Path) -> None:
    """Rank 0 alone reads policy, critic and reference; each rank gets the weights or its share of them."""
    reads, read = [], model.load_model
    model.load_model = lambda *arguments: reads.append(arguments) or read(*arguments)
    for precision, zero, place in (("bf16", 1, "whole"), ("fp32", 3, "split"), ("bf16", 3, "main_memory")):
        section = RlSection(method="ppo", precision=precision)
        learner = build_learner(section, {"zero_stage": zero, "frozen": place}, str(folder))
        assert len(reads) == 3 * (dist.get_rank() == 0), reads
        reads.clear()
        expected = dict(read(folder, precision).named_parameters())
        for module in (learner.engine.module.model, learner.critic.module.trunk, learner.reference.model):
            for name, weight in model.whole_parameters(module):
                same = expected.get(name, expected.get(f"model.{name}"))
                assert weight.dtype == same.dtype and torch.equal(weight, same), (place, name)
        for engine in (learner.engine, learner.critic):
            engine.destroy()
    model.load_model = read


def check_late_writer(source: Path, folder: Path) -> None:
    """A checkpoint counts only when the slowest of two ranks has written its part."""
    engine = build_engine(TokenLogprobs(load_model(source)), EngineSettings(1e-3, zero_stage=2))
    keeper, clock = saver.Saver({folder: engine}, "x"), Clock(engine.device, 99)
    flush, last = saver.flush, dist.get_rank() == 1

    def late(paths: Iterable[Path]) -> None:
        while last and not (folder / "go").exists():
            time.sleep(0.01)
        flush(paths)

    saver.flush = late
    keeper.save(1, {})
    while not last and keeper.writes():
        time.sleep(0.01)
    assert keeper.writes() == last
    assert clock.ask(keeper.writes()) == (False, 0, True)
    assert not list(folder.glob("step-*"))
    dist.barrier()
    (folder / "go").touch()
    while clock.ask(keeper.writes())[2]:
        time.sleep(0.01)
    keeper.commit()
    assert checkpoint.newest(engine, folder) == folder / "step-0000001"
    saver.flush = flush
    engine.destroy()
