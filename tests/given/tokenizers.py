"""Texts and tokenizers of published models."""

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from pipeline.training.tokenizer import PROBES

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
TEXTS = (*PROBES, "  two spaces, 求和 12 3/4\n\n\tx_{1}", " leading and trailing ")


def described(content: str) -> dict:
    """A special token as DeepSeek's `tokenizer_config.json` has it."""
    flags = {"lstrip": False, "normalized": True, "rstrip": False, "single_word": False}
    return {"__type": "AddedToken", "content": content, **flags}


def save_deepseek_tokenizer(folder: Path) -> Tokenizer:
    """A small byte-level BPE in the layout of deepseek-ai/deepseek-math-7b-*; it names a Llama class."""
    tokenizer = Tokenizer(models.BPE())
    split = [Regex(part) for part in (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥]+")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(part, "isolated") for part in split),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(["Hello world, the answer is 42. One and two are three."] * 3, trainer)
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=True) for name in (BOS, EOS)])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "add_bos_token": True,
        "add_eos_token": False,
        "bos_token": described(BOS),
        "clean_up_tokenization_spaces": False,
        "eos_token": described(EOS),
        "legacy": True,
        "model_max_length": 4096,
        "pad_token": described(EOS),
        "sp_model_kwargs": {},
        "unk_token": None,
        "tokenizer_class": "LlamaTokenizerFast",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return tokenizer
