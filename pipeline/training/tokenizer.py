"""Tokenizers of model folders and of the hub, loaded as their files are, without torch behind them."""

import errno
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import cached_file

from pipeline.protocol.errors import InputError, Passing

# English, Chinese, LaTeX, digits, newlines, code: what every tokenizer must give back after encoding.
PROBES = (
    "Hello world, the answer is here.",
    "一加二等于三。",
    r"\frac{a}{b} + \sqrt{x^2} = $y_{10}$",
    "3.14159 1000000 007",
    "first line\n\nsecond line\nthird",
    "def f(x):\n    return x[0] * 2  # twice",
)
CLOCK, DATE = "strftime_now", "26 Jul 2024"  # what a chat template calls for today's date; that of Llama 3.1


def from_pretrained(kind: Any, source: str | Path, what: str = "model", **options: Any) -> Any:
    """Load transformers' class `kind` from a folder or hub id. Raises InputError."""
    try:
        return kind.from_pretrained(str(source), **options)
    except (OSError, ValueError) as error:
        raise unusable(source, what, error) from error


def unusable(source: str | Path, what: str, error: Exception) -> InputError:
    """Say in one line why a folder or hub id cannot be loaded; Passing where another try may load it."""
    reason = str(error).splitlines()[0]
    passes = "connect" in reason or getattr(error, "errno", None) in (errno.EIO, errno.ESTALE)
    if "Repo id must" in reason:
        reason = "no such folder, and not a hub id"
    elif "couldn't connect" in reason:
        reason = f"the hub cannot be reached; run `hf download {source}` where it can, or name a folder"
    kind = Passing if passes else InputError  # the hub, or a disk that is shared
    return kind(f"{source}: no usable {what}: {reason}")


def load_tokenizer(source: str | Path) -> Any:
    """Load the fast tokenizer of a model folder or hub id, its `tokenizer.json` as it is.

    AutoTokenizer replaces the pre-tokenizer of some files (DeepSeek's) by that of the class they name, which
    loses spaces. Raises InputError if the tokenizer lacks an EOS token, does not give back what it encodes,
    or writes today's date into prompts.
    """
    try:
        native = cached_file(str(source), "tokenizer.json", _raise_exceptions_for_missing_entries=False)
    except (OSError, ValueError) as error:
        raise unusable(source, "tokenizer", error) from error
    kind = AutoTokenizer if native is None else PreTrainedTokenizerFast
    tokenizer = from_pretrained(kind, source, "tokenizer")
    if tokenizer.eos_token_id is None:
        raise InputError(f"{source}: the tokenizer has no EOS token; training needs one to end documents")
    tokenizer.chat_template = _without_clock(tokenizer.chat_template, source)
    for text in PROBES:
        decoded = tokenizer.decode(probe_ids(tokenizer, text))
        if decoded != text:
            raise InputError(f"{source}: its tokenizer turns {text!r} into {decoded!r}")
    return tokenizer


def _without_clock(template: Any, source: str | Path) -> Any:
    """Give a chat template that asks the clock a fixed date: prompts may not change from day to day."""
    if not isinstance(template, str) or CLOCK not in template:
        return template
    if "date_string" not in template:  # the variable that templates take a given date from
        raise InputError(f"{source}: its chat template writes today's date ({CLOCK}); write a date into it")
    return f'{{%- set date_string = "{DATE}" %}}{template}'


def probe_ids(tokenizer: Any, text: str) -> list[int]:
    """Return token ids of `text`, without special tokens."""
    return tokenizer.encode(text, add_special_tokens=False)
