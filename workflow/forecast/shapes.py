"""Shapes of models: of a section `architecture`, a folder's or the hub cache's config.json, `known.yaml`."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import try_to_load_from_cache

from pipeline.config.root import Config
from pipeline.core.stage import InputError

KNOWN = Path(__file__).with_name("known.yaml")
FAMILY = ("llama", "mistral", "qwen2", "qwen3")  # what the formulas count; others are built without memory
COLUMNS = ("model_type", "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
COLUMNS += ("num_key_value_heads", "head_dim", "vocab_size", "tie_word_embeddings")


@dataclass(frozen=True)
class Shape:
    """A dense decoder of the Llama family (SwiGLU, RMSNorm, grouped-query attention), or one that is like it
    with `others` weights more in its trunk, such as biases. `qk_norm`: it norms queries and keys.
    """

    layers: int
    hidden: int
    mlp: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    qk_norm: bool = False
    others: int = 0

    @property
    def attention_width(self) -> int:
        """Width of all queries and keys of one position in one layer."""
        return (self.heads + self.kv_heads) * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all keys (or all values) of one position in one layer."""
        return self.kv_heads * self.head_dim

    def adapter(self, rank: int, targets: Iterable[str]) -> int:
        """Weights of an adapter of that rank. Of layers with other names than Llama's no more than these."""
        queries, keys = self.heads * self.head_dim, self.kv_width
        widths = {"q_proj": queries, "k_proj": keys, "v_proj": keys, "o_proj": queries}
        return self.layers * rank * sum(self.hidden + widths.get(name, self.mlp) for name in set(targets))

    @property
    def trunk_parameters(self) -> int:
        """Weights without the output head."""
        matrices = 2 * self.hidden * self.attention_width + 3 * self.hidden * self.mlp
        layer = matrices + 2 * self.hidden + 2 * self.head_dim * self.qk_norm
        return self.vocabulary * self.hidden + self.layers * layer + self.hidden + self.others

    @property
    def parameters(self) -> int:
        """All weights, a tied embedding once."""
        return self.trunk_parameters + (0 if self.tied else self.vocabulary * self.hidden)


@cache
def known() -> dict[str, Any]:
    """Return the contents of `known.yaml`."""
    return yaml.safe_load(KNOWN.read_text())


def shape_from(values: dict[str, Any]) -> Shape:
    """Get the shape that the keys of a config.json of the family describe. KeyError names a missing key."""
    heads, hidden, kind = values["num_attention_heads"], values["hidden_size"], values.get("model_type")
    shape = Shape(
        layers=values["num_hidden_layers"],
        hidden=hidden,
        mlp=values["intermediate_size"],
        heads=heads,
        kv_heads=values.get("num_key_value_heads") or heads,
        head_dim=values.get("head_dim") or hidden // heads,
        vocabulary=values["vocab_size"],
        tied=bool(values.get("tie_word_embeddings", False)),
        qk_norm=kind == "qwen3",
    )
    extra = 0
    if values.get("attention_bias", kind == "qwen2"):
        extra += heads * shape.head_dim + 2 * shape.kv_width + (hidden if kind != "qwen2" else 0)
    if values.get("mlp_bias"):
        extra += 2 * shape.mlp + hidden
    return replace(shape, others=shape.layers * extra)


def from_config_json(path: Path) -> Shape:
    """Return the shape in a config.json. Raises InputError for a mixture of experts and for what cannot be
    read.
    """
    try:
        values = json.loads(path.read_text())
        if values.get("model_type") in FAMILY:
            return shape_from(values)
        return _built(path)
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise InputError(f"{path}: not the config.json of a dense language model ({error})") from error


def _built(path: Path) -> Shape:
    """Return the shape of a model that transformers builds from its configuration, without memory for
    weights.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    values = AutoConfig.from_pretrained(path).get_text_config()
    if any(getattr(values, name, None) for name in ("num_experts", "num_local_experts", "n_routed_experts")):
        raise InputError(f"{path}: a mixture of experts; the forecast knows dense models")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(values)
    found = {name: getattr(values, name, None) for name in COLUMNS}
    shape = shape_from(found | {"intermediate_size": found["intermediate_size"] or 4 * values.hidden_size})
    counted = sum(weight.numel() for weight in model.base_model.parameters())
    return replace(shape, others=counted - shape.trunk_parameters)


def shape_named(name: str) -> Shape | None:
    """Return the shape of a model folder or a hub id, if its config.json is here or it is known."""
    path = Path(name) / "config.json"
    if not path.exists():
        for known_name, row in known()["shapes"].items():
            if f"{name.rpartition('/')[2]}-".startswith(f"{known_name}-"):
                return shape_from(dict(zip(COLUMNS, row, strict=True)))
        cached = try_to_load_from_cache(name, "config.json") if name.count("/") == 1 else None
        if not isinstance(cached, str):
            return None
        path = Path(cached)
    return from_config_json(path)


def shape_of(config: Config, name: str) -> Shape:
    """Return the shape of a model of the configuration, which is that of the model it descends from."""
    node = config.models[name]
    if node.parent:
        return shape_of(config, node.parent)
    if node.init != "scratch":
        return shape_at(node.init, f"models.{name}.init")
    architecture = config.model_sections[name].architecture.model_dump()
    tokenizer = config.mixtures[node.mixture].tokenizer
    if tokenizer == "corpus":
        vocabulary = config.sections["tokens"].vocabulary
    else:
        vocabulary = shape_at(tokenizer, f"mixtures.{node.mixture}.tokenizer").vocabulary
    return shape_from(architecture | {"vocab_size": vocabulary})


def shape_at(name: str, key: str) -> Shape:
    """Return the shape of a model that a configuration key names. Raises InputError."""
    shape = shape_named(name)
    if shape is None:
        remedy = f"run `hf download {name} config.json` where the hub answers, or name a folder that has it"
        remedy = remedy if name.count("/") == 1 else "its config.json is not there yet"
        raise InputError(f"config key {key}: the shape of {name} is not known: {remedy}")
    return shape
