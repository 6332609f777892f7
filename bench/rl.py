"""`make bench-rl`: GRPO beside TRL's GRPOTrainer, both on the GPU where there is one, else on the CPU.

Both get the same model, prompts, group size, lengths, rewards and one thread; runs alternate, each in its own
process, and medians count. A step is sampling and one update. The train phase is measured on the same stored
outputs for both: TRL takes them through its `rollout_func`. Memory is the peak of the whole process, on a GPU
that of its tensors there, at a vocabulary of 100K, without any sampler in it. TRL samples with transformers:
its vLLM mode does not run on a CPU.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from table import Row, publish, row_of

QUESTIONS, GROUP, LONGEST = 8, 16, 64
SIZE = {"step": 1000, "train": 1000, "memory": 100_000}  # vocabulary of each measurement
STEPS = {"step": 4, "train": 4, "memory": 1}  # of each run; the first one is not counted in seconds
RUNS = {"step": 2, "train": 2, "memory": 1}


def reward_of(tokens: list[int]) -> float:
    """A reward that differs between outputs and costs nothing: the share of even tokens."""
    return sum(token % 2 == 0 for token in tokens) / max(1, len(tokens))


def prepare(folder: Path, vocabulary: int) -> None:
    """A random model of four layers that ends an output with a chance of 2 % per token, and its prompts."""
    from tiny_model import save_tiny_model
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    save_tiny_model(folder, seed=0)  # for its tokenizer
    ends = [2, *range(200, 200 + vocabulary // 50)]
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(pad_token_id=0, bos_token_id=1, eos_token_id=ends)
    model.save_pretrained(folder)
    generator = random.Random(0)
    number = QUESTIONS * max(STEPS.values())
    prompts = ["".join(generator.choices("abcdefgh 0123456789", k=120)) for _ in range(number)]
    stored = [
        [
            [
                generator.randrange(300, vocabulary)
                for _ in range(min(LONGEST, 1 + int(generator.expovariate(0.02))))
            ]
            for _ in range(GROUP)
        ]
        for _ in prompts
    ]
    (folder / "prompts.json").write_text(json.dumps({"prompts": prompts, "outputs": stored}))


class Ours:
    """The pipeline's own parts: policy, sampler (where outputs are not given) and the groups of a step."""

    def __init__(self, folder: Path, samples: bool) -> None:
        from pipeline.rl.learner import Learner
        from pipeline.training.engine import EngineSettings, build_engine, use_threads
        from pipeline.training.model import TokenLogprobs, load_model
        from pipeline.training.tokenizer import load_tokenizer

        use_threads({"threads": 1})
        self.tokenizer, self.data = load_tokenizer(folder), json.loads((folder / "prompts.json").read_text())
        self.prompts = [self.tokenizer(text)["input_ids"] for text in self.data["prompts"]]
        settings = EngineSettings(learning_rate=1e-6, weight_decay=0.0)
        self.learner = Learner(build_engine(TokenLogprobs(load_model(folder)), settings), rows_at_once=8)
        self.generator = None
        if samples:
            from pipeline.training.generation import Generator

            most = QUESTIONS * GROUP
            self.generator = Generator(folder, dtype="float32", max_model_len=256, max_sequences=most)

    def drawn(self, step: int, here: range) -> list[list[tuple[list[int], list[float]]]]:
        """Tokens and log-probabilities of each question's outputs: the given ones, or new ones."""
        from pipeline.training.model import sampler_weights

        if self.generator is None:
            return [
                [(tokens, [0.0] * len(tokens)) for tokens in self.data["outputs"][place]] for place in here
            ]
        self.generator.load_weights(sampler_weights(self.learner.engine), step)
        samples = self.generator.generate(
            [self.prompts[place] for place in here],
            n=GROUP,
            max_tokens=LONGEST,
            seeds=[100 * place for place in here],
            logprobs=True,
        )
        return [[(sample.token_ids, sample.logprobs) for sample in row] for row in samples]

    def groups(self, step: int) -> list[Any]:
        """The step's groups, rewarded."""
        from pipeline.rl.rollout import Group, Rollout

        def rollout(tokens: list[int], logprobs: list[float], text: str) -> Rollout:
            return Rollout(0, tokens, logprobs, "stop", text, reward_of(tokens), {}, "wrong", None, "")

        here, found = range(step * QUESTIONS, (step + 1) * QUESTIONS), []
        for place, row in zip(here, self.drawn(step, here), strict=True):
            texts = self.tokenizer.batch_decode([tokens for tokens, _ in row])
            outputs = [rollout(*output, text) for output, text in zip(row, texts, strict=True)]
            found.append(Group(step, step, str(place), "", "", self.prompts[place], outputs))
        return found


def ours(folder: Path, what: str) -> dict[str, Any]:
    """Seconds of each step (or train phase) of the pipeline."""
    import pipeline.training.environment  # noqa: F401  # isort: skip

    from pipeline.config.rl import RlSection
    from pipeline.rl.train import train_on

    section = RlSection(kl_coefficient=0.0, precision="fp32", max_tokens=LONGEST, row_tokens=512)
    side, seconds, tokens = Ours(folder, what == "step"), [], 0
    for step in range(STEPS[what]):
        started = time.perf_counter()
        groups = side.groups(step)
        tokens += sum(group.tokens for group in groups)
        if what != "step":
            started = time.perf_counter()
        train_on(side.learner, groups, section, 1e-6, on_policy=what == "step")
        seconds.append(time.perf_counter() - started)
    return {"seconds": seconds[1:], "tokens": tokens}


def trl_settings(folder: Path, what: str) -> Any:
    """What TRL trains with: the same as ours where both have the option."""
    import torch
    from trl import GRPOConfig

    return GRPOConfig(
        output_dir=str(folder / "trl"),
        per_device_train_batch_size=QUESTIONS * GROUP,
        gradient_accumulation_steps=1,
        num_generations=GROUP,
        max_completion_length=LONGEST,
        max_steps=STEPS[what],
        learning_rate=1e-6,
        beta=0.0,
        loss_type="grpo",
        temperature=1.0,
        use_cpu=not torch.cuda.is_available(),
        bf16=False,
        gradient_checkpointing=False,
        shuffle_dataset=False,
        save_strategy="no",
        report_to="none",
        logging_strategy="no",
        disable_tqdm=True,
    )


def trl(folder: Path, what: str) -> dict[str, Any]:
    """Seconds of each step (or train phase) of TRL's GRPOTrainer."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOTrainer

    torch.set_num_threads(1)
    data = json.loads((folder / "prompts.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    stored = dict(zip(data["prompts"], data["outputs"], strict=True))
    begun: list[float] = []
    prepared: list[float] = []
    ended: list[float] = []
    counted = []

    def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
        counted.append(sum(map(len, completion_ids)))
        return [reward_of(tokens) for tokens in completion_ids]

    def replay(prompts: list[str], trainer: Any) -> dict[str, Any]:
        ids = [tokenizer(text)["input_ids"] for text in prompts]
        outputs = [stored[text][index % GROUP] for index, text in enumerate(prompts)]
        return {"prompt_ids": ids, "completion_ids": outputs, "logprobs": None}

    class Timed(GRPOTrainer):
        def _prepare_inputs(self, batch: Any) -> Any:
            inputs = super()._prepare_inputs(batch)
            prepared.append(time.perf_counter())
            return inputs

    Timed(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        args=trl_settings(folder, what),
        processing_class=tokenizer,
        reward_funcs=reward,
        train_dataset=Dataset.from_dict({"prompt": data["prompts"]}),
        rollout_func=None if what == "step" else replay,
        callbacks=[clock(begun, ended)],
    ).train()
    seconds = [end - begin for begin, end in zip(begun if what == "step" else prepared, ended, strict=True)]
    return {"seconds": seconds[1:], "tokens": sum(counted)}


def clock(begun: list[float], ended: list[float]) -> Any:
    """A callback that notes when TRL's steps begin and end."""
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            begun.append(time.perf_counter())

        def on_step_end(self, *_: Any, **__: Any) -> None:
            ended.append(time.perf_counter())

    return Clock()


def peak_mb() -> float:
    """Peak memory of this process: of its tensors on the GPU where there is one, else of all it holds; MB."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(side: str, folder: Path, what: str) -> dict[str, Any]:
    """Run one side in a process of its own."""
    command = [sys.executable, __file__, "--side", side, "--folder", str(folder), "--what", what]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{side} {what} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(what: str, label: str, unit: str) -> Row:
    """Alternating runs of both sides; the row of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, SIZE[what])
        runs = [(measured("ours", folder, what), measured("trl", folder, what)) for _ in range(RUNS[what])]
    if what == "memory":
        mine, theirs = (statistics.median(run[side]["peak_mb"] for run in runs) for side in (0, 1))
    else:
        pools = [[second for run in runs for second in run[side]["seconds"]] for side in (0, 1)]
        mine, theirs = map(statistics.median, pools)
    print(f"{label}: ours {mine:.3f}, TRL {theirs:.3f} {unit}", flush=True)
    data = "random prompts and outputs"
    return row_of(label, unit, mine, theirs, "TRL 1.16 GRPOTrainer", data, rate=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", choices=("ours", "trl"))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--what", choices=tuple(SIZE), action="append")
    arguments = parser.parse_args()
    if arguments.side:
        found = (ours if arguments.side == "ours" else trl)(arguments.folder, arguments.what[0])
        print(json.dumps(found | {"peak_mb": peak_mb()}))
        return
    labels = {
        "step": ("GRPO step: sampling and one update, vocabulary 1,000", "s"),
        "train": ("train phase on the same outputs, vocabulary 1,000", "s"),
        "memory": ("peak memory of training on the same outputs, vocabulary 100,000", "MB"),
    }
    publish("rl", [compare(what, *labels[what]) for what in arguments.what or SIZE], "one thread used")


if __name__ == "__main__":
    main()
