"""Model folders that are damaged, incomplete or of another kind: one line, for training and for a sampler."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from given.families import small_model
from safetensors.torch import load_file, save_file
from tiny_model import save_tiny_model
from transformers import AutoModel, AutoModelForCausalLM

from pipeline.core.errors import InputError
from pipeline.training.asking import fitting_context, open_model
from pipeline.training.folder import check_whole, context_length
from pipeline.training.model import load_model

WEIGHTS, CONFIG = "model.safetensors", "config.json"
Weights = dict[str, torch.Tensor]
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"


def without(word: str) -> Callable[[Weights], Weights]:
    return lambda weights: {name: value for name, value in weights.items() if word not in name}


CHANGES: dict[str, Callable[[Weights], Weights]] = {
    "lacks lm_head.weight and 20 more weights": lambda w: {f"module.{name}": v for name, v in w.items()},
    "lacks model.layers.1.mlp.down_proj.weight and 2 more weights": without("layers.1.mlp"),
    "lacks lm_head.weight;": without("lm_head"),
    "holds model.layers.2.mlp.up_proj.weight, which a llama": lambda w: (
        w | {"model.layers.2.mlp.up_proj.weight": torch.ones(1)}
    ),
    r"model.norm.weight has shape \[3\], config.json asks for \[64\]": lambda w: (
        w | {"model.norm.weight": torch.ones(3)}
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path, seed=0, tied=False)


def refused(folder: Path, words: str) -> None:
    for opened in (load_model, check_whole):
        with pytest.raises(InputError, match=f"^{folder}: .*{words}") as error:
            opened(folder)
        assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("words", CHANGES)
def test_a_folder_with_other_weights_than_its_models_is_refused_by_their_names(
    folder: Path, words: str
) -> None:
    save_file(CHANGES[words](load_file(folder / WEIGHTS)), folder / WEIGHTS, {"format": "pt"})
    refused(folder, words)


@pytest.mark.parametrize(
    ("words", "file", "damage"),
    [
        ("model.safetensors is a pointer of Git LFS", WEIGHTS, lambda path: path.write_text(POINTER)),
        ("config.json is a pointer of Git LFS", CONFIG, lambda path: path.write_text(POINTER)),
        ("is incomplete .*download it again", WEIGHTS, lambda path: os.truncate(path, 9000)),
        ("is incomplete .*download it again", WEIGHTS, lambda path: path.write_bytes(b"")),
        ("no file named model.safetensors", WEIGHTS, Path.unlink),
        ("not a valid JSON", CONFIG, lambda path: path.write_text("{")),
    ],
)
def test_a_damaged_folder_is_one_line(
    folder: Path, words: str, file: str, damage: Callable[[Path], None]
) -> None:
    damage(folder / file)
    refused(folder, words)


def configure(folder: Path, **keys: object) -> None:
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | keys))


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes", "fp8", "compressed-tensors"])
def test_quantised_weights_are_refused_with_their_method(folder: Path, method: str) -> None:
    configure(folder, quantization_config={"quant_method": method, "bits": 4, "load_in_4bit": True})
    refused(folder, f"its weights are quantised .{method}.; name the unquantised model")


def test_a_trunk_ignores_an_output_layer_and_old_buffers_do_no_harm(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(16)
    save_file(weights, folder / WEIGHTS, {"format": "pt"})
    assert load_model(folder, kind=AutoModel).config.model_type == "llama"
    check_whole(folder)


@pytest.mark.parametrize("family", ["qwen3_5", "gemma3"])
def test_a_folder_with_a_configuration_of_texts_is_read_by_that(tmp_path: Path, family: str) -> None:
    save_tiny_model(tmp_path, seed=0)
    small_model(family).save_pretrained(tmp_path)
    assert context_length(tmp_path) == open_model(str(tmp_path)).context == 128
    check_whole(tmp_path)
    assert load_model(tmp_path, kind=AutoModelForCausalLM).config.get_text_config().vocab_size == 128


def test_a_long_context_is_cut_to_a_cpus_cache(folder: Path) -> None:
    configure(folder, max_position_embeddings=10**7)
    numbers = 2 * 2 * 2 * 32  # keys and values of two layers with two heads
    assert fitting_context(open_model(str(folder))) == (512 << 20) // (4 * numbers)
