"""Ask a model: what is known of it before its engine starts, the tokens of a question, samples that fit."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from pipeline.core.errors import InputError
from pipeline.training.chat import encode

DATE = date(2024, 7, 26)  # "today" in chat templates: the date that Llama 3.1's has without a clock
CPU_CACHE_BYTES = 512 << 20  # of keys and values


@dataclass(frozen=True)
class Model:
    """What is known of a model before its engine starts; `context` in tokens."""

    path: str
    tokenizer: Any
    context: int
    dtype: str


def open_model(path: str) -> Model:
    """Read configuration and tokenizer of a model folder or hub id."""
    from pipeline.training.folder import context_length, model_config
    from pipeline.training.tokenizer import load_tokenizer

    config = model_config(path)
    dtype = getattr(config, "dtype", None) or getattr(config.get_text_config(), "dtype", None) or "float32"
    return Model(path, load_tokenizer(path), context_length(path), str(dtype).removeprefix("torch."))


def fitting_context(model: Model) -> int:
    """Return the longest sequence of the model whose keys and values fit into a CPU sampler's cache."""
    from pipeline.training.folder import model_config

    config = model_config(model.path).get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    numbers = 2 * config.num_hidden_layers * heads * width
    return min(model.context, CPU_CACHE_BYTES // (numbers * (4 if model.dtype == "float32" else 2)))


def message_tokens(tokenizer: Any, content: str, model: str) -> list[int]:
    """Tokens of a user's message in the model's chat template, up to where the answer begins. A special
    token's name inside the message is ordinary text, as in fine-tuning. A template that asks the clock gets a
    fixed date: prompts may not change from day to day. Raises InputError without a template that works.
    """
    if not tokenizer.chat_template:
        raise InputError(
            f"{model}: its tokenizer has no chat template; ask it few-shot (evaluate.modes), or add one"
        )
    messages = [{"role": "user", "content": content}]
    options = {"add_generation_prompt": True, "tokenize": False, "strftime_now": DATE.strftime}
    try:
        text = tokenizer.apply_chat_template(messages, **options)
    except Exception as error:  # a template is a program
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{model}: its chat template fails ({reason}); mend it") from error
    if content.strip() not in text:
        raise InputError(f"{model}: its chat template leaves the question out; mend it")
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
