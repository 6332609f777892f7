"""Tokenizers of model folders and of the hub, loaded as their files are, without torch behind them."""

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import cached_file

from pipeline.core.errors import InputError
from pipeline.training.folder import from_pretrained, unusable

# English, Chinese, LaTeX, digits, newlines, code: what every tokenizer must give back after encoding.
PROBES = (
    "Hello world, the answer is here.",
    "一加二等于三。",
    r"\frac{a}{b} + \sqrt{x^2} = $y_{10}$",
    "3.14159 1000000 007",
    "first line\n\nsecond line\nthird",
    "def f(x):\n    return x[0] * 2  # twice",
)


def load_tokenizer(source: str | Path) -> Any:
    """Load the fast tokenizer of a model folder or hub id, its `tokenizer.json` as it is.

    AutoTokenizer replaces the pre-tokenizer of some files (DeepSeek's) by that of the class they name, which
    loses spaces. Raises InputError if the tokenizer lacks an EOS token or does not give back what it encodes.
    """
    try:
        native = cached_file(str(source), "tokenizer.json", _raise_exceptions_for_missing_entries=False)
    except (OSError, ValueError) as error:
        raise unusable(source, "tokenizer", error) from error
    kind = AutoTokenizer if native is None else PreTrainedTokenizerFast
    tokenizer = from_pretrained(kind, source, "tokenizer")
    if tokenizer.eos_token_id is None:
        raise InputError(f"{source}: the tokenizer has no EOS token; training needs one to end documents")
    for text in PROBES:
        decoded = tokenizer.decode(probe_ids(tokenizer, text))
        if decoded != text:
            raise InputError(f"{source}: its tokenizer turns {text!r} into {decoded!r}")
    return tokenizer


def probe_ids(tokenizer: Any, text: str) -> list[int]:
    """Return token ids of `text`, without special tokens."""
    return tokenizer.encode(text, add_special_tokens=False)


def vocabulary_size(tokenizer: Any) -> int:
    """Return one more than the largest token id, which may lie beyond the number of entries."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1
