"""Labelled solutions on disk: a rank reads those that it works on and holds 40 bytes for each of the others.

The labels of 144K questions take tens of gigabytes (paper section 4.2), which no rank has room for.
"""

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, overload

import numpy as np

from pipeline.core.data.rows import read_as
from pipeline.core.stage import InputError
from pipeline.core.watchdog import beat
from pipeline.reward.labels import Solution

# Of each solution: its line (`file`, `start` in bytes), tokens of prompt and solution (`length`), `steps`, a
# hash of the question's text, one of all its tokens (`key`), and its place in the order of replay (`draw`).
ROW = np.dtype(
    [
        ("file", "i4"),
        ("start", "i8"),
        ("length", "i4"),
        ("steps", "i4"),
        ("question", "u4"),
        ("key", "u8"),
        ("draw", "u8"),
    ]
)
Place = tuple[int, int, Solution]  # file, start of the line, what is there


class Solutions(Sequence[Solution]):
    """Solutions in files of JSON lines, read when they are asked for; `table` (N,) has a `ROW` for each."""

    def __init__(self, files: Sequence[str], table: np.ndarray) -> None:
        self.files, self.table = tuple(files), table
        self.opened: dict[int, BinaryIO] = {}

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, which: int) -> Solution: ...

    @overload
    def __getitem__(self, which: "slice | np.ndarray") -> "Solutions": ...

    def __getitem__(self, which: "int | slice | np.ndarray") -> "Solution | Solutions":
        if not isinstance(which, int):
            return Solutions(self.files, self.table[which])
        number, start = self.table[which][["file", "start"]].tolist()
        if number not in self.opened:
            self.opened[number] = Path(self.files[number]).open("rb")  # noqa: SIM115 (kept open)
        self.opened[number].seek(start)
        return Solution(**json.loads(self.opened[number].readline()))

    def held_out(self, share: float) -> np.ndarray:
        """Tell which solutions (N,) are of held-out questions. The question's text alone decides, so that no
        round trains on them.
        """
        return self.table["question"] < share * 2**32


def write_solutions(path: Path, solutions: Iterable[Solution]) -> Solutions:
    """Write one JSON line per solution; holds one at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)

    def written() -> Iterator[Place]:
        with path.open("wb") as file:
            for solution in solutions:
                yield 0, file.tell(), solution
                file.write(json.dumps(vars(solution), ensure_ascii=False).encode() + b"\n")

    return Solutions([str(path)], _table(written()))


def read_labels(files: Sequence[str], seed: int = 0) -> Solutions:
    """Read the solutions of `labels.jsonl` files; of equal ones the first. `seed`: of the replay's draw."""
    found = _table(_read(files), seed)
    _, firsts = np.unique(found["key"], return_index=True)
    return Solutions(files, found[np.sort(firsts)])


def _read(files: Sequence[str]) -> Iterator[Place]:
    for number, name in enumerate(files):
        if not name.endswith(".jsonl"):
            raise InputError(f"{name}: expected a file of labels, labels.jsonl")
        for start, (place, solution) in zip(_starts(name), read_as(Solution, name), strict=True):
            steps = (solution.ends, solution.hard, solution.soft)
            if any(len(values) != len(solution.steps) for values in steps):
                raise InputError(f"{place}: `steps`, `ends`, `hard` and `soft` differ in length")
            yield number, start, solution


def _starts(name: str) -> Iterator[int]:
    """Yield where the lines of a file begin that are not blank; nothing if there is no such file."""
    start = 0
    if Path(name).exists():
        with Path(name).open("rb") as file:
            for line in file:
                if line.strip():
                    yield start
                start += len(line)


def _table(places: Iterable[Place], seed: int | None = None) -> np.ndarray:
    rows = array("B")
    for number, start, solution in places:
        own = tuple(solution.prompt), tuple(solution.tokens)
        drawn = 0 if seed is None else _number(f"{seed}/replay/{own}".encode())
        length = len(solution.prompt) + len(solution.tokens)
        tokens = json.dumps([solution.prompt, solution.tokens]).encode()
        asked = hashlib.sha256(f"held-out/{solution.question}".encode()).digest()
        question, steps = int.from_bytes(asked[:4]), len(solution.steps)
        row = (number, start, length, steps, question, _number(tokens), drawn)
        rows.frombytes(np.array(row, ROW).tobytes())
        beat()
    return np.frombuffer(rows, ROW) if rows else np.empty(0, ROW)


def _number(data: bytes) -> int:
    """Return the first 64 bits of the data's SHA-256."""
    return int.from_bytes(hashlib.sha256(data).digest()[:8])


def draw_earlier(new: Solutions, history: Solutions, share: float) -> Solutions:
    """Draw solutions of `history`, none of them in `new`, that make up `share` of both together (paper 4.1.4:
    10 % historical data, read here as the share of a round's training solutions).

    The draw depends only on the seed of `read_labels` and on the candidates, so a resumed run repeats it.
    Raises InputError if `history` has too few.
    """
    wanted = round(len(new) * share / (1 - share))
    candidates = history[~np.isin(history.table["key"], new.table["key"])]
    if len(candidates) < wanted:
        raise InputError(
            f"reward.replay is {share}: {wanted} earlier solutions beside {len(new)} new ones, but the "
            f"labels of earlier rounds hold {len(candidates)} others to train on; lower it"
        )
    return candidates[np.argsort(candidates.table["draw"], kind="stable")[:wanted]]
