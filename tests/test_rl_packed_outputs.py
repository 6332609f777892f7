"""Outputs that share a row have the log-probabilities, loss and gradients of each output alone."""

import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from given.rollouts import group_of, rollout
from transformers import AutoModel

from pipeline.config.rl import RlSection
from pipeline.rl.critic import Critic
from pipeline.rl.methods import grpo
from pipeline.rl.metrics import Watched, summarise
from pipeline.rl.objectives import grpo_loss, token_weights
from pipeline.rl.packed_outputs import (
    MicroBatch,
    Output,
    micro_batches,
    output_logprobs,
    pack,
    row_length,
    split_into_rows,
)
from pipeline.rl.rollout import Group
from pipeline.training.model import TokenLogprobs, load_model
from tests.tiny_model import log_probs, save_tiny_model

PROMPTS = [[1, 40, 41, 42, 43, 44], [1, 50, 51], [1, 60, 61, 62]]
MEAN = partial(token_weights, outputs=6)
LENGTHS = [(0, 5), (0, 1), (0, 9), (1, 4), (1, 7), (2, 3)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TokenLogprobs:
    folder: Path = save_tiny_model(tmp_path_factory.mktemp("model"), seed=0)
    return TokenLogprobs(load_model(folder))


def outputs() -> list[Output]:
    generator = torch.Generator().manual_seed(0)
    found = []
    for group, length in LENGTHS:
        tokens = torch.randint(4, 90, (length,), generator=generator).tolist()
        advantages = torch.randn(length, generator=generator).tolist()
        found.append(Output(group, PROMPTS[group], tokens, [-1.0] * length, advantages))
    return found


@pytest.mark.parametrize("row_tokens", [1, 14, 64])
def test_log_probabilities_equal_those_of_each_output_alone(model: TokenLogprobs, row_tokens: int) -> None:
    rows = split_into_rows(outputs(), row_tokens)
    alone = [log_probs(model.model, output.prompt, output.tokens) for row in rows for output in row]
    assert torch.allclose(output_logprobs(model, pack(rows, MEAN)), torch.cat(alone), atol=1e-5)


def test_the_critics_values_equal_those_of_each_output_behind_its_prompt(tmp_path: Path) -> None:
    trunk = load_model(save_tiny_model(tmp_path, seed=0), kind=AutoModel)
    critic, rows = Critic(trunk), split_into_rows(outputs(), 64)
    torch.nn.init.normal_(critic.head.weight, generator=torch.Generator().manual_seed(0))
    packed, alone = pack(rows, MEAN), []
    for output in (output for row in rows for output in row):
        hidden = trunk(torch.tensor([[*output.prompt, *output.tokens]]), use_cache=False).last_hidden_state
        alone.append(critic.head(hidden)[0, len(output.prompt) - 1 : -1, 0])
    values = critic(packed.tokens_BT, packed.positions_BT, packed.places_N, packed.documents)
    assert torch.allclose(values, torch.cat(alone), atol=1e-5)


def drawn_outputs(longest: int = 256) -> list[Output]:
    """A step of 16 questions with 64 outputs each, of lengths as differ in practice."""
    draw, outputs = random.Random(0), []
    for group in range(16):
        prompt = [1] * draw.randint(longest // 25, longest // 4)
        middle = longest / 5 * draw.uniform(0.5, 2)
        lengths = [int(draw.lognormvariate(0, 0.6) * middle) + 1 for _ in range(64)]
        outputs += [
            Output(group, prompt, [5] * min(n, longest), [0.0] * min(n, longest), []) for n in lengths
        ]
    return outputs


def test_rows_of_several_groups_are_filled() -> None:
    for group_size in (8, 64):
        drawn = [one for number, one in enumerate(drawn_outputs()) if number % 64 < group_size]
        rows = split_into_rows(drawn, 1024)
        assert max(map(row_length, rows)) <= 1024
        assert sum(map(row_length, rows)) > 0.9 * 1024 * len(rows)


def test_micro_batches_for_a_gpu_have_one_shape_on_all_ranks() -> None:
    rows = split_into_rows(drawn_outputs(), 1024)
    for ranks in (1, 3):
        batches = [
            one for rank in range(ranks) for one in micro_batches(rows[rank::ranks], 4, MEAN, 1024, True)
        ]
        assert {tuple(one.tokens_BT.shape) for one in batches} == {(4, 1024)}
        assert sum(one.length for one in batches) == sum(map(row_length, rows))


def test_micro_batches_for_a_cpu_are_as_large_as_their_rows() -> None:
    rows = split_into_rows(outputs(), 20)
    widths = [row_length(row) for row in rows]
    packed = list(micro_batches(rows, 2, MEAN, 20, False))
    assert [one.tokens_BT.shape[1] for one in packed] == widths[::2]
    assert [len(one.tokens_BT) for one in packed] == [2] * (len(rows) // 2) + [1] * (len(rows) % 2)


def test_every_output_stands_once_and_a_prompt_once_a_row() -> None:
    rows = split_into_rows(outputs(), 14)
    assert sorted((output.group, len(output.tokens)) for row in rows for output in row) == sorted(LENGTHS)
    for row in rows:
        groups = [output.group for output in row]
        assert groups == sorted(groups, key=groups.index)
        assert row_length(row) <= 14 or len(row) == 1


def gradients(
    model: TokenLogprobs, row_tokens: int, rows_at_once: int, fixed: bool = False
) -> tuple[float, list[torch.Tensor]]:
    model.zero_grad()
    total = 0.0
    for packed in micro_batches(
        split_into_rows(outputs(), row_tokens), rows_at_once, MEAN, row_tokens, fixed
    ):
        logprobs = output_logprobs(model, packed)
        loss = grpo_loss(logprobs, logprobs, None, packed.advantages_N, packed.weights_N, 0.2, 0.0).loss
        loss.backward()
        total += loss.item()
    return total, [parameter.grad.clone() for parameter in model.parameters()]


def test_loss_and_gradients_do_not_depend_on_the_rows(model: TokenLogprobs) -> None:
    loss, expected = gradients(model, row_tokens=1, rows_at_once=1)
    for row_tokens, rows_at_once, fixed in ((14, 2, False), (64, 3, False), (32, 4, True)):
        other, found = gradients(model, row_tokens, rows_at_once, fixed)
        assert other == pytest.approx(loss, abs=1e-6)
        for one, two in zip(expected, found, strict=True):
            assert torch.allclose(one, two, atol=1e-5, rtol=1e-4)


def test_groups_without_signal_are_trained_on_only_for_their_kl_term() -> None:
    groups = [group_of(map(rollout, rewards)) for rewards in ((0.0, 0.0), (0.0, 1.0), (1.0, 1.0))]
    without_kl = grpo.METHOD.outputs(groups, RlSection(kl_coefficient=0.0))
    assert [(output.group, output.advantages) for output in without_kl] == [(1, [-1.0]), (1, [1.0])]
    with_kl = grpo.METHOD.outputs(groups, RlSection(kl_coefficient=0.04))
    assert [output.advantages for output in with_kl] == [[0.0], [0.0], [-1.0], [1.0], [0.0], [0.0]]


KL = 0.1
SPANS = [(4, 9), (12, 14)]  # what two calls of a tool wrote into an output of 17 tokens


def with_calls(tool_logprob: float = 0.0) -> list[Group]:
    """A right output with two calls, a wrong one with one, and one without; of the tool's tokens this
    log-probability is recorded.
    """
    draw, found = random.Random(1), []
    for reward, length, spans in ((1.0, 17, SPANS), (0.0, 11, [(2, 7)]), (0.0, 6, [])):
        tokens = [draw.randrange(4, 90) for _ in range(length)]
        told = {place for span in spans for place in range(*span)}
        logprobs = [tool_logprob if place in told else -1.0 for place in range(length)]
        found.append(rollout(reward, tokens, logprobs=logprobs, tool_spans=spans))
    return [group_of(found, PROMPTS[0])]


def grpo_of(model: TokenLogprobs, reference: Any, groups: list[Group], **keys: Any) -> tuple[Any, Any, Any]:
    """Loss, its gradient and the KL term as training computes them."""
    from pipeline.rl.train import make_micro_batches
    from pipeline.training.engine import start_process_group

    start_process_group()
    section = RlSection(kl_coefficient=KL, row_tokens=32, max_tokens=20, mode="tool", **keys)
    model.zero_grad()
    watched, total = Watched(), 0.0
    for batch in make_micro_batches(groups, section, 2):
        logprobs_N = output_logprobs(model, batch.packed)
        with torch.no_grad():
            reference_N = output_logprobs(reference, batch.packed)
        batch = MicroBatch(batch.packed, logprobs_N.detach() + 0.01, reference_N)
        loss = grpo.METHOD.loss(section, batch, logprobs_N, watched)
        loss.backward()
        total += loss.item()
    return total, [parameter.grad.clone() for parameter in model.parameters()], watched.sums["kl"]


@pytest.mark.parametrize("mean", ["output", "token", "constant"])
def test_the_loss_with_tool_calls_is_that_of_the_models_own_tokens_by_hand(
    model: TokenLogprobs, tmp_path: Path, mean: str
) -> None:
    reference = TokenLogprobs(load_model(save_tiny_model(tmp_path, seed=1)))
    groups = with_calls()
    loss, gradient, kl = grpo_of(model, reference, groups, loss_mean=mean)
    model.zero_grad()
    own = [set(range(17)) - {*range(4, 9), *range(12, 14)}, set(range(11)) - {*range(2, 7)}, set(range(6))]
    advantages = [2**0.5, -(2**-0.5), -(2**-0.5)]  # of rewards 1, 0, 0
    expected, expected_kl = 0.0, 0.0
    for output, places, advantage in zip(groups[0].outputs, own, advantages, strict=True):
        ids = torch.tensor([[*PROMPTS[0], *output.tokens]])
        both = [one.model(ids, use_cache=False).logits[0].log_softmax(-1) for one in (model, reference)]
        share = {"output": 3 * len(places), "token": sum(map(len, own)), "constant": 3 * 20}[mean]
        for place in places:
            at = len(PROMPTS[0]) + place
            logprob, before = (values[at - 1, ids[0, at]] for values in both)
            ratio, gap = torch.exp(logprob - logprob.detach() - 0.01), before.detach() - logprob
            divergence = torch.exp(gap) - gap - 1
            expected = expected - (ratio * advantage - KL * divergence) / share
            expected_kl += divergence.item() / share
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5) and kl == pytest.approx(expected_kl, rel=1e-5)
    for found, parameter in zip(gradient, model.parameters(), strict=True):
        assert torch.allclose(found, parameter.grad, atol=1e-6, rtol=1e-4)


def test_what_is_recorded_of_a_tools_tokens_changes_neither_loss_nor_metrics(model: TokenLogprobs) -> None:
    keys = {"importance_cap": 2.0}  # which reads the sampler's log-probabilities
    loss, gradient, kl = grpo_of(model, model, with_calls(), **keys)
    other, changed, other_kl = grpo_of(model, model, with_calls(-7.0), **keys)
    assert (loss, kl) == (other, other_kl) and all(map(torch.equal, gradient, changed))
    (group,) = with_calls()
    assert group.tokens == 17 - 7 + 11 - 5 + 6
    found = summarise([group], [], "tool")
    assert (found["sampled_tokens"], found["entropy"], found["tool_outputs"]) == (group.tokens, 1.0, 1.0)
    unmasked = [replace(group, outputs=[replace(output, tool_spans=[]) for output in group.outputs])]
    assert grpo_of(model, model, unmasked, **keys)[0] != loss
