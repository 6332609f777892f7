"""Packed sequences: several documents in one row of fixed length, each with positions from 0."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

IGNORE = -100


@dataclass(frozen=True)
class Row:
    """One sequence of T tokens.

    `targets[t]` is the token that follows `tokens[t]` in its document, or `IGNORE` where no loss is wanted.
    The first `length` tokens are real, the rest padding. `source` is the index of where the row comes from.
    """

    tokens: np.ndarray
    positions: np.ndarray
    targets: np.ndarray
    length: int
    source: int = 0


def concatenate(lengths: Iterable[int], context: int, open_rows: int = 64) -> list[list[int]]:
    """Indices of the examples of each row: each goes, in the given order, into the first row with room for
    it.

    Only the `open_rows` rows opened last are looked at, so the work is linear in the number of examples.
    """
    rows: list[list[int]] = []
    room: list[int] = []
    for index, length in enumerate(lengths):
        first = max(0, len(rows) - open_rows)
        at = next((row for row in range(first, len(rows)) if room[row] >= length), None)
        if at is None:
            at = len(rows)
            rows.append([])
            room.append(context)
        rows[at].append(index)
        room[at] -= length
    return rows


def make_row(examples: Sequence[tuple[np.ndarray, np.ndarray]], context: int, pad: int) -> Row:
    """One row of (tokens, own) examples, filled up with a document of `pad`.

    A target is set where the next token of the same example is the model's `own` to say.
    """
    tokens, targets = np.full(context, pad, np.int64), np.full(context, IGNORE, np.int64)
    positions = np.zeros(context, np.int64)
    start = 0
    for ids, own in examples:
        stop = start + len(ids)
        tokens[start:stop], positions[start:stop] = ids, np.arange(len(ids))
        targets[start : stop - 1] = np.where(own[1:], ids[1:], IGNORE)
        start = stop
    positions[start:] = np.arange(context - start)
    return Row(tokens, positions, targets, start)
