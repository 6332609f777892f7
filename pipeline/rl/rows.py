"""Rows for training on groups: a prompt once, then outputs that see the prompt and themselves.

The outputs of a group share their prompt, so its tokens pass through the model once per row instead of once
per output; positions restart at each output and a mask keeps outputs apart. Nothing is padded but the end of
rows, which are sorted by length. Results are those of one output at a time.

Shapes: B rows, T positions, N output tokens of the rows, in the order of rows, outputs, tokens; O outputs of
the rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.common.model import IGNORE

WeightsOf = Callable[[Tensor], Tensor]  # lengths of outputs (O,) -> shares of their tokens (N,)


@dataclass(frozen=True)
class Output:
    """An output to train on: its group's number, tokens, the sampler's log-probabilities, the coefficient of
    each token (an advantage, or RFT's 0 or 1), and its reward."""

    group: int
    tokens: list[int]
    logprobs: list[float]
    coefficients: list[float]
    reward: float = 0.0


@dataclass(frozen=True)
class Rows:
    """Rows as tensors, the output tokens that `targets_BT` holds, flat, and the outputs they belong to."""

    tokens_BT: Tensor
    positions_BT: Tensor
    targets_BT: Tensor
    mask_BTT: Tensor
    sampler_logprobs_N: Tensor
    advantages_N: Tensor
    weights_N: Tensor
    lengths_O: Tensor
    rewards_O: Tensor

    def to(self, device: torch.device | str) -> "Rows":
        """The same on another device."""
        return Rows(**{name: value.to(device) for name, value in vars(self).items()})


def split_into_rows(
    outputs: Sequence[Output], prompts: Sequence[Sequence[int]], row_tokens: int
) -> list[list[Output]]:
    """Rows of one group's outputs, as many as fit in `row_tokens` with their prompt, at least one."""
    rows: list[list[Output]] = []
    for output in sorted(outputs, key=lambda output: output.group):
        here = rows[-1] if rows and rows[-1][0].group == output.group else None
        if here and _length(here, prompts) + len(output.tokens) <= row_tokens:
            here.append(output)
        else:
            rows.append([output])
    return sorted(rows, key=lambda row: -_length(row, prompts))


def _length(row: Sequence[Output], prompts: Sequence[Sequence[int]]) -> int:
    return len(prompts[row[0].group]) - 1 + sum(len(output.tokens) for output in row)


def make_rows(
    packed: Sequence[Sequence[Output]], prompts: Sequence[Sequence[int]], weights_of: WeightsOf
) -> Rows:
    """Tensors of packed rows; `weights_of` gives tokens their share of the loss.

    The prompt's last token predicts an output's first, so it opens every output instead of closing the
    prompt.
    """
    size = (len(packed), max(_length(row, prompts) for row in packed))
    tokens, positions = torch.zeros(size, dtype=torch.long), torch.zeros(size, dtype=torch.long)
    targets = torch.full(size, IGNORE)
    segments = torch.full(size, -1)  # 0 the prompt, 1.. the outputs, -1 padding
    for number, row in enumerate(packed):
        prompt = prompts[row[0].group]
        stop = len(prompt) - 1
        tokens[number, :stop], positions[number, :stop] = torch.tensor(prompt[:-1]), torch.arange(stop)
        segments[number, :stop] = 0
        for segment, output in enumerate(row, 1):
            start, stop = stop, stop + len(output.tokens)
            tokens[number, start:stop] = torch.tensor([prompt[-1], *output.tokens[:-1]])
            positions[number, start:stop] = torch.arange(len(prompt) - 1, len(prompt) - 1 + stop - start)
            targets[number, start:stop] = torch.tensor(output.tokens)
            segments[number, start:stop] = segment
    flat = [output for row in packed for output in row]
    lengths = torch.tensor([len(output.tokens) for output in flat])
    return Rows(
        tokens,
        positions,
        targets,
        _mask(segments),
        torch.tensor([logprob for output in flat for logprob in output.logprobs]),
        torch.tensor([value for output in flat for value in output.coefficients]),
        weights_of(lengths),
        lengths,
        torch.tensor([output.reward for output in flat]),
    )


def _mask(segments_BT: Tensor) -> Tensor:
    """Who may attend to whom (B, T, T): a position to earlier ones of the prompt and of its own segment."""
    query, key = segments_BT[:, :, None], segments_BT[:, None, :]
    earlier = torch.ones(segments_BT.shape[1], segments_BT.shape[1], dtype=torch.bool).tril()
    return earlier & ((query == key) | (key == 0))


def micro_batches(
    outputs: Sequence[Output],
    prompts: Sequence[Sequence[int]],
    row_tokens: int,
    rows_at_once: int,
    weights_of: WeightsOf,
) -> Iterator[Rows]:
    """All `outputs` in rows, `rows_at_once` rows at a time."""
    packed = split_into_rows(outputs, prompts, row_tokens)
    for start in range(0, len(packed), rows_at_once):
        yield make_rows(packed[start : start + rows_at_once], prompts, weights_of)
