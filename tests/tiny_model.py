"""A random Llama model of some 70,000 parameters with a character tokenizer: what model tests start from."""

import json
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
Documents = Sequence[Sequence[int]]
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ 'User: ' + message['content'] + '\n\n' }}{% else %}"
    "{{ 'Assistant: ' + message['content'] + eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)


def tiny_llama(vocabulary: int, **keys: Any) -> Any:
    """The configuration of a Llama model of two narrow layers; `keys` are added."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=512,
        **keys,
    )


def save_tiny_model(
    folder: Path, *, seed: int, tied: bool = True, spread: float = 0.2, words: Sequence[str] = ()
) -> Path:
    """Write the model and its tokenizer to `folder`; `spread` is the weights' standard deviation, `words` are
    tokens of their own.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GenerationConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    characters = [character for character in string.printable if character not in "\t\r\x0b\x0c"]
    characters += "一加二等于三。"  # a part of what `load_tokenizer` tries
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *characters])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    fast.add_tokens(list(words))
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)
    torch.manual_seed(seed)
    keys = {"tie_word_embeddings": tied, "initializer_range": spread}
    keys |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    model = LlamaForCausalLM(tiny_llama(len(fast), **keys)).float()
    model.generation_config = GenerationConfig(pad_token_id=0, bos_token_id=1, eos_token_id=2)
    model.save_pretrained(folder)
    return folder


def save_mixture(folder: Path, sources: dict[str, tuple[float, list[Documents]]], dtype: str = "<u2") -> None:
    """Token files as stage `tokens` writes them, of sources given by their share and parts."""
    from pipeline.tokens.files import part_path, write_tokens

    facts = {}
    for name, (share, parts) in sources.items():
        part_path(folder, name, 0).parent.mkdir(parents=True)
        sizes = [
            write_tokens(part_path(folder, name, number), [documents], dtype)
            for number, documents in enumerate(parts)
        ]
        listed = [{"documents": documents, "tokens": tokens} for documents, tokens in sizes]
        facts[name] = {"share": share, "parts": listed}
    (folder / "tokens.json").write_text(json.dumps({"dtype": dtype, "sources": facts}))


def save_tiny_tokens(folder: Path, model: Path) -> None:
    """Token files of two sources, `web` and `code`, three to one, as stage `tokens` writes them."""
    from pipeline.training.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(model)
    tokenizer.save_pretrained(folder / "tokenizer")
    sources = {}
    for name, share in (("web", 3), ("code", 1)):
        texts = [f"{name}: {n} + {n + 1} = {2 * n + 1}. " * (1 + n % 3) for n in range(80)]
        documents = tokenizer(texts)["input_ids"]
        sources[name] = share, [documents[:30], documents[30:31], documents[31:]]
    save_mixture(folder, sources)


def log_probs(model: torch.nn.Module, prompt: list[int], output: list[int]) -> torch.Tensor:
    """log p(output token | everything before it), shape (len(output),), by one plain forward pass."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *output]]), use_cache=False).logits[0, len(prompt) - 1 : -1]
    return logits.float().log_softmax(-1)[torch.arange(len(output)), torch.tensor(output)]
