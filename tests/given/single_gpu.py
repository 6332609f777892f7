"""What `configs/single-gpu.yaml` takes from the hub, small: a Qwen2 checkpoint and data sets."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml

from pipeline.config.rl import RlSection

MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
SUFFIX = RlSection().asks_with["en"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are helpful.<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Less of everything than the configuration asks for, to fit two cores.
SMALLER = {
    "models": {"grpo": {"steps": 2, "questions_per_step": 4, "group_size": 8, "max_tokens": 16}},
    "benchmarks": {"gsm8k": {"limit": 4}, "math500": {"limit": 4}},
    "evaluate": {"samples": 2, "k": [1, 2], "max_tokens": 16},
    "rl": {"precision": "fp32", "learning_rate": 1e-3},
    "launch": {"threads": 1, "gpu_memory": 0.1},
}
ITEMS = ("apples", "pens", "books", "coins", "eggs", "cards")


def questions(first: int, count: int) -> list[dict[str, str]]:
    """Rows in GSM8K's form; answers are 10, 11, 12 or 13."""
    return [
        {
            "question": f"Tom has {number % 4 + 1} {ITEMS[number % 6]} and buys 9 more. How many are there?",
            "answer": f"{number % 4 + 1} + 9 = <<{number % 4 + 1}+9={number % 4 + 10}>>{number % 4 + 10}."
            f"\n#### {number % 4 + 10}",
        }
        for number in range(first, first + count)
    ]


def save_datasets(folder: Path) -> None:
    """Write the data sets that the configuration names, in the layout of their hub repositories."""
    gsm8k = folder / "openai/gsm8k"
    (gsm8k / "main").mkdir(parents=True)
    files = {}
    for split, first, count in (("train", 0, 12), ("test", 12, 6)):
        files[split] = f"main/{split}-00000-of-00001.parquet"
        pq.write_table(pa.Table.from_pylist(questions(first, count)), gsm8k / files[split])
    listed = [{"split": split, "path": path} for split, path in files.items()]
    header = yaml.safe_dump({"configs": [{"config_name": "main", "data_files": listed}]})
    (gsm8k / "README.md").write_text(f"---\n{header}---\n")
    math = folder / "HuggingFaceH4/MATH-500"
    math.mkdir(parents=True)
    rows = [
        {
            "problem": f"Compute ${n}^2$.",
            "solution": f"$\\boxed{{{n * n}}}$",
            "answer": str(n * n),
            "level": 1,
        }
        | {"subject": "Algebra", "unique_id": f"test/algebra/{n}.json"}
        for n in range(2, 8)
    ]
    (math / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    train = folder / "DigitalLearningGmbH/MATH-lighteval/data"  # worked examples for few-shot prompts
    train.mkdir(parents=True)
    rows = [
        {"problem": row["problem"], "level": "Level 1", "type": "Algebra", "solution": row["solution"]}
        for row in rows
    ]
    pq.write_table(pa.Table.from_pylist(rows), train / "train-00000-of-00001.parquet")


def teach(model: torch.nn.Module, tokenizer: Any) -> None:
    """Train a model to answer with one of four boxed numbers at random, so that GRPO can improve it."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = random.Random(0)
    for _ in range(60):
        rows = []
        for row in generator.choices(questions(0, 12), k=16):
            messages = [{"role": "user", "content": f"{row['question']}\n{SUFFIX}"}]
            messages.append({"role": "assistant", "content": f"\\boxed{{{generator.randint(10, 13)}}}"})
            rows.append(tokenizer.apply_chat_template(messages, tokenize=False).strip())
        batch = tokenizer(rows, return_tensors="pt", padding=True)
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def save_model(folder: Path) -> None:
    """A small Qwen2 checkpoint in several files, with a byte-level tokenizer and a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(
        [f"{row['question']}\n{SUFFIX} \\boxed{{10}}" for row in questions(0, 12)], trainer
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=SPECIAL[0], eos_token=SPECIAL[2], chat_template=TEMPLATE
    )
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(fast) + 8,  # padded, as Qwen's is
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=2,
    )
    model = Qwen2ForCausalLM(config)
    teach(model, fast)
    model = model.to(torch.bfloat16)
    model.generation_config = GenerationConfig(
        bos_token_id=0,
        pad_token_id=0,
        eos_token_id=[2, 0],
        do_sample=True,
        temperature=0.7,
        top_p=0.8,
        top_k=20,
    )
    model.save_pretrained(folder, max_shard_size="100KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1
