"""Outputs packed into rows for training: a row holds prompts, each once, and after each outputs that see it.

The outputs of a group share their prompt, so its tokens pass through the model once per row instead of once
per output. Pieces of several groups share a row. Positions restart at each output, and none sees another.
Log-probabilities and gradients are those of one output at a time. Text that a tool wrote in an output is
context like the prompt: its tokens are no targets, and count nowhere else. On a GPU all micro-batches have
one shape, so that compiled layers, chosen kernels and cut memory serve them all.

Shapes: B rows, T positions, N output tokens of the policy in the order of rows, outputs, tokens; O outputs of
the rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, compress, groupby, pairwise
from typing import Any

import torch
from torch import Tensor

from pipeline.rl.rollout import Rollout
from pipeline.training.attention import shared_arguments
from pipeline.training.packing import IGNORE

WeightsOf = Callable[[Tensor], Tensor]  # lengths of outputs (O,) -> shares of their tokens (N,)


@dataclass(frozen=True)
class Output:
    """An output to train on: the sampler's log-probability and the advantage of each target, and its reward.

    Outputs with the same `group` number have the same prompt and may share a row. `targets`: `tokens` with
    IGNORE for those that a tool wrote; empty if there are none.
    """

    group: int
    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]
    advantages: list[float]
    reward: float = 0.0
    targets: list[int] = field(default_factory=list)


def output_of(rollout: Rollout, group: int, prompt: list[int], advantage: float | list[float]) -> Output:
    """Return a rollout to train on; `advantage`: of all its tokens or of each."""
    advantages = [advantage] * len(rollout.tokens) if isinstance(advantage, float) else advantage
    targets = list(rollout.tokens)
    for first, end in rollout.tool_spans:
        targets[first:end] = [IGNORE] * (end - first)
    own = [target != IGNORE for target in targets]
    logprobs, advantages = (list(compress(values, own)) for values in (rollout.logprobs, advantages))
    return Output(group, prompt, rollout.tokens, logprobs, advantages, rollout.reward, targets)


@dataclass(frozen=True)
class PackedOutputs:
    """Rows as tensors, and flat values of the output tokens that `targets_BT` holds and of their outputs.

    `queries_S`, `keys_S`, `places_K`: which outputs see which prompt (see `attention.shared_arguments`).
    `places_N`: where the output tokens' targets are in the rows laid end to end, known here so that no device
    is asked for it. `weights_N` is each token's share of the loss. `length`: tokens without padding.
    """

    tokens_BT: Tensor
    positions_BT: Tensor
    targets_BT: Tensor
    queries_S: Tensor
    keys_S: Tensor
    places_K: Tensor
    places_N: Tensor
    sampler_logprobs_N: Tensor
    advantages_N: Tensor
    weights_N: Tensor
    lengths_O: Tensor
    rewards_O: Tensor
    length: int

    @property
    def documents(self) -> dict[str, Any]:
        """What tells the model's attention who sees whom."""
        return shared_arguments(self.queries_S, self.keys_S, self.places_K, self.tokens_BT.shape[1])

    def to(self, device: torch.device | str) -> "PackedOutputs":
        """Return the same on another device."""
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **{name: value.to(device) for name, value in tensors.items()})

    @property
    def targets_N(self) -> Tensor:
        """Return the output tokens."""
        return self.targets_BT.flatten().index_select(0, self.places_N)


@dataclass
class MicroBatch:
    """Packed outputs, and what stays fixed over the updates of an exploration, (N,) each."""

    packed: PackedOutputs
    old_N: Tensor | None = None
    reference_N: Tensor | None = None
    old_values_N: Tensor | None = None
    returns_N: Tensor | None = None


def output_logprobs(module: Any, packed: PackedOutputs) -> Tensor:
    """Return log pi of the output tokens, (N,); `module` is a `TokenLogprobs` or an engine around one."""
    logprobs_BT = module(
        packed.tokens_BT,
        packed.positions_BT,
        packed.targets_BT,
        documents=packed.documents,
        places_N=packed.places_N,
    )
    return logprobs_BT.flatten().index_select(0, packed.places_N)


def split_into_rows(outputs: Sequence[Output], row_tokens: int, whole: bool = False) -> list[list[Output]]:
    """Fill rows of `row_tokens` group by group, the longest row first.

    A row takes the group's longest outputs that still fit behind their prompt; the others open the next row,
    behind their prompt again. With `whole` a group stays in one row, in its order. A row of one output (or
    one whole group) may be longer.
    """
    rows: list[list[Output]] = [[]]
    for group in _groups(sorted(outputs, key=lambda output: output.group)):
        left = [group] if whole else [[one] for one in sorted(group, key=lambda one: -len(one.tokens))]
        while left:
            room = row_tokens - row_length(rows[-1]) - len(group[0].prompt) + 1
            later = []
            for part in left:
                length = sum(len(output.tokens) for output in part)
                if length <= room or not rows[-1]:
                    rows[-1] += part
                    room -= length
                else:
                    later.append(part)
            if later:
                rows.append([])
            left = later
    return sorted(filter(None, rows), key=row_length, reverse=True)


def _groups(row: Sequence[Output]) -> list[list[Output]]:
    """Split a row into its pieces, each of one group."""
    return [list(piece) for _, piece in groupby(row, key=lambda output: output.group)]


def row_length(row: Sequence[Output]) -> int:
    """Count the tokens of a row: each piece's prompt but for its last token, and the outputs."""
    prompts = sum(len(piece[0].prompt) - 1 for piece in _groups(row))
    return prompts + sum(len(output.tokens) for output in row)


def pack(rows: Sequence[Sequence[Output]], weights_of: WeightsOf, width: int = 0) -> PackedOutputs:
    """Return tensors of `rows`, at least `width` wide; `weights_of` gives tokens their share of the loss.

    The prompt's last token predicts an output's first, so it opens every output instead of closing the
    prompt.
    """
    lengths = [row_length(row) for row in rows]
    size = (len(rows), max(width, *lengths))
    tokens, positions = torch.zeros(size, dtype=torch.long), torch.zeros(size, dtype=torch.long)
    targets = torch.full(size, IGNORE)
    for number, row in enumerate(rows):
        stop = 0
        for piece in _groups(row):
            prompt, start, stop = piece[0].prompt, stop, stop + len(piece[0].prompt) - 1
            tokens[number, start:stop] = torch.tensor(prompt[:-1])
            positions[number, start:stop] = torch.arange(stop - start)
            for output in piece:
                start, stop = stop, stop + len(output.tokens)
                tokens[number, start:stop] = torch.tensor([prompt[-1], *output.tokens[:-1]])
                positions[number, start:stop] = torch.arange(len(prompt) - 1, len(prompt) - 1 + stop - start)
                targets[number, start:stop] = torch.tensor(output.targets or output.tokens)
    flat = [output for row in rows for output in row]
    lengths_O = torch.tensor([len(output.logprobs) for output in flat])
    return PackedOutputs(
        tokens,
        positions,
        targets,
        *_documents(rows, size[1]),
        (targets.flatten() != IGNORE).nonzero().squeeze(1),
        torch.tensor([logprob for output in flat for logprob in output.logprobs]),
        torch.tensor([value for output in flat for value in output.advantages]),
        weights_of(lengths_O),
        lengths_O,
        torch.tensor([output.reward for output in flat]),
        sum(lengths),
    )


def _documents(rows: Sequence[Sequence[Output]], width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return `queries_S`, `keys_S` and `places_K` of rows: a prompt sees itself, and so does the padding; an
    output sees its prompt too.
    """
    found: list[tuple[range, range]] = []  # places of queries, and of what they see before themselves
    for number, row in enumerate(rows):
        start, end = number * width, (number + 1) * width
        for piece in _groups(row):
            prompt = range(start, start + len(piece[0].prompt) - 1)
            ends = list(accumulate((len(output.tokens) for output in piece), initial=prompt.stop))
            found.append((prompt, range(0)))
            found += [(range(first, last), prompt) for first, last in pairwise(ends)]
            start = ends[-1]
        found.append((range(start, end), range(0)))
    found = [(own, before) for own, before in found if own]
    places = [place for own, before in found for place in (*before, *own)]
    lengths = [[len(own), len(before) + len(own)] for own, before in found]
    return *torch.tensor(lengths).T.unbind(), torch.tensor(places)


def micro_batches(
    rows: Sequence[Sequence[Output]], rows_at_once: int, weights_of: WeightsOf, row_tokens: int, fixed: bool
) -> Iterator[PackedOutputs]:
    """Yield tensors of `rows`, `rows_at_once` at a time; `fixed`: all of one shape, `row_tokens` wide unless
    a row is longer.
    """
    width = max([row_tokens, *map(row_length, rows)]) if fixed else 0
    for start in range(0, len(rows), rows_at_once):
        part = list(rows[start : start + rows_at_once])
        empty: list[list[Output]] = [[]] * (rows_at_once - len(part) if fixed else 0)
        yield pack(part + empty, weights_of, width)
