"""Syncs a mixture of experts to a sampler, with faults on the way; test_isolation.py runs it.

Argument: an empty folder. Prints for each fault whether the check after the first sync tells it.
"""

import pipeline.training.environment  # noqa: F401  # isort: skip  # before torch and vLLM

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import torch
from given.families import small_model
from tiny_model import save_tiny_model
from torch import Tensor

from pipeline.core.errors import InputError
from pipeline.rl.explorer import check_sampler
from pipeline.training.engine import start_process_group
from pipeline.training.generation import Generator
from pipeline.training.model import TokenLogprobs, load_model, sampler_weights

TOKENS = [(7 * place + place**2) % 90 + 4 for place in range(100)]
SHAPE = {"hidden_size": 128, "intermediate_size": 64}  # vLLM's kernels for CPUs want multiples of 32


def altered(engine: SimpleNamespace, fault: str) -> Iterator[tuple[str, Tensor]]:
    weights = dict(sampler_weights(engine))
    flipped = "model.layers.1.self_attn.o_proj.weight"
    swapped = "model.layers.0.mlp.experts.{}.up_proj.weight"
    if fault == "flipped":
        weights[flipped] = weights[flipped].T.contiguous()
    if fault == "swapped":
        weights |= {swapped.format(a): weights[swapped.format(b)] for a, b in ((0, 1), (1, 0))}
    if fault == "missing":
        weights = {name: value for name, value in weights.items() if ".1.mlp.experts" not in name}
    yield from weights.items()


def main(folder: Path) -> None:
    start_process_group()
    save_tiny_model(folder, seed=0)
    small_model("olmoe", **SHAPE).save_pretrained(folder)
    engine = SimpleNamespace(module=TokenLogprobs(load_model(folder)), device=torch.device("cpu"))
    verdicts = {}
    for fault in ("none", "flipped", "swapped", "missing"):
        sampler = Generator(folder, dtype="float32", max_model_len=128, max_sequences=2, empty=True)
        sampler.load_weights(altered(engine, fault), 0)
        try:
            verdicts[fault] = check_sampler(sampler, engine, TOKENS)
        except InputError as error:
            verdicts[fault] = str(error)
        sampler.close()
    print(json.dumps(verdicts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
