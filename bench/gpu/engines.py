"""Steps with DeepSpeed, and with vLLM: a ZeRO step of each stage, a sampler that sleeps, a GRPO step."""

import pipeline.training.environment  # noqa: F401  # isort: skip  # before torch and DeepSpeed

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import torch
from given.lines import read_lines, write_lines
from parts import DEVICE, GPU, SHAPES, loss_of, make_rows, model_of, tensors_of
from programs import words_of
from rl_program import SECTION, question, save_policy
from tiny_model import save_tiny_model

PRECISION = "bf16" if GPU else "fp32"
ROOT = Path(__file__).resolve().parents[2]


def _zero(stage: int) -> dict[str, float]:
    """Two steps of an engine at a stage; the loss falls."""
    from pipeline.training.engine import EngineSettings, build_engine, update

    shape, tensors = next(iter(SHAPES.values())), tensors_of(make_rows(1))
    model = model_of(shape, torch.bfloat16 if GPU else torch.float32)
    engine = build_engine(model, EngineSettings(1e-3, precision=PRECISION, zero_stage=stage))
    started, losses = time.monotonic(), []
    for _ in range(3):
        losses.append(update(engine, [tensors], lambda batch: loss_of(engine, batch), 1e-3)[0])
    assert losses[-1] < losses[0], f"the loss does not fall: {losses}"
    held = torch.cuda.max_memory_allocated() / 1e9 if GPU else 0.0
    return {"loss before": losses[0], "after": losses[-1], "s": (time.monotonic() - started) / 3, "GB": held}


zero_1, zero_2, zero_3 = (partial(_zero, stage) for stage in (1, 2, 3))


def sampler() -> dict[str, float]:
    """A sampler that sleeps at level 2 gets new weights; its log-probabilities beside the trainer's."""
    from pipeline.training.generation import Generator
    from pipeline.training.model import TokenLogprobs, load_model

    with tempfile.TemporaryDirectory() as folder:
        save_tiny_model(Path(folder), seed=0, spread=0.1)
        dtype = {"bf16": "bfloat16", "fp32": "float32"}[PRECISION]
        generator = Generator(folder, dtype=dtype, max_model_len=256, gpu_memory=0.3, sleep=True)
        policy = TokenLogprobs(load_model(folder, PRECISION).to(DEVICE))
    free = [torch.cuda.mem_get_info()[0] if GPU else 0]
    generator.sleep()
    free.append(torch.cuda.mem_get_info()[0] if GPU else 0)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.1)
    weights = [(name.removeprefix("model."), value) for name, value in policy.named_parameters()]
    weights.append(("lm_head.weight", policy.model.get_output_embeddings().weight))
    started = time.monotonic()
    generator.load_weights(((name, value.data) for name, value in weights), version=1)
    synced = time.monotonic() - started
    prompts = [list(range(4, 30 + n)) for n in range(8)]
    samples = generator.generate(prompts, max_tokens=32, seeds=list(range(8)), logprobs=True)
    gaps = []
    for prompt, (sample,) in zip(prompts, samples, strict=True):
        tokens = torch.tensor([prompt + sample.token_ids], device=DEVICE)
        positions = torch.arange(tokens.shape[1], device=DEVICE)[None]
        with torch.no_grad():
            logprobs = policy(tokens[:, :-1], positions[:, :-1], tokens[:, 1:])[0, len(prompt) - 1 :]
        gaps.append((logprobs.cpu() - torch.tensor(sample.logprobs)).abs())
    gap = torch.cat(gaps)
    assert gap.mean() < 0.05, f"sampler and trainer differ by {gap.mean():.3g} nats"
    freed = (free[1] - free[0]) / 1e9
    return {"gap mean": gap.mean().item(), "gap most": gap.max().item(), "sync s": synced, "GB freed": freed}


def grpo() -> dict[str, float]:
    """Two steps of the RL program, which sleeps, syncs, samples and trains."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_policy(folder / "policy")
        prompts = write_lines(folder / "prompts.jsonl", map(question, range(20)))
        section = SECTION | {"steps": 2, "prompts": "prompts.jsonl", "precision": PRECISION}
        launch = {"micro_batch": 4, "sleep": True, "gpu_memory": 0.3}
        words = words_of(folder, section, launch, {"parent": folder / "policy", "prompts": prompts})
        command = [sys.executable, "-m", "pipeline.rl", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr.strip().rpartition("\n")[2]
        last = read_lines(folder / "data/metrics.jsonl")[-1]
    assert last["weight_version"] == 1 and last["grad_norm"] > 0
    return {name: last[name] for name in ("logprob_gap_mean", "sync_seconds", "train_seconds", "grad_norm")}
