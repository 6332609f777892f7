"""The 7B model on the meta device, with the attention and the compilation of a GPU: nothing is computed."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest
import torch
from given.activations import kept_bytes
from programs import ENVIRONMENT, ROOT
from torch._dynamo.utils import counters
from transformers import AutoConfig, AutoModelForCausalLM, masking_utils

from pipeline.training import attention
from pipeline.training.attention import shared_arguments
from pipeline.training.engine import EngineSettings, deepspeed_config, prepare
from pipeline.training.model import TokenLogprobs
from workflow.forecast import costs
from workflow.forecast.shapes import Shape, shape_named

SEVEN = shape_named("deepseek-math-7b-base")
TOKENS = 4096


def keys_of(shape: Shape) -> dict[str, int | bool]:
    """The shape as keys of a transformers configuration."""
    return {
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.mlp,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "vocab_size": shape.vocabulary,
        "tie_word_embeddings": shape.tied,
    }


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """GPU branches are taken; the list grows by each graph that is compiled.

    The backend cuts forward and backward apart as inductor does, and runs them uncompiled.
    """
    from torch._dynamo.backends.registry import lookup_backend

    graphs: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable:
        graphs.append(len(graph.graph.nodes))
        return lookup_backend("aot_eager_decomp_partition")(graph, inputs)

    monkeypatch.setattr(attention, "has_flash_kernel", lambda value: True)
    monkeypatch.setattr(masking_utils, "find_packed_sequence_indices", lambda *_: None)  # reads values
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    torch._dynamo.reset()
    counters.clear()
    with torch._dynamo.config.patch(disable=False):
        yield graphs
    torch._dynamo.reset()


def model_on_meta(
    shape: Shape, launch: dict, monkeypatch: pytest.MonkeyPatch, family: str = "llama"
) -> torch.nn.Module:
    """The model as training prepares it on a GPU."""
    with torch.device("meta"):
        config = AutoConfig.for_model(family, **keys_of(shape), max_position_embeddings=TOKENS)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    with monkeypatch.context() as gpu:
        gpu.setattr(torch.cuda, "is_available", lambda: True)
        prepare(model, launch)
    TokenLogprobs(model)  # sets the attention
    return model


def forward(model: torch.nn.Module, documents: int) -> torch.Tensor:
    positions_BT = torch.arange(TOKENS, device="meta")[None]
    ends = torch.zeros(documents + 1, dtype=torch.int32, device="meta")
    apart = {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": TOKENS, "max_length_k": TOKENS}
    return model.base_model(
        positions_BT, position_ids=positions_BT, use_cache=False, **apart
    ).last_hidden_state


def saved_bytes(model: torch.nn.Module) -> int:
    return kept_bytes(model, lambda: forward(model, 1))


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("compile_", [False, True])
def test_activations_of_the_7b_are_those_of_the_plan(
    compiled: list[int], monkeypatch: pytest.MonkeyPatch, compile_: bool, recompute: bool
) -> None:
    launch = {"compile": compile_, "activation_checkpointing": recompute, "zero_stage": 1}
    model = model_on_meta(SEVEN, launch, monkeypatch)
    assert sum(parameter.numel() for parameter in model.parameters()) == SEVEN.parameters
    found = saved_bytes(model)
    if recompute:  # the backward pass also holds the layer that it has just computed again
        launch["activation_checkpointing"] = False
        one, two = (
            saved_bytes(model_on_meta(replace(SEVEN, layers=layers), launch, monkeypatch))
            for layers in (1, 2)
        )
        found += two - one
    assert costs.activations(SEVEN, TOKENS, "bf16", recompute, compile_) == pytest.approx(found, rel=0.1)
    assert bool(compiled) == compile_


def test_all_layers_and_any_number_of_documents_share_two_graphs_without_a_break(
    compiled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_on_meta(replace(SEVEN, layers=10), {"zero_stage": 1}, monkeypatch)
    for documents in (1, 2, 33):
        forward(model, documents).sum().backward()
    assert len(compiled) == 2 and not counters["graph_break"]


def test_rows_of_any_outputs_share_two_graphs_with_and_without_gradients(
    compiled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of RL at the shape of Qwen2.5-0.5B: other numbers of outputs and of keys compile nothing more."""
    shape = replace(shape_named("Qwen2.5-0.5B"), layers=4)
    model = model_on_meta(shape, {"zero_stage": 1}, monkeypatch, "qwen2")
    tokens_BT = torch.zeros(4, 1024, dtype=torch.long, device="meta")
    for outputs, keys in ((3, 5000), (8, 7321), (21, 4100)):
        lengths_S, places_K = (torch.zeros(size, dtype=torch.long, device="meta") for size in (outputs, keys))
        documents = shared_arguments(lengths_S, lengths_S, places_K, 1024)
        arguments = {"position_ids": tokens_BT, "use_cache": False, **documents}
        model.base_model(tokens_BT, **arguments).last_hidden_state.sum().backward()
        with torch.no_grad():
            model.base_model(tokens_BT, **arguments)
    assert len(compiled) == 2 and not counters["graph_break"]


def test_names_and_shapes_of_the_policys_weights_are_those_that_the_sampler_takes() -> None:
    names = ("deepseek-math-7b-base", "Qwen2.5-7B", "Qwen2.5-0.5B")
    models = [("qwen2" if "Qwen" in name else "llama", keys_of(shape_named(name))) for name in names]
    done = subprocess.run(
        [sys.executable, "tests/sampler_weights.py", json.dumps(models)],
        env=ENVIRONMENT,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    weights = [9 * 30 + 3, 12 * 28 + 3, 12 * 24 + 3]  # Qwen2 has three biases; a tied head comes twice
    assert [row["names"] for row in found] == weights
    assert all(row["missed"] == [] and row["error"] for row in found)


def test_deepspeeds_configuration_is_the_reviewed_one() -> None:
    """Gradient type, buckets and offload of the shipped settings; review a change of the file."""
    reviewed = json.loads((ROOT / "tests/data/deepspeed.json").read_text())
    found = {
        f"ZeRO {zero}{', offload' if offload else ''}": deepspeed_config(
            EngineSettings(1e-6, precision="bf16", zero_stage=zero, offload_optimizer=offload),
            SEVEN.parameters,
        )
        for zero, offload in ((1, False), (2, False), (3, False), (3, True))
    }
    assert found == reviewed
