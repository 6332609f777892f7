"""Model folders and hub ids: read whole, or refused in one line.

transformers gives a weight that a folder lacks random numbers, and vLLM keeps what lay in memory. So every
model is compared with its files, by name and shape: when training loads it, and on the meta device, which
reads headers alone, before a sampler opens it.
"""

import errno
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig

from pipeline.core.errors import InputError, Passing

POINTER = b"version https://git-lfs"
BUFFERS = ("rotary_emb.inv_freq", "attn.bias", "attn.masked_bias")  # constants that old folders hold


def from_pretrained(kind: Any, source: str | Path, what: str = "model", **options: Any) -> Any:
    """Load transformers' class `kind` from a folder or hub id. Raises InputError."""
    try:
        return kind.from_pretrained(str(source), **options)
    except Exception as error:  # a damaged folder raises any kind
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's
            raise
        raise unusable(source, what, error) from error


def unusable(source: str | Path, what: str, error: Exception) -> InputError:
    """Say in one line why a folder or hub id cannot be loaded; Passing where another try may load it."""
    reason = " ".join(str(error).split("\n\n")[0].split()) or type(error).__name__
    passes = "connect" in reason or getattr(error, "errno", None) in (errno.EIO, errno.ESTALE)
    if pointer := _find_pointer(source):
        reason = f"{pointer} is a pointer of Git LFS; run `git lfs pull` in the folder"
    elif "Repo id must" in reason:
        reason = "no such folder, and not a hub id"
    elif "couldn't connect" in reason:
        reason = f"the hub cannot be reached; run `hf download {source}` where it can, or name a folder"
    elif type(error).__name__ == "SafetensorError":
        reason = f"a file of weights is incomplete ({reason}); download it again"
    kind = Passing if passes else InputError  # the hub, or a disk that is shared
    return kind(f"{source}: no usable {what}: {reason}")


def _find_pointer(source: str | Path) -> str | None:
    """Name a file that Git LFS has not fetched, if there is one."""
    files = [path for path in Path(source).glob("*") if path.is_file() and path.stat().st_size < 1024]
    return next((path.name for path in sorted(files) if path.read_bytes().startswith(POINTER)), None)


def load_whole(kind: Any, source: str | Path, **options: Any) -> Any:
    """Load a model whose folder holds each of its weights and no others. Raises InputError.

    A `kind` without an output layer ignores the weights of one.
    """
    config = model_config(source)
    if quantised := getattr(config, "quantization_config", None):
        facts = quantised if isinstance(quantised, dict) else vars(quantised)
        method = getattr(facts.get("quant_method"), "value", facts.get("quant_method"))
        raise InputError(f"{source}: its weights are quantised ({method}); name the unquantised model")
    options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
    model, facts = from_pretrained(kind, source, **options)
    for name, here, wanted in sorted(facts["mismatched_keys"]):
        raise InputError(f"{source}: {name} has shape {list(here)}, config.json asks for {list(wanted)}")
    if missing := sorted(facts["missing_keys"]):
        raise InputError(f"{source}: lacks {_names(missing)}; download the model again")
    others = sorted(name for name in facts["unexpected_keys"] if not name.endswith(BUFFERS))
    if others and model.get_output_embeddings() is not None:
        raise InputError(f"{source}: holds {_names(others)}, which a {config.model_type} model does not have")
    return model


def _names(keys: Iterable[str]) -> str:
    first, *others = keys
    return f"{first} and {len(others)} more weights" if others else first


def check_whole(source: str | Path) -> None:
    """Raise InputError unless the folder holds all weights of the class that its configuration names."""
    named = (model_config(source).architectures or [""])[0]
    load_whole(getattr(transformers, named, transformers.AutoModelForCausalLM), source, device_map="meta")


def model_config(source: str | Path) -> Any:
    """Read the configuration of the model in a folder or hub id."""
    return from_pretrained(AutoConfig, source)


def context_length(source: str | Path) -> int:
    """Return the longest sequence that the model at `source` supports; tokens."""
    config = model_config(source).get_text_config()
    for name in ("max_position_embeddings", "max_seq_len", "seq_length"):
        if length := getattr(config, name, None):
            return int(length)
    raise InputError(f"{source}: config.json names no longest sequence (max_position_embeddings); add it")
