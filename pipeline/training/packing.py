"""Packed sequences: several documents in one row of fixed length, each with positions from 0."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

IGNORE = -100


@dataclass(frozen=True)
class PackedRow:
    """One sequence of T tokens.

    `targets[t]` is the token that follows `tokens[t]` in its document, or `IGNORE` for no loss. The tokens
    after the first `length` are padding. `source` is the index of the source of the row.
    """

    tokens: np.ndarray
    positions: np.ndarray
    targets: np.ndarray
    length: int
    source: int = 0


def concatenate(lengths: Iterable[int], context: int, open_rows: int = 64) -> list[list[int]]:
    """Return indices of the examples of each row: first fit, in the given order.

    Only the `open_rows` rows opened last are considered, so the time is linear in the number of examples.
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


def best_fit(lengths: Sequence[int], context: int) -> list[list[int]]:
    """Return indices of the examples of each row: best fit decreasing, in n log n. No length may exceed
    `context`.

    Examples of equal length keep the given order; rows come in the order of their first examples.
    """
    rows: list[list[int]] = []
    by_room: dict[int, list[int]] = {}  # room left -> rows
    rooms: list[int] = []  # the keys in rising order
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        at = bisect_left(rooms, lengths[index])
        if at == len(rooms):
            row, room = len(rows), context
            rows.append([])
        else:
            room = rooms[at]
            row = by_room[room].pop()
            if not by_room[room]:
                del by_room[room], rooms[at]
        rows[row].append(index)
        left = room - lengths[index]
        if left not in by_room:
            insort(rooms, left)
        by_room.setdefault(left, []).append(row)
    return sorted(rows, key=min)


def make_row(examples: Sequence[tuple[np.ndarray, np.ndarray]], context: int, pad: int) -> PackedRow:
    """Make a row of (tokens, own) examples, filled up with a document of `pad`.

    The next token of the same example is a target where `own` says that the model writes it.
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
    return PackedRow(tokens, positions, targets, start)
