"""Outputs that share a row have the log-probabilities, loss and gradients of each output alone."""

import random
from functools import cache, partial
from pathlib import Path

import pytest
import torch
from given.rollouts import group_of, rollout

from pipeline.config.rl import RlSection
from pipeline.rl.methods import grpo
from pipeline.rl.objectives import grpo_loss, token_weights
from pipeline.rl.packed_outputs import (
    Output,
    micro_batches,
    output_logprobs,
    pack,
    padded_width,
    split_into_rows,
)
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
    assert torch.allclose(output_logprobs(model, pack(rows, MEAN), 1.0), torch.cat(alone), atol=1e-5)


@cache
def widths(longest: int) -> list[list[int]]:
    """The widths of all rows of each of 200 steps of 16 questions with 64 outputs, without rounding."""
    draw, steps = random.Random(0), []
    for _ in range(200):
        drawn = []
        for group in range(16):
            prompt = [1] * draw.randint(longest // 25, longest // 4)
            middle = longest / 5 * draw.uniform(0.5, 2)
            lengths = [int(draw.lognormvariate(0, 0.6) * middle) + 1 for _ in range(64)]
            drawn += [Output(group, prompt, [5] * min(length, longest), [], []) for length in lengths]
        rows = split_into_rows(drawn, 4 * longest)
        steps.append([len(row[0].prompt) - 1 + sum(len(one.tokens) for one in row) for row in rows])
    return steps


def shapes(ranks: int, rows_at_once: int, longest: int) -> tuple[set[tuple[int, int]], float]:
    """The shapes of all micro-batches on all ranks, and their tokens for each token without rounding."""
    found, wide, narrow = set(), 0, 0
    for mine in (rows[rank::ranks] for rows in widths(longest) for rank in range(ranks)):
        for start in range(0, len(mine), rows_at_once):
            part = mine[start : start + rows_at_once]
            width = padded_width(max(part), 4 * longest, len(part) == rows_at_once)
            found.add((len(part), width))
            wide, narrow = wide + len(part) * width, narrow + len(part) * max(part)
    return found, wide / narrow


@pytest.mark.parametrize("longest", [64, 1024])
@pytest.mark.parametrize("rows_at_once", [1, 4, 8])
@pytest.mark.parametrize("ranks", [1, 8])
def test_200_steps_have_at_most_64_shapes_for_a_few_more_tokens(
    ranks: int, rows_at_once: int, longest: int
) -> None:
    found, growth = shapes(ranks, rows_at_once, longest)
    assert len(found) <= 64 and growth < 1.04


def test_the_last_micro_batch_is_as_wide_as_its_rows_need() -> None:
    packed = list(micro_batches(split_into_rows(outputs(), 64), 2, MEAN, 512))
    assert [tuple(one.tokens_BT.shape) for one in packed] == [(2, 32), (1, 16)]
    assert [one.length for one in packed] == [20 + 13, 6]


def test_every_output_stands_in_one_row_with_its_own_group() -> None:
    rows = split_into_rows(outputs(), 14)
    found = sorted((output.group, len(output.tokens)) for row in rows for output in row)
    assert found == sorted(LENGTHS)
    for row in rows:
        assert len({output.group for output in row}) == 1
        size = len(row[0].prompt) - 1 + sum(len(output.tokens) for output in row)
        assert size <= 14 or len(row) == 1


def gradients(model: TokenLogprobs, row_tokens: int, rows_at_once: int) -> tuple[float, list[torch.Tensor]]:
    model.zero_grad()
    total = 0.0
    for packed in micro_batches(split_into_rows(outputs(), row_tokens), rows_at_once, MEAN, row_tokens):
        logprobs = output_logprobs(model, packed, 1.0)
        loss = grpo_loss(logprobs, logprobs, None, packed.advantages_N, packed.weights_N, 0.2, 0.0).loss
        loss.backward()
        total += loss.item()
    return total, [parameter.grad.clone() for parameter in model.parameters()]


def test_loss_and_gradients_do_not_depend_on_the_rows(model: TokenLogprobs) -> None:
    loss, expected = gradients(model, row_tokens=1, rows_at_once=1)
    for row_tokens, rows_at_once in ((14, 2), (64, 3)):
        other, found = gradients(model, row_tokens, rows_at_once)
        assert other == pytest.approx(loss, abs=1e-6)
        for one, two in zip(expected, found, strict=True):
            assert torch.allclose(one, two, atol=1e-5, rtol=1e-4)


def test_groups_without_signal_are_trained_on_only_for_their_kl_term() -> None:
    groups = [group_of(map(rollout, rewards)) for rewards in ((0.0, 0.0), (0.0, 1.0), (1.0, 1.0))]
    without_kl = grpo.METHOD.outputs(groups, RlSection(kl_coefficient=0.0))
    assert [(output.group, output.advantages) for output in without_kl] == [(1, [-1.0]), (1, [1.0])]
    with_kl = grpo.METHOD.outputs(groups, RlSection(kl_coefficient=0.04))
    assert [output.advantages for output in with_kl] == [[0.0], [0.0], [-1.0], [1.0], [0.0], [0.0]]
