"""`make bench-training`: supervised fine-tuning beside TRL's SFTTrainer.

All train the same random Llama with the vocabulary of DeepSeek's tokenizer on the same examples in the same
steps, fp32 weights and bf16 products, each in a process of its own with the same threads. Example lengths are
log-normal, as those of GSM8K's and MATH's train sets. Peers pad each micro-batch to its longest example. TRL
runs twice: with its defaults (no packing, gradient checkpointing), and with its own packing (best-fit
decreasing) without checkpointing. Figures of a GPU: `make gpu-check`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from table import Row, publish, row_of

VOCABULARY, CONTEXT, EXAMPLES, STEPS, MICRO = 102_400, 1024, 24, 3, 8
RATE, DECAY, BETAS = 1e-3, 0.1, (0.9, 0.95)
SHAPE = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4, "num_attention_heads": 4}
RUNS = {
    "ours": "this project",
    "trl": "TRL 1.16 SFTTrainer, defaults",
    "trl-packed": "TRL 1.16 SFTTrainer, packing, no checkpointing",
}
Example = tuple[np.ndarray, np.ndarray]


def examples_of(step: int) -> list[Example]:
    """Tokens of each example of a step, and which of them the model learns: those of the answer."""
    generator = np.random.default_rng(step)
    questions = generator.lognormal(np.log(63), 0.55, EXAMPLES).astype(int).clip(4, CONTEXT // 2)
    answers = generator.lognormal(np.log(87), 0.65, EXAMPLES).astype(int).clip(4, CONTEXT // 2)
    return [
        (generator.integers(3, VOCABULARY, q + a), np.arange(q + a) >= q)
        for q, a in zip(questions, answers, strict=True)
    ]


def save_model(folder: Path) -> None:
    """The model that all start from, with a tokenizer that TRL asks for and does not use."""
    from tiny_model import save_tiny_model
    from transformers import AutoConfig, AutoModelForCausalLM

    save_tiny_model(folder, seed=0)
    config = AutoConfig.from_pretrained(folder)
    config.update(SHAPE | {"vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "head_dim": 64})
    config.update({"num_key_value_heads": 4, "initializer_range": 0.02, "tie_word_embeddings": False})
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def train_ours(folder: Path, seconds: list[float], losses: list[float]) -> None:
    """The training core of cpt and sft on best-fit rows."""
    import torch

    from pipeline.training.engine import EngineSettings, build_engine, update
    from pipeline.training.model import TokenLogprobs, load_model
    from pipeline.training.packing import IGNORE, best_fit, make_row

    settings = EngineSettings(RATE, BETAS, weight_decay=DECAY)
    engine = build_engine(TokenLogprobs(load_model(folder), mixed=True), settings)
    for step in range(STEPS):
        started, examples = time.monotonic(), examples_of(step)
        packed = best_fit([len(ids) for ids, _ in examples], CONTEXT)
        rows = [make_row([examples[index] for index in row], CONTEXT, 0) for row in packed]
        targets = sum(int((row.targets != IGNORE).sum()) for row in rows)

        def loss_of(part: list, targets: int = targets) -> torch.Tensor:
            names = ("tokens", "positions", "targets")
            arrays = (np.stack([getattr(row, name) for row in part]) for name in names)
            tensors = [torch.from_numpy(array) for array in arrays]
            return engine(*tensors, weights_BT=torch.full(tensors[0].shape, 1 / targets))[0]

        size = MICRO // 2  # rows of 1024 tokens hold more than padded examples do
        parts = [rows[at : at + size] for at in range(0, len(rows), size)]
        losses.append(update(engine, parts, loss_of, RATE)[0])
        seconds.append(time.monotonic() - started)


def train_trl(folder: Path, seconds: list[float], losses: list[float], packed: bool) -> None:
    """SFTTrainer on the same token ids; only what the task fixes is set, the rest are its defaults."""
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    class Watch(TrainerCallback):
        def on_step_begin(self, *_: object, **__: object) -> None:
            self.started = time.monotonic()

        def on_step_end(self, *_: object, **__: object) -> None:
            seconds.append(time.monotonic() - self.started)

        def on_log(self, arguments: object, state: object, control: object, logs: dict, **_: object) -> None:
            if "loss" in logs:
                losses.append(float(logs["loss"]))

    rows = [
        {"input_ids": ids.tolist(), "completion_mask": own.astype(int).tolist()}
        for step in range(STEPS)
        for ids, own in examples_of(step)
    ]
    # With packing a step has as many rows as the examples of a step fill, so that steps stay comparable.
    tokens = sum(len(row["input_ids"]) for row in rows)
    per_step = -(-tokens // CONTEXT // STEPS) if packed else EXAMPLES
    micro = MICRO // 2 if packed else MICRO
    config = SFTConfig(
        output_dir=str(folder / "trl"),
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        logging_steps=1,
        max_steps=STEPS,
        train_sampling_strategy="sequential",
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=-(-per_step // micro),
        learning_rate=RATE,
        lr_scheduler_type="constant",
        weight_decay=DECAY,
        adam_beta1=BETAS[0],
        adam_beta2=BETAS[1],
        max_length=CONTEXT,
        completion_only_loss=True,
        disable_tqdm=True,
        model_init_kwargs={"dtype": "float32"},
        **({"packing": True, "gradient_checkpointing": False} if packed else {}),
    )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    trainer = SFTTrainer(
        str(folder), args=config, train_dataset=Dataset.from_list(rows), processing_class=tokenizer
    )
    trainer.add_callback(Watch())
    trainer.train()


def memory(name: str) -> int:
    """A figure of this process from the kernel; bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def child(run: str, folder: Path) -> None:
    """Train in this process; prints a JSON line: losses, seconds, and peak memory above the libraries'."""

    if run.startswith("trl"):
        import trl  # noqa: F401
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    libraries = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of importing
    seconds, losses = [], []
    if run == "ours":
        train_ours(folder, seconds, losses)
    else:
        train_trl(folder, seconds, losses, packed=run == "trl-packed")
    print(json.dumps({"losses": losses, "seconds": seconds, "peak": memory("VmHWM") - libraries}))


def run_children(folder: Path, runs: list[str], threads: int) -> dict[str, dict]:
    environment = os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
    }
    found = {}
    for run in runs:
        command = [sys.executable, __file__, "--run", run, "--folder", str(folder)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{run} failed:\n{done.stderr[-3000:]}")
        found[run] = json.loads(done.stdout.splitlines()[-1])
        losses = " ".join(f"{loss:.4f}" for loss in found[run]["losses"])
        figures = (
            f"{sum(found[run]['seconds'][1:]):6.1f} s after the first step, {found[run]['peak'] / 1e9:.2f} GB"
        )
        print(f"{RUNS[run]:48} {figures}, losses {losses}", flush=True)
    return found


def rows_of(found: dict[str, dict]) -> list[Row]:
    """Rows of the table."""
    tokens = [sum(len(ids) for ids, _ in examples_of(step)) for step in range(STEPS)]

    def speed(run: dict) -> float:
        """Median over the steps but the first, which warms up."""
        return statistics.median(n / s for n, s in list(zip(tokens, run["seconds"], strict=True))[1:])

    ours, rows = found["ours"], []
    for name, run in found.items():
        if name == "ours":
            continue
        beside = RUNS[name], "random tokens, lengths as in GSM8K and MATH"
        peaks = (side["peak"] / 1e9 for side in (ours, run))
        rows.append(row_of("sft speed", "real tokens/s", speed(ours), speed(run), *beside, rate=True))
        rows.append(row_of("sft peak memory", "GB", *peaks, *beside, rate=False))
        if name != "trl-packed":  # its packing puts other examples into a step
            gap = max(abs(a - b) for a, b in zip(ours["losses"], run["losses"], strict=True))
            print(f"largest difference of the loss from {RUNS[name]}: {gap:.2g}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", choices=RUNS, help="train in this process (used by the benchmark itself)")
    parser.add_argument("--folder", type=Path, help="where the model lies (with --run)")
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS), help="runs to make")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    if arguments.run:
        child(arguments.run, arguments.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder) / "model")
        found = run_children(Path(folder) / "model", arguments.only, arguments.threads)
    publish("training", rows_of(found), f"{arguments.threads} threads")


if __name__ == "__main__":
    main()
