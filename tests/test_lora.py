"""Adapters: what is trained and kept; the frozen model is the reference, the sampler has merged weights."""

from pathlib import Path

import pytest
import torch
from given.lines import read_lines
from given.updates import MIXED, groups, learner_of, same, section, train, weights
from programs import finished
from rl_program import assert_same_course, assert_same_weights, save_policy, start
from tiny_model import save_tiny_model

from pipeline.config.lora import Lora
from pipeline.core.stage import InputError, Stage
from pipeline.rl.packed_outputs import output_logprobs
from pipeline.rl.train import make_micro_batches
from pipeline.training.flops import ModelFlops
from pipeline.training.lora import adapt, is_adapter, merged
from pipeline.training.model import causal_model, load_model, named_weights, parameter_count, sampler_weights

LORA = {"rank": 8, "alpha": 16.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("policy"), seed=0, spread=0.1)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_reference_is_the_parent_after_training_too_and_is_no_second_model(
    folder: Path, precision: str
) -> None:
    chosen = section(lora=LORA, kl_coefficient=0.04, learning_rate=5e-3, updates=3, precision=precision)
    batch = groups(folder, MIXED, precision=precision)
    full = learner_of(folder, section(kl_coefficient=0.04, precision=precision))
    learner = learner_of(folder, chosen)
    assert train(learner, batch, chosen)["grad_norm"] > 0
    packed = make_micro_batches(batch, chosen, 4)[0].packed
    policy, reference, parent = (
        output_logprobs(module, packed) for module in (learner.engine, learner.reference, full.reference)
    )
    assert torch.equal(reference, parent) and not reference.requires_grad
    assert policy.requires_grad and (policy - parent).abs().max() > 0.01
    before = dict(load_model(folder, precision).named_parameters())
    trained = causal_model(learner.engine).named_parameters()
    frozen = {name.replace(".base_layer", ""): value for name, value in trained if not is_adapter(name)}
    assert frozen.keys() == before.keys()
    assert all(torch.equal(frozen[name], before[name]) for name in before)


def test_the_gradient_with_a_reference_pass_in_between_is_that_without(folder: Path) -> None:
    """Adapters are switched off and on between the forward and the backward pass of the policy."""
    norms = []
    for beta in (0.0, 1e-12):
        chosen = section(lora=LORA, kl_coefficient=beta)
        learner = learner_of(folder, chosen)
        assert (learner.reference is None) == (beta == 0)
        norms.append(train(learner, groups(folder, MIXED), chosen)["grad_norm"])
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


def test_merged_weights_are_summed_in_fp32_and_rounded_once(folder: Path) -> None:
    model = adapt(load_model(folder, "bf16"), Lora(**LORA), seed=0, stage="rl")
    layer = model.model.layers[0].mlp.up_proj
    low, high = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    torch.nn.init.normal_(high)
    weight = layer.base_layer.weight
    exact = weight.double() + 2 * high.double() @ low.double()
    assert merged(weight, layer).dtype == torch.bfloat16
    torch.testing.assert_close(merged(weight, layer).double(), exact, rtol=2**-8, atol=0)


def test_weights_for_the_sampler_have_the_parents_names_tied_ones_twice(folder: Path) -> None:
    learner = learner_of(folder, section(lora=LORA))
    names = [name for name, _ in load_model(folder).named_parameters()]
    assert [name for name, _ in named_weights(learner.engine)] == names
    assert {name for name, _ in sampler_weights(learner.engine)} == {*names, "lm_head.weight"}


def test_adapters_are_no_weights_of_the_model_and_training_them_takes_two_thirds(folder: Path) -> None:
    model = load_model(folder)
    count, whole = parameter_count(model), ModelFlops.of(model)
    adapt(model, Lora(**LORA), seed=0, stage="sft")
    flops = ModelFlops.of(model)
    assert parameter_count(model) == count
    assert (3 * flops.body, 3 * flops.head) == (2 * whole.body, 2 * whole.head)
    assert flops.body / flops.passes == whole.body / whole.passes and flops.attention == whole.attention


@pytest.mark.parametrize("target", ["q_prj", "embed_tokens", "lm_head", "self_attn"])
def test_a_target_that_is_no_linear_layer_is_named_with_its_key(folder: Path, target: str) -> None:
    settings = Lora(targets=["q_proj", target])
    words = (
        f"rl.lora.targets: '{target}' is no linear layer of this model; it has down_proj, gate_proj, k_proj"
    )
    with pytest.raises(InputError, match=words):
        adapt(load_model(folder), settings, seed=0, stage="rl")


def test_a_learner_with_adapters_resumes_exactly_from_them_and_their_optimiser(
    folder: Path, tmp_path: Path
) -> None:
    chosen = section(lora=LORA, learning_rate=1e-4)  # as the rollouts are of the parent
    stage = Stage("rl", "x", chosen, "a fingerprint", {}, tmp_path, tmp_path, tmp_path, {})
    batch, whole = groups(folder, MIXED), learner_of(folder, chosen)
    train(whole, batch, chosen)
    keeper = whole.saver(stage)
    keeper.save(1, {"log": [1]})
    keeper.finish()
    resumed = learner_of(folder, chosen)
    assert resumed.resume(stage) == {"log": [1]}
    for learner in (whole, resumed):
        train(learner, batch, chosen)
    assert same(weights(whole), weights(resumed)) and not same(
        weights(whole), weights(learner_of(folder, chosen))
    )


def test_grpo_with_adapters_changes_what_is_sampled_on_any_number_of_ranks(tmp_path: Path) -> None:
    policy, one, two = (tmp_path / name for name in ("policy", "one", "two"))
    save_policy(policy)
    changes = {"lora": LORA, "learning_rate": 3e-3, "evaluation": None, "steps": 3}
    started = [start(policy, one, changes), start(policy, two, changes, {"ranks": 2, "zero_stage": 3})]
    for process in started:
        finished(process)
    log = read_lines(one / "data/metrics.jsonl")
    # The sampler is checked against the trainer at each step: it has the merged weights, which move.
    assert [row["weight_version"] for row in log] == [0, 1, 2]
    assert all(row["logprob_gap_max"] <= 5e-5 and row["grad_norm"] > 0 for row in log)
    assert log[0]["kl"] == pytest.approx(0, abs=1e-9) and log[-1]["kl"] > 1e-6
    assert_same_weights(one, two, within=1e-5)
    assert_same_course(one, two)
