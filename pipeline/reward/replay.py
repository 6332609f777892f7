"""Replay of earlier rounds' labels while a reward model's training continues (paper section 4.1.4).

The paper says 10 % of historical data; read here as the share of a round's training solutions. The draw is a
function of the seed and of what is drawn from: no state, so a resumed run has the same one.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from pipeline.common.rows import read_rows
from pipeline.common.stage import InputError
from pipeline.reward.labels import Solution


def read_labels(files: Sequence[str]) -> list[Solution]:
    """The solutions of `labels.jsonl` files, each once: from the first file that has it."""
    found: dict[Any, Solution] = {}
    for file in files:
        for place, row in read_rows(file):
            try:
                solution = Solution(**row)
            except TypeError as error:
                raise InputError(f"{place}: not a labelled solution ({error})") from error
            found.setdefault(identity(solution), solution)
    return list(found.values())


def identity(solution: Solution) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What makes two solutions the same: prompt and solution, token by token."""
    return tuple(solution.prompt), tuple(solution.tokens)


def replayed(new: Sequence[Solution], history: Sequence[Solution], share: float, seed: int) -> list[Solution]:
    """Solutions of `history` that make up `share` of all together with `new`; none that is in `new`.

    Raises InputError if there are not as many.
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
