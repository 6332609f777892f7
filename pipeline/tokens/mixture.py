"""The order of training: source, pass and window of the n-th sequence, computed from n alone.

Every sequence has the same length, so shares of sequences are shares of tokens. Sources follow a periodic
schedule in which, at every prefix, each source is within one sequence of its share. Each pass over a
source visits its windows in another order, a keyed permutation. Nothing is stored or replayed: a resumed
run, or one with another number of ranks, needs only n.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import gcd, lcm
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from pipeline.core.stage import InputError
from pipeline.tokens.files import PartFacts, TokenFile, TokenParts, part_path
from pipeline.training.packing import IGNORE, PackedRow

LONGEST_PERIOD = 100_000
ROUNDS = 4
MASK64 = 2**64 - 1
OPEN_PARTS = 128  # of all sources; each takes two of the 1,024 files that a process may usually open


def schedule(shares: Sequence[float]) -> np.ndarray:
    """One period of the order of sources, as indices; at every prefix of its repetition each source is within
    one sequence of its share.

    Earliest deadline first: among the sources that are not ahead of their share, the one that would fall
    behind first comes next, which meets all deadlines if that is possible. Raises InputError for shares whose
    period is longer than `LONGEST_PERIOD`.
    """
    exact = [Fraction(str(share)) for share in shares]
    unit = lcm(*(share.denominator for share in exact))
    whole = [int(share * unit) for share in exact]
    weights = np.array(whole) // gcd(*whole)
    period = int(weights.sum())
    if period > LONGEST_PERIOD:
        raise InputError(f"mixture shares {list(shares)}: too fine; give each with fewer decimals")
    counts = np.zeros(len(weights), dtype=int)
    order = np.empty(period, dtype=np.int32)
    for n in range(period):
        deadlines = -(-(counts + 1) * period // weights)
        deadlines[counts * period >= weights * (n + 1)] = period + 1
        order[n] = deadlines.argmin()
        counts[order[n]] += 1
    return order


def permute(index: int, size: int, key: int) -> int:
    """Permute range(size), keyed: the image of `index` by a Feistel network with cycle walking."""
    half = max(1, (size - 1).bit_length() + 1 >> 1)
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for turn in range(ROUNDS):
            left, right = right, left ^ (_mix(right ^ _mix(key + turn)) & mask)
        index = left << half | right
        if index < size:
            return index


def _mix(value: int) -> int:
    """Return the finaliser of SplitMix64."""
    value = (value + 0x9E3779B97F4A7C15) & MASK64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK64
    return value ^ value >> 31


@dataclass(frozen=True)
class Place:
    """The origin of a sequence: index of its source, pass over it, window in it."""

    source: int
    epoch: int
    window: int


class Source(BaseModel):
    """What `tokens.json` says of a source and is needed to read it."""

    share: float = Field(gt=0, allow_inf_nan=False)
    parts: list[PartFacts] = Field(min_length=1)


class Facts(BaseModel):
    """What `tokens.json` says of token files and is needed to read them."""

    dtype: Literal["<u2", "<u4"]
    sources: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")], Source] = Field(min_length=1)


def read_facts(path: Path) -> Facts:
    """Return the contents of a `tokens.json`. Raises InputError if it is missing or damaged."""
    try:
        return Facts.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; expected a folder of token files") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: damaged ({where} {first['msg']}); rerun tokens") from error


class Mixture:
    """The sequences of a mixture by number. `folder` is the output of `python -m pipeline.tokens`."""

    def __init__(self, folder: Path, context: int, seed: int) -> None:
        facts = read_facts(folder / "tokens.json")
        self.names = list(facts.sources)
        self.context, self.seed = context, seed
        opened = lru_cache(OPEN_PARTS)(lambda base: TokenFile(base, facts.dtype))
        self.files = []
        for name, source in facts.sources.items():
            bases = [part_path(folder, name, number) for number in range(len(source.parts))]
            self.files.append(TokenParts(bases, source.parts, facts.dtype, opened))
        self.windows = [(file.length - 1) // context for file in self.files]
        for name, file, windows in zip(self.names, self.files, self.windows, strict=True):
            if windows < 1:
                raise InputError(
                    f"{folder}: the {file.length} tokens of source {name!r} do not fill one sequence of "
                    f"{context}"
                )
        self.order = schedule([source.share for source in facts.sources.values()])
        self.rank = np.zeros_like(self.order)  # earlier sequences of the same source in the period
        for source in range(len(self.names)):
            at = self.order == source
            self.rank[at] = np.arange(at.sum())
        self.per_period = np.bincount(self.order, minlength=len(self.names))

    def place(self, n: int) -> Place:
        """Source, pass and window of sequence `n`."""
        period, offset = divmod(n, len(self.order))
        source = int(self.order[offset])
        index = period * int(self.per_period[source]) + int(self.rank[offset])
        epoch, index = divmod(index, self.windows[source])
        text = f"{self.seed}/{self.names[source]}/{epoch}"
        key = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
        return Place(source, epoch, permute(index, self.windows[source], key))

    def counts(self, sequences: int) -> list[int]:
        """Return the number of sequences from each source among the first `sequences`."""
        periods, rest = divmod(sequences, len(self.order))
        first = np.bincount(self.order[:rest], minlength=len(self.names))
        return (periods * self.per_period + first).tolist()

    def row(self, n: int) -> PackedRow:
        """Sequence `n`, in which positions restart with each document, whose last token has no target."""
        place = self.place(n)
        tokens, ends = self.files[place.source].window(place.window * self.context, self.context)
        positions, targets = np.arange(self.context), tokens[1:].copy()
        targets[ends - 1] = IGNORE
        inside = ends[ends < self.context]
        starts = np.zeros(self.context, dtype=np.int64)
        starts[inside] = inside
        positions -= np.maximum.accumulate(starts)
        return PackedRow(tokens[:-1], positions, targets, self.context, place.source)
