"""Reads graded answers, line by line: what the report counts, without keeping the texts.

A run may have tens of millions of samples. Only the fields named here are decoded, and one question is held
at a time.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from pipeline.core.data.rows import raw_lines
from pipeline.core.stage import InputError


class Sample(msgspec.Struct, gc=False):
    """A sampled answer's final answer and verdict."""

    verdict: str
    extracted: str | None = None
    reason: str = ""


class Greedy(msgspec.Struct, gc=False, omit_defaults=True):
    """A greedy answer."""

    verdict: str = "undecided"
    extracted: str | None = None
    reason: str = ""
    text: str = ""
    finish_reason: str = "stop"
    tokens: int | None = None
    program: str | None = None

    @property
    def remarks(self) -> str:
        """Why it ended, unless it simply stopped, and how its last program ended."""
        reason = {"stop": "", "length": "cut off"}.get(
            self.finish_reason, self.finish_reason.replace("_", " ")
        )
        return " · ".join(filter(None, [reason, f"program: {self.program}" if self.program else ""]))


class Row(msgspec.Struct):
    """A question of an evaluation's file with its answers."""

    id: str
    question: str = ""
    reference: Any = ""
    subject: Any = None
    level: Any = None
    greedy: Greedy | None = None
    samples: list[Sample] = []


_DECODER = msgspec.json.Decoder(Row)


def read_answers(path: Path) -> Iterator[tuple[bytes, Row]]:
    """(line, row) for each question of a file. Raises InputError naming the line that is none."""
    number = 0
    try:
        for line in raw_lines(path):
            number += 1
            if line.strip():
                yield line, _DECODER.decode(line)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: line {number}: not a graded question ({error})") from error
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: line {number}: not JSON ({error})") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read after line {number} ({error})") from error


def rows_of(path: Path) -> Iterator[Row]:
    """Return the questions of a file."""
    return (row for _, row in read_answers(path))
