"""Shapes of models as the forecast knows them, beside real models."""

import itertools
from pathlib import Path

import pytest
import torch
from given.activations import kept_bytes
from given.cases import cases

from pipeline.core.stage import InputError
from workflow.forecast import costs
from workflow.forecast.shapes import shape_named

TABLES = cases("shapes")


@pytest.mark.parametrize(("name", "billions"), TABLES["weights"])
def test_known_shapes_have_the_published_number_of_weights(name: str, billions: float) -> None:
    assert shape_named(f"maker/{name}").parameters / 1e9 == pytest.approx(billions, rel=0.005)


def test_a_name_that_only_begins_like_a_known_one_is_not_known() -> None:
    assert shape_named("Qwen/Qwen3-4Bx") is None and shape_named("Qwen/Qwen3-VL-4B") is None


KINDS = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "mistral": {"head_dim": 24},
    "qwen2": {},
    "qwen3": {"head_dim": 32, "attention_bias": True},
    "gemma2": {"head_dim": 32},
    "olmo2": {},
    "phi3": {"pad_token_id": 0},
    "gpt_neox": {},
    "gpt2": {"n_inner": None},
}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_any_dense_models_weights_are_counted_from_its_config_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, tied: bool
) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    keys = {"hidden_size": 64, "intermediate_size": 176, "num_attention_heads": 4, "num_key_value_heads": 2}
    keys |= {"vocab_size": 50, "tie_word_embeddings": tied, "num_hidden_layers": 2, **KINDS[kind]}
    settings = AutoConfig.for_model(kind, **keys)
    # As `hf download maker/new config.json` leaves it.
    revision = tmp_path / "models--maker--new/snapshots/0"
    settings.save_pretrained(revision)
    (tmp_path / "models--maker--new/refs").mkdir()
    (tmp_path / "models--maker--new/refs/main").write_text("0")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    model = AutoModelForCausalLM.from_config(settings)
    for name in (str(revision), "maker/new"):
        shape = shape_named(name)
        assert shape.parameters == sum(weight.numel() for weight in model.parameters())
        assert shape.trunk_parameters == sum(weight.numel() for weight in model.base_model.parameters())
        assert (shape.layers, shape.hidden, shape.vocabulary) == (2, 64, 50)


def test_a_mixture_of_experts_and_a_damaged_config_are_refused_in_a_line(tmp_path: Path) -> None:
    from transformers import AutoConfig

    AutoConfig.for_model("qwen3_moe", num_hidden_layers=2).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="config.json: a mixture of experts"):
        shape_named(str(tmp_path))
    for text in ("{", "[]", '{"model_type": "llama"}', '{"model_type": "no such"}'):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(InputError, match="not the config.json of a dense language model") as caught:
            shape_named(str(tmp_path))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_weights_and_activations_are_those_of_a_real_model(tmp_path: Path, kind: str) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    keys = {"hidden_size": 64, "intermediate_size": 176, "num_attention_heads": 4, "num_key_value_heads": 2}
    keys |= {"vocab_size": 50, "tie_word_embeddings": True}
    tokens, dtypes = 128, {"bf16": torch.bfloat16, "fp32": torch.float32}
    for precision, checkpointing in itertools.product(dtypes, (False, True)):
        measured, expected = [], []
        for layers in (2, 6):  # what layers add; embedding and final norm are the same
            settings = AutoConfig.for_model(kind, **keys, num_hidden_layers=layers)
            settings.save_pretrained(tmp_path)
            shape = shape_named(str(tmp_path))
            model = AutoModelForCausalLM.from_config(settings, dtype=dtypes[precision])
            assert shape.parameters == sum(parameter.numel() for parameter in model.parameters())
            assert shape.trunk_parameters == sum(p.numel() for p in model.base_model.parameters())
            measured.append(saved_bytes(model, tokens, checkpointing))
            expected.append(costs.activations(shape, tokens, precision, checkpointing))
        grown = expected[1] - expected[0]
        assert measured[1] - measured[0] == pytest.approx(grown, rel=0.03), (precision, checkpointing)


def saved_bytes(model: torch.nn.Module, tokens: int, checkpointing: bool) -> int:
    """Bytes that autograd keeps of one row of tokens."""
    model.train()
    model.gradient_checkpointing_enable() if checkpointing else model.gradient_checkpointing_disable()
    row_BT = torch.arange(tokens)[None]
    inputs = {"input_ids": row_BT % 50, "position_ids": row_BT, "use_cache": False}
    return kept_bytes(model, lambda: model.base_model(**inputs))
