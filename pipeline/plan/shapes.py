"""Shapes of models: from a scratch model's section, a local config.json, or `known.yaml`."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from pipeline.common.stage import InputError
from pipeline.config.root import Config

KNOWN = Path(__file__).with_name("known.yaml")


@dataclass(frozen=True)
class Shape:
    """A decoder of the Llama family (SwiGLU, RMSNorm, grouped-query attention)."""

    layers: int
    hidden: int
    mlp: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool
    qkv_bias: bool = False
    head_dim: int | None = None

    @property
    def kv_width(self) -> int:
        """Width of all keys (or all values) of one position in one layer."""
        return self.kv_heads * (self.head_dim or self.hidden // self.heads)

    @property
    def trunk_parameters(self) -> int:
        """Weights without the output head."""
        queries = self.heads * (self.head_dim or self.hidden // self.heads)
        attention = 2 * self.hidden * queries + 2 * self.hidden * self.kv_width
        biases = (queries + 2 * self.kv_width) * self.qkv_bias
        layer = attention + biases + 3 * self.hidden * self.mlp + 2 * self.hidden
        return self.vocabulary * self.hidden + self.layers * layer + self.hidden

    @property
    def parameters(self) -> int:
        """All weights, a tied embedding once."""
        return self.trunk_parameters + (0 if self.tied else self.vocabulary * self.hidden)


@cache
def known() -> dict[str, Any]:
    """The contents of `known.yaml`."""
    return yaml.safe_load(KNOWN.read_text())


def from_config_json(folder: Path) -> Shape:
    """The shape in a model folder's config.json."""
    values = json.loads((folder / "config.json").read_text())
    try:
        return Shape(
            layers=values["num_hidden_layers"],
            hidden=values["hidden_size"],
            mlp=values["intermediate_size"],
            heads=values["num_attention_heads"],
            kv_heads=values.get("num_key_value_heads") or values["num_attention_heads"],
            vocabulary=values["vocab_size"],
            tied=bool(values.get("tie_word_embeddings", False)),
            qkv_bias=bool(values.get("attention_bias", values.get("model_type") == "qwen2")),
            head_dim=values.get("head_dim"),
        )
    except KeyError as error:
        raise InputError(f"{folder}/config.json: no {error}; the forecast knows Llama-like models") from error


def shape_of(config: Config, name: str) -> Shape:
    """The shape of a model of the configuration, which is that of the model it descends from."""
    node = config.models[name]
    if node.parent:
        return shape_of(config, node.parent)
    if node.init == "scratch":
        return _scratch(config, name)
    if (Path(node.init) / "config.json").exists():
        return from_config_json(Path(node.init))
    entry = known()["shapes"].get(node.init.rpartition("/")[2])
    if entry is None:
        raise InputError(
            f"config key models.{name}.init: the shape of {node.init} is not known; download it and give its "
            f"folder, or add it to {KNOWN.name}"
        )
    return Shape(*entry)


def _scratch(config: Config, name: str) -> Shape:
    architecture = config.model_sections[name].architecture
    tokenizer = config.mixtures[config.models[name].mixture].tokenizer
    if tokenizer == "corpus":
        vocabulary = config.sections["tokens"].vocabulary
    elif (Path(tokenizer) / "config.json").exists():
        vocabulary = from_config_json(Path(tokenizer)).vocabulary
    elif entry := known()["shapes"].get(tokenizer.rpartition("/")[2]):
        vocabulary = Shape(*entry).vocabulary
    else:
        raise InputError(
            f"config key mixtures.{config.models[name].mixture}.tokenizer: the vocabulary of {tokenizer} is "
            f"not known; give a model folder, or add it to {KNOWN.name}"
        )
    return Shape(
        layers=architecture.num_hidden_layers,
        hidden=architecture.hidden_size,
        mlp=architecture.intermediate_size,
        heads=architecture.num_attention_heads,
        kv_heads=architecture.num_key_value_heads,
        vocabulary=vocabulary,
        tied=architecture.tie_word_embeddings,
    )
