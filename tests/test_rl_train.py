"""The train phase on a real engine: what every method does with good, flat and broken input."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from given.rollouts import group_of, rollout
from given.updates import MIXED, groups, learner_of, same, section, train, weights
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.config.rl import known_methods
from pipeline.config.root import Config
from pipeline.core.stage import InputError
from pipeline.rl.methods import grpo
from pipeline.rl.metrics import STALE, StaleSampler, check_judged
from pipeline.rl.train import make_micro_batches, train_on, without_cut
from tests.tiny_model import log_probs, save_tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("policy"), seed=0, spread=0.1)


class HostReads(TorchDispatchMode):
    """Counts what a GPU would be waited for: values that the host reads."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        name = function.overloadpacket.__name__
        masks = [tensor for tensor in (arguments[1] if name == "index" else ()) if tensor is not None]
        reads = name in ("_local_scalar_dense", "nonzero") or any(mask.dtype == torch.bool for mask in masks)
        self.count += reads
        return function(*arguments, **(options or {}))


@pytest.mark.parametrize("keys", [{}, {"kl_coefficient": 0.04}, {"method": "dpo"}])
def test_host_reads_of_an_update_do_not_grow_with_its_micro_batches(
    folder: Path, keys: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, counts, sizes = section(row_tokens=32, **keys), [], []
    for questions in (2, 8):
        learner = learner_of(folder, chosen, rows_at_once=1)
        batch = groups(folder, MIXED * (questions // 2))
        batches = make_micro_batches(batch, chosen, 1)
        monkeypatch.setattr("pipeline.rl.train.make_micro_batches", lambda *_, batches=batches: batches)
        with HostReads() as reads:
            train_on(learner, batch, chosen, 2e-4)
        counts.append(reads.count)
        sizes.append(len(batches))
        monkeypatch.undo()
    assert sizes[1] >= 3 * sizes[0] and counts[0] == counts[1]


@pytest.mark.parametrize("method", known_methods())
def test_every_method_makes_right_outputs_likelier_than_wrong_ones(folder: Path, method: str) -> None:
    chosen = section(method=method, updates=5)
    batch, learner = groups(folder, MIXED), learner_of(folder, chosen)
    before = weights(learner)
    metrics = train(learner, batch, chosen)
    assert not same(before, weights(learner))
    assert metrics["logprob_gap_max"] <= 5e-5
    model = learner.engine.module.model
    gain = {"right": [], "wrong": []}
    for group in batch:
        for output in group.outputs:
            change = log_probs(model, group.prompt, output.tokens) - torch.tensor(output.logprobs)
            gain[output.verdict].append(change.mean().item())
    assert sum(gain["right"]) > sum(gain["wrong"])
    if method == "ppo":
        assert metrics["value_loss"] < 0.4  # the critic starts at 0 where half of the outputs earn 1


def test_policy_and_critic_recompute_activations_where_the_launch_says_so(folder: Path) -> None:
    from pipeline.rl.learner import build_learner

    chosen, batch = section(method="ppo"), groups(folder, MIXED)
    norms = []
    for recompute in (False, True):
        learner = build_learner(chosen, {"activation_checkpointing": recompute}, str(folder))
        assert learner.engine.module.model.is_gradient_checkpointing == recompute
        assert learner.critic.module.trunk.is_gradient_checkpointing == recompute
        norms.append(train(learner, batch, chosen)["value_grad_norm"])
    assert norms[0] == pytest.approx(norms[1], rel=1e-6)


@pytest.mark.parametrize(
    ("method", "right"),
    [("grpo", False), ("grpo", True), ("dpo", False), ("dpo", True), ("online_rft", False)],
)
def test_outputs_that_teach_a_method_nothing_change_nothing(folder: Path, method: str, right: bool) -> None:
    chosen = section(method=method)
    learner = learner_of(folder, chosen)
    before = weights(learner)
    metrics = train(learner, groups(folder, [[right] * 4] * 2), chosen)
    assert metrics["loss"] is None and metrics["grad_norm"] is None
    assert same(before, weights(learner))


@pytest.mark.parametrize("supervision", ["outcome", "process"])
def test_an_output_without_tokens_is_in_the_mean_but_trains_nothing(folder: Path, supervision: str) -> None:
    chosen, batch = section(supervision=supervision), groups(folder, MIXED, lengths=(6, 0, 9, 1))
    outputs = grpo.METHOD.outputs(batch, chosen)
    assert sorted(len(output.tokens) for output in outputs) == [1, 1, 6, 6, 9, 9]
    assert train(learner_of(folder, chosen), batch, chosen)["grad_norm"] > 0


@pytest.mark.parametrize("broken", ["weights", "reward"])
def test_what_is_not_a_number_stops_the_run_before_the_update(folder: Path, broken: str) -> None:
    chosen = section()
    learner, batch = learner_of(folder, chosen), groups(folder, MIXED)
    if broken == "weights":
        with torch.no_grad():
            learner.engine.module.model.model.norm.weight[0] = float("nan")
    else:
        batch[0].outputs[0] = dataclasses.replace(batch[0].outputs[0], reward=float("nan"))
    before = [tensor.nan_to_num(123.0) for tensor in weights(learner)]
    with pytest.raises(InputError, match="gap is nan" if broken == "weights" else "loss is nan"):
        train(learner, batch, chosen)
    assert same(before, [tensor.nan_to_num(123.0) for tensor in weights(learner)])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_stale_sampler_weights_are_noticed_before_the_update(
    folder: Path, tmp_path: Path, precision: str
) -> None:
    """Rollouts of another model are refused; those of these weights pass, whatever the rounding."""
    chosen = section(precision=precision, loss_mean="token", row_tokens=16)
    learner = learner_of(folder, chosen, rows_at_once=1)
    before = weights(learner)
    stale = groups(save_tiny_model(tmp_path, seed=1, spread=0.1), MIXED, precision=precision)
    with pytest.raises(StaleSampler, match=r"rl step 1: .* so the sampler's weights are stale"):
        train(learner, stale, chosen)
    assert same(before, weights(learner))
    found = train(learner_of(folder, chosen), groups(folder, MIXED, precision=precision), chosen)
    assert 0 < found["logprob_gap_mean"] < STALE[precision] / 10


def test_one_token_that_rounding_moved_by_ten_nats_is_named_and_does_not_stop_the_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = section(precision="bf16", loss_mean="token")
    learner, batch = learner_of(folder, chosen), groups(folder, MIXED, precision="bf16")
    gaps = [train(learner_of(folder, chosen), batch, chosen)["logprob_gap_max"]]
    assert capsys.readouterr().err == ""
    output = batch[0].outputs[2]
    logprobs = [*output.logprobs[:4], output.logprobs[4] - 10, *output.logprobs[5:]]
    batch[0].outputs[2] = dataclasses.replace(output, logprobs=logprobs)
    metrics = train(learner, batch, chosen)
    assert metrics["sampler_kl"] > 100 and metrics["grad_norm"] > 0  # what used to end the run
    assert metrics["logprob_gap_max"] == pytest.approx(10 + gaps[0], abs=2 * gaps[0])
    assert metrics["logprob_gap_p99"] == metrics["logprob_gap_max"]  # of 38 tokens
    assert metrics["logprob_gap_mean"] == pytest.approx(10 / 38, abs=gaps[0])
    (line,) = capsys.readouterr().err.splitlines()
    assert "rl step 1: 1 of 38 tokens differ by more than 2 nats between sampler and policy" in line
    assert f"token {output.tokens[4]}: {logprobs[4]:.4g} by the sampler" in line


@pytest.mark.parametrize(
    "keys",
    [
        {"kl_coefficient": 0.04, "updates": 2},
        {"supervision": "process", "loss_mean": "token"},
        {"method": "ppo", "updates": 2},
        {"method": "dpo"},
    ],
)
def test_a_step_does_not_depend_on_how_its_batch_is_cut(folder: Path, keys: dict[str, Any]) -> None:
    results = []
    for rows_at_once, row_tokens in ((1, 1), (4, 64)):
        chosen = section(row_tokens=row_tokens, **keys)
        learner = learner_of(folder, chosen, rows_at_once)
        metrics = train(learner, groups(folder, MIXED), chosen)
        results.append((metrics["loss"], metrics["grad_norm"]))
    (loss, norm), (other_loss, other_norm) = results
    assert other_loss == pytest.approx(loss, rel=1e-6, abs=1e-7)
    assert other_norm == pytest.approx(norm, rel=1e-6)


def test_process_supervision_trains_each_token_by_its_own_and_later_steps() -> None:
    outputs = [
        rollout(tokens=[5] * (ends[-1] + 1), step_ends=ends, step_rewards=rewards)
        for ends, rewards in (([1, 2, 4], [0.9, 0.8, 0.2]), ([0, 3], [0.6, 0.7]))
    ]
    first, second = grpo.METHOD.outputs([group_of(outputs)], section(supervision="process"))
    assert first.advantages == pytest.approx([-0.0828, -0.0828, -1.1586, -1.8207, -1.8207], abs=1e-4)
    assert second.advantages == pytest.approx([0.0828, 0.2483, 0.2483, 0.2483], abs=1e-4)


def test_a_grader_that_fails_on_more_than_one_output_in_a_thousand_stops_the_run() -> None:
    check_judged([{"not_judged": 1 / 64}], 64)
    check_judged([{"not_judged": 2 / 64}, *[{"not_judged": 0.0}] * 40], 64)
    with pytest.raises(InputError, match="failed on 2 of 128 outputs"):
        check_judged([{"not_judged": 2 / 64}, {"not_judged": 0.0}], 64)


@pytest.mark.parametrize("supervision", ["outcome", "process"])
def test_outputs_that_were_cut_can_be_left_out_and_still_count_in_the_mean(supervision: str) -> None:

    whole = group_of(
        rollout(reward, [5, 6], finish_reason=reason, verdict="right", step_ends=[1], step_rewards=[reward])
        for reason, reward in (("stop", 0.0), ("stop", 1.0), ("length", 1.0))
    )
    chosen = section(supervision=supervision)
    first, second = grpo.METHOD.outputs(without_cut([whole]), chosen)
    all_three = grpo.METHOD.outputs([whole], chosen)
    assert [first.advantages, second.advantages] == [output.advantages for output in all_three[:2]]
    assert len(all_three) == 3 and all_three[2].advantages[0] > 0  # a cut right answer is a full positive
    trained = [
        sum(float(batch.packed.weights_N.sum()) for batch in make_micro_batches([whole], given, 4))
        for given in (chosen, section(supervision=supervision, mask_truncated=True))
    ]
    assert trained == pytest.approx([1, 2 / 3])  # of the loss's mean over three outputs


@pytest.mark.parametrize(("method", "beta"), [("grpo", 0.0), ("grpo", 0.04), ("ppo", 0.04)])
def test_the_arithmetic_of_a_step_by_hand(folder: Path, method: str, beta: float) -> None:
    """Two FLOP for each weight and token forward, six where it is trained; embeddings are looked up."""
    from pipeline.training.model import causal_model

    learner = learner_of(folder, section(method=method, kl_coefficient=beta))
    batch, model = groups(folder, MIXED), causal_model(learner.engine)
    head = model.config.vocab_size * model.config.hidden_size
    body = sum(
        p.numel()
        for name, p in model.named_parameters()
        if p.dim() == 2 and "embed" not in name and "head" not in name
    )
    prompts, sampled, trained = 4 * 7 + 4 * 8, 2 * (6 + 3 + 9 + 1), 100
    expected = 2 * (body + head) * (7 + 8 + sampled)  # a prompt is read once for its four outputs
    expected += 2 * body * (prompts + sampled)  # the reward model reads each output after its prompt
    expected += 2 * 6 * (body + head) * trained
    expected += 2 * (body + head) * trained * (learner.reference is not None)
    expected += 2 * body * trained * (1 + 3 * 2) * (method == "ppo")
    assert (learner.reference is None) == (beta == 0) and (learner.critic is None) == (method != "ppo")
    assert learner.step_flop(batch, trained, updates=2, scored=True) == expected


REINFORCE = '''"""REINFORCE: the advantage is the reward over a fixed baseline."""
from dataclasses import replace

from pipeline.rl.methods import rft
from pipeline.rl.packed_outputs import output_of


def outputs(groups, section):
    return [
        output_of(output, number, group.prompt, output.reward - 0.5)
        for number, group in enumerate(groups)
        for output in group.outputs
    ]


METHOD = replace(rft.METHOD, source="policy", outputs=outputs)
'''


def test_a_new_method_is_one_new_file(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pipeline.config.rl
    import pipeline.rl.methods
    from pipeline.cli.plan.__main__ import DEFAULTS, read_config
    from workflow.forecast.costs import Gpu
    from workflow.forecast.forecast import Assumptions, Planner

    (tmp_path / "reinforce.py").write_text(REINFORCE)
    (tmp_path / "grpo.py").touch()  # the default; the package's own is imported
    monkeypatch.setattr(pipeline.config.rl, "METHODS", tmp_path)
    monkeypatch.setattr(pipeline.rl.methods, "__path__", [*pipeline.rl.methods.__path__, str(tmp_path)])
    chosen = section(method="reinforce")
    learner, batch = learner_of(folder, chosen), groups(folder, MIXED)
    assert learner.reference is None and learner.critic is None
    assert train(learner, batch, chosen)["grad_norm"] > 0
    model = {"stage": "rl", "init": str(folder), "method": "reinforce", "steps": 1, "benchmarks": []}
    config = Config(read_config([DEFAULTS]) | {"models": {"new": model}})
    (row,) = Planner(config, Assumptions(Gpu("H100", 989e12, 80e9, 3.35e12))).rows()
    assert row.trained > 0 and "frozen" not in row.memory
