"""Outputs packed into rows for training: a row holds a prompt once, then outputs that see it and themselves.

The outputs of a group share their prompt, so its tokens pass through the model once per row instead of once
per output. Positions restart at each output, and none sees another; rows are sorted by length to
minimise padding. Log-probabilities and gradients are those of one output at a time. What a tool wrote in an
output is context like the prompt: its tokens are no targets, and count nowhere else. Widths are rounded up to
a few, because a GPU's kernels are chosen, and its memory is cut, anew for each shape.

Shapes: B rows, T positions, N output tokens of the policy in the order of rows, outputs, tokens; O outputs of
the rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, compress, pairwise
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
    `weights_N` is each token's share of the loss.
    """

    tokens_BT: Tensor
    positions_BT: Tensor
    targets_BT: Tensor
    queries_S: Tensor
    keys_S: Tensor
    places_K: Tensor
    sampler_logprobs_N: Tensor
    advantages_N: Tensor
    weights_N: Tensor
    lengths_O: Tensor
    rewards_O: Tensor

    @property
    def length(self) -> int:
        """Tokens of all rows without padding: a row ends with its last target."""
        places_T = torch.arange(1, self.targets_BT.shape[1] + 1, device=self.targets_BT.device)
        return int(((self.targets_BT != IGNORE) * places_T).amax(1).sum())

    @property
    def documents(self) -> dict[str, Any]:
        """What tells the model's attention who sees whom."""
        return shared_arguments(self.queries_S, self.keys_S, self.places_K)

    def to(self, device: torch.device | str) -> "PackedOutputs":
        """Return the same on another device."""
        return PackedOutputs(**{name: value.to(device) for name, value in vars(self).items()})


@dataclass
class MicroBatch:
    """Packed outputs, and what stays fixed over the updates of an exploration, (N,) each."""

    packed: PackedOutputs
    old_N: Tensor | None = None
    reference_N: Tensor | None = None
    old_values_N: Tensor | None = None
    returns_N: Tensor | None = None


def output_logprobs(module: Any, packed: PackedOutputs, temperature: float) -> Tensor:
    """Return log pi of the output tokens, (N,); `module` is a `TokenLogprobs` or an engine around one."""
    logprobs_BT = module(
        packed.tokens_BT,
        packed.positions_BT,
        packed.targets_BT,
        temperature=temperature,
        documents=packed.documents,
    )
    return logprobs_BT[packed.targets_BT != IGNORE]


def split_into_rows(outputs: Sequence[Output], row_tokens: int) -> list[list[Output]]:
    """Group outputs by row: as many of one group as fit in `row_tokens` with their prompt, at least one."""
    rows: list[list[Output]] = []
    for output in sorted(outputs, key=lambda output: output.group):
        here = rows[-1] if rows and rows[-1][0].group == output.group else None
        if here and _length(here) + len(output.tokens) <= row_tokens:
            here.append(output)
        else:
            rows.append([output])
    return sorted(rows, key=_length, reverse=True)


def _length(row: Sequence[Output]) -> int:
    return len(row[0].prompt) - 1 + sum(len(output.tokens) for output in row)


def padded_width(width: int, row_tokens: int, full: bool) -> int:
    """Round `width` up to a 32nd of `row_tokens`, beyond those in steps that double as widths do. The last
    micro-batch of a step may hold any number of rows; where it is not `full`, only 4 steps are that small.
    """
    step, most = max(8, row_tokens // 32 // 8 * 8), 32 if full else 4
    while width > most * step:
        step *= 2
    return max(1, -(-width // step)) * step


def pack(rows: Sequence[Sequence[Output]], weights_of: WeightsOf, width: int = 0) -> PackedOutputs:
    """Return tensors of `rows`, at least `width` wide; `weights_of` gives tokens their share of the loss.

    The prompt's last token predicts an output's first, so it opens every output instead of closing the
    prompt.
    """
    size = (len(rows), max(width, *map(_length, rows)))
    tokens, positions = torch.zeros(size, dtype=torch.long), torch.zeros(size, dtype=torch.long)
    targets = torch.full(size, IGNORE)
    for number, row in enumerate(rows):
        prompt = row[0].prompt
        stop = len(prompt) - 1
        tokens[number, :stop], positions[number, :stop] = torch.tensor(prompt[:-1]), torch.arange(stop)
        for output in row:
            start, stop = stop, stop + len(output.tokens)
            tokens[number, start:stop] = torch.tensor([prompt[-1], *output.tokens[:-1]])
            positions[number, start:stop] = torch.arange(len(prompt) - 1, len(prompt) - 1 + stop - start)
            targets[number, start:stop] = torch.tensor(output.targets or output.tokens)
    flat = [output for row in rows for output in row]
    lengths = torch.tensor([len(output.logprobs) for output in flat])
    return PackedOutputs(
        tokens,
        positions,
        targets,
        *_documents(rows, size[1]),
        torch.tensor([logprob for output in flat for logprob in output.logprobs]),
        torch.tensor([value for output in flat for value in output.advantages]),
        weights_of(lengths),
        lengths,
        torch.tensor([output.reward for output in flat]),
    )


def _documents(rows: Sequence[Sequence[Output]], width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return `queries_S`, `keys_S` and `places_K` of rows: a prompt sees itself, and so does the padding; an
    output sees its prompt too.
    """
    found: list[tuple[range, range]] = []  # places of queries, and of what they see before themselves
    for number, row in enumerate(rows):
        start, end = number * width, (number + 1) * width
        prompt = range(start, start + len(row[0].prompt) - 1)
        ends = list(accumulate((len(output.tokens) for output in row), initial=prompt.stop))
        found.append((prompt, range(0)))
        found += [(range(first, last), prompt) for first, last in pairwise(ends)]
        found.append((range(ends[-1], end), range(0)))
    found = [(own, before) for own, before in found if own]
    places = [place for own, before in found for place in (*before, *own)]
    lengths = [[len(own), len(before) + len(own)] for own, before in found]
    return *torch.tensor(lengths).T.unbind(), torch.tensor(places)


def micro_batches(
    rows: Sequence[Sequence[Output]], rows_at_once: int, weights_of: WeightsOf, row_tokens: int
) -> Iterator[PackedOutputs]:
    """Yield tensors of `rows`, `rows_at_once` at a time, their widths rounded up (see `padded_width`)."""
    for start in range(0, len(rows), rows_at_once):
        part = rows[start : start + rows_at_once]
        longest = max(map(_length, part))
        yield pack(part, weights_of, padded_width(longest, row_tokens, len(part) == rows_at_once))
