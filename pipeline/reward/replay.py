"""Replay of earlier rounds' labels while a reward model's training continues (paper section 4.1.4).

The paper says 10 % historical data, read here as the share of a round's training solutions. The draw depends
only on the seed and the candidates, so a resumed run repeats it.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from pipeline.common.rows import read_as
from pipeline.common.stage import InputError
from pipeline.reward.labels import Solution


def read_labels(files: Sequence[str]) -> list[Solution]:
    """The solutions of `labels.jsonl` files; of equal ones the first file's."""
    found: dict[Any, Solution] = {}
    for file in files:
        for place, solution in read_as(Solution, file):
            steps = (solution.ends, solution.hard, solution.soft)
            if any(len(values) != len(solution.steps) for values in steps):
                raise InputError(f"{place}: `steps`, `ends`, `hard` and `soft` differ in length")
            found.setdefault(identity(solution), solution)
    return list(found.values())


def identity(solution: Solution) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Equal for solutions with equal tokens of prompt and solution."""
    return tuple(solution.prompt), tuple(solution.tokens)


def replayed(new: Sequence[Solution], history: Sequence[Solution], share: float, seed: int) -> list[Solution]:
    """Solutions of `history`, none of them in `new`, that make up `share` of both together.

    Raises InputError if `history` has too few.
    """
    wanted = round(len(new) * share / (1 - share))
    known = {identity(solution) for solution in new}
    candidates = [solution for solution in history if identity(solution) not in known]
    if len(candidates) < wanted:
        raise InputError(
            f"reward.replay is {share}: {wanted} earlier solutions beside {len(new)} new ones, but the "
            f"labels of earlier rounds hold {len(candidates)} others to train on; lower it"
        )

    def draw(solution: Solution) -> bytes:
        return hashlib.sha256(f"{seed}/replay/{identity(solution)}".encode()).digest()

    return sorted(candidates, key=draw)[:wanted]
