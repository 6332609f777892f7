"""Ask a model: what is known of it before its engine starts, the tokens of a question, samples that fit."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.protocol.errors import InputError
from pipeline.training.chat import encode


@dataclass(frozen=True)
class Model:
    """What is known of a model before its engine starts; `context` in tokens."""

    path: str
    tokenizer: Any
    context: int
    dtype: str


def open_model(path: str) -> Model:
    """Read configuration and tokenizer of a model folder or hub id."""
    from transformers import AutoConfig

    from pipeline.training.tokenizer import from_pretrained, load_tokenizer

    config = from_pretrained(AutoConfig, path)
    dtype = str(getattr(config, "dtype", None) or "float32").removeprefix("torch.")
    return Model(path, load_tokenizer(path), config.max_position_embeddings, dtype)


def message_tokens(tokenizer: Any, content: str, model: str) -> list[int]:
    """Tokens of a user's message in the model's chat template, up to where the answer begins. A special
    token's name inside the message is ordinary text, as in fine-tuning. Raises InputError without a template.
    """
    if not tokenizer.chat_template:
        raise InputError(
            f"{model}: its tokenizer has no chat template; ask it few-shot (evaluate.modes), or add one"
        )
    messages = [{"role": "user", "content": content}]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    names = re.compile("|".join(map(re.escape, tokenizer.all_special_tokens)) or "(?!)")
    if not names.search(content):
        return tokenizer(text, add_special_tokens=False)["input_ids"]
    start = text.index(content.strip())
    stop = start + len(content.strip())
    # Between the template's own special tokens around it, the question and its neighbours are ordinary text.
    start = max((match.end() for match in names.finditer(text, 0, start)), default=0)
    stop = min((match.start() for match in names.finditer(text, stop)), default=len(text))
    around = [tokenizer(part, add_special_tokens=False)["input_ids"] for part in (text[:start], text[stop:])]
    return [*around[0], *encode(tokenizer, [text[start:stop]])[0], *around[1]]


def draw_in_context(
    engine: Any,
    prompts: Sequence[list[int]],
    rooms: Sequence[int],
    seeds: Sequence[int] | None,
    counters: Counter[str],
    **options: Any,
) -> list[list[Any]]:
    """Sample outputs of up to so many tokens to each prompt; none where there is no room.

    `options` are the engine's. What is sampled is added to `counters`.
    """
    here = [index for index, room in enumerate(rooms) if room > 0]
    own = None if seeds is None else [seeds[index] for index in here]
    lengths = [rooms[index] for index in here]
    drawn = engine.generate([prompts[index] for index in here], max_tokens=lengths, seeds=own, **options)
    outputs: list[list[Any]] = [[] for _ in prompts]
    for index, samples in zip(here, drawn, strict=True):
        outputs[index] = samples
        counters["vllm.requests"] += len(samples)
        counters["vllm.tokens"] += sum(len(sample.token_ids) for sample in samples)
    return outputs
