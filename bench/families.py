"""`make bench-families [FAMILIES="llama mixtral"]`: small random models of the families of transformers.

Each is exported and loaded again, checked as training checks it, and given to a sampler by a first sync of
weights (`sampler`, only for families that are named: each takes a process and seconds).
"""

import pipeline.training.environment  # noqa: F401  # isort: skip  # before torch and vLLM

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import torch
from given.families import FAMILIES, small_model
from tiny_model import save_tiny_model

from pipeline.core.errors import InputError
from pipeline.training.model import TokenLogprobs, load_model

TOKENS = [(7 * place + place**2) % 90 + 4 for place in range(100)]
WIDE = {"hidden_size": 128, "intermediate_size": 128, "moe_intermediate_size": 64}  # of vLLM's kernels
HEADS = {"num_attention_heads": 4, "head_dim": 32}


def walk(family: str, with_sampler: bool) -> str:
    """Return what happens to a family: right packed, right one at a time, refused, too large or not made."""
    try:
        model = small_model(family, **(WIDE | HEADS if with_sampler else {}))
    except Exception as error:
        return f"not made: {type(error).__name__}"
    if model is None:
        return "not made: too large"
    tokens = torch.tensor([TOKENS[:24]])
    with tempfile.TemporaryDirectory() as name:
        folder = save_tiny_model(Path(name), seed=0)
        model.save_pretrained(folder)
        try:
            module = TokenLogprobs(load_model(folder))
            module(tokens, torch.arange(24)[None], tokens)
            told = f"right, documents {module.verdict['documents']}"
            return f"{told}; sampler {sampled(folder, module)}" if with_sampler else told
        except InputError as error:
            return f"refused: {str(error).removeprefix(f'{folder}: ')}"


def sampled(folder: Path, module: TokenLogprobs) -> str:
    """Return the gap between sampler and policy after the first sync."""
    from pipeline.rl.explorer import check_sampler
    from pipeline.training.engine import start_process_group
    from pipeline.training.generation import Generator
    from pipeline.training.model import sampler_weights

    start_process_group()
    engine = SimpleNamespace(module=module, device=torch.device("cpu"))
    sampler = Generator(folder, dtype="float32", max_model_len=128, max_sequences=2, empty=True)
    sampler.load_weights(sampler_weights(engine), 0)
    return f"{check_sampler(sampler, engine, TOKENS)['gap']:.0e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", help="with a sampler; without names all, without one")
    parser.add_argument("--here", action="store_true", help="in this process")
    given = parser.parse_args()
    if given.here or not given.families:
        verdicts = {name: walk(name, given.here) for name in given.families or FAMILIES}
        print("\n".join(f"{name}: {verdict}" for name, verdict in verdicts.items()))
        if not given.families:
            print(dict(Counter(verdict.split(":")[0] for verdict in verdicts.values())))
        return
    for name in given.families:  # vLLM sets up its groups for one kind of model a process
        done = subprocess.run([sys.executable, __file__, "--here", name], capture_output=True, text=True)
        last = (done.stdout.splitlines() or done.stderr.splitlines() or ["no output"])[-1]
        print(last if done.returncode == 0 else f"{name}: traceback: {last}", flush=True)


if __name__ == "__main__":
    main()
