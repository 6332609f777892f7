"""The data of the page's explorer: files beside the page, which it loads when they are needed.

A file is a script `shard("<name>", <JSON>);`, because a page opened from a disk may load scripts but may not
read other files. A web server needs no settings either. Each evaluation file becomes a folder:

- `index.js`: a list for each property of the questions, in the order of the file;
- `text-<n>.js`: `TEXTS` questions with their greedy answers and the most frequent sampled answers;
- `all-<n>.js`: whole lines of the evaluation file, `BYTES` or a little more.

Rollouts of RL become a file or more for each step, without token ids and log-probabilities.
"""

import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec

from pipeline.core.data.rows import raw_lines
from pipeline.core.progress import Progress
from pipeline.core.stage import InputError
from pipeline.report.answers import Row, read_answers

TEXTS, BYTES = 250, 2 << 20
CODED = ("subject", "level", "verdict", "reason", "remarks")  # columns of few values, written as numbers
LISTED = ("ids", "tokens", "extracted", "right", "drawn")
VOTES = 8
SMALL = 64 << 20  # bytes that one process reads in a second
FOLDER = "samples"
encode = msgspec.json.Encoder().encode


def write(root: Path, name: str, parts: list[bytes]) -> None:
    """Write the shard `name`, a list whose elements are JSON."""
    path = root / f"{name}.js"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.writelines((b"shard(", encode(name), b",[\n", b",\n".join(parts), b"]);\n"))


@dataclass
class Counted:
    """What the report keeps of an evaluation file: greedy verdicts by question id, the number of samples."""

    greedy: dict[str, str]
    drawn: int  # samples per question: the smallest number that any question with samples has


class AnswerShards:
    """Writes the shards of one evaluation file; `name` is their folder below `root`."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name = root, f"{FOLDER}/{name}"
        self.columns: dict[str, list[Any]] = {key: [] for key in (*CODED, *LISTED)}
        self.starts: list[int] = []  # number of the first question of each `all` shard
        self.texts: list[bytes] = []
        self.lines: list[bytes] = []
        self.size = 0

    def add(self, line: bytes, row: Row) -> None:
        """Take a question."""
        if not self.lines:
            self.starts.append(len(self.columns["ids"]))
        self.lines.append(line.strip())
        self.size += len(line)
        votes = Counter([(sample.extracted, sample.verdict) for sample in row.samples])
        right = sum(count for (_, verdict), count in votes.items() if verdict == "right")
        known = {"subject": row.subject, "level": row.level, "ids": row.id}
        known |= {"right": right, "drawn": len(row.samples)}
        for key, values in self.columns.items():  # the others are of the greedy answer, null without one
            values.append(known[key] if key in known else getattr(row.greedy, key, None))
        self.texts.append(encode([row.question, row.reference, row.greedy and row.greedy.text, _top(votes)]))
        if len(self.texts) == TEXTS:
            self._write_texts()
        if self.size >= BYTES:
            self._write_lines()

    def _write_texts(self) -> None:
        write(self.root, f"{self.name}/text-{(len(self.columns['ids']) - 1) // TEXTS}", self.texts)
        self.texts = []

    def _write_lines(self) -> None:
        write(self.root, f"{self.name}/all-{len(self.starts) - 1}", self.lines)
        self.lines, self.size = [], 0

    def close(self) -> None:
        """Write what is left, and the index."""
        if self.texts:
            self._write_texts()
        if self.lines:
            self._write_lines()
        coded = {key: _coded(self.columns[key]) for key in CODED}
        write(
            self.root,
            f"{self.name}/index",
            [encode(self.columns | coded | {"starts": self.starts, "texts": TEXTS})],
        )


def _coded(values: list[Any]) -> dict[str, list[Any]]:
    """Return values as numbers, and the names that these stand for."""
    names = ["" if value is None else str(value) for value in values]
    codes = {name: code for code, name in enumerate(dict.fromkeys(names))}
    return {"names": list(codes), "codes": [codes[name] for name in names]}


def _top(votes: Counter[tuple[str | None, str]]) -> list[list[Any]]:
    return [[answer, count, verdict] for (answer, verdict), count in votes.most_common(VOTES)]


def read_and_shard(path: Path, root: Path | None, name: str) -> Counted:
    """Read an evaluation file once: count it and, given a `root`, write its shards."""
    greedy: dict[str, str] = {}
    drawn: list[int] = []
    shards = AnswerShards(root, name) if root else None
    for line, row in read_answers(path):
        if row.greedy:
            greedy[row.id] = row.greedy.verdict
        if row.samples:
            drawn.append(len(row.samples))
        if shards:
            shards.add(line, row)
    if shards:
        shards.close()
    return Counted(greedy, min(drawn, default=0))


Job = tuple[Path, Path | None, str]  # arguments of `read_and_shard`


def count_all(jobs: Sequence[Job]) -> list[Counted]:
    """`read_and_shard` of many files, in their order; on all cores if they are large."""
    sizes = [path.stat().st_size if path.exists() else 0 for path, _, _ in jobs]
    if sum(sizes) < SMALL:
        return [read_and_shard(*job) for job in jobs]
    found: dict[int, Counted] = {}
    order = sorted(range(len(jobs)), key=lambda place: -sizes[place])
    cores = len(os.sched_getaffinity(0))
    with (
        ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool,
        Progress("read answers", len(jobs), unit="file") as bar,
    ):
        made = pool.map(read_and_shard, *zip(*(jobs[place] for place in order), strict=True))
        for place, counted in zip(order, made, strict=True):
            found[place] = counted
            bar.update()
    return [found[place] for place in range(len(jobs))]


class Output(msgspec.Struct):
    """What the page shows of an output of RL."""

    text: str
    reward: float
    finish_reason: str = "stop"
    rewards: dict[str, float] = {}
    verdict: str = ""
    extracted: str | None = None
    reason: str = ""
    tokens: list[int] | int = 0  # the number of those that the model wrote is all that is shown
    tool_spans: list[tuple[int, int]] = []


class Rollouts(msgspec.Struct):
    """What the page shows of a question's outputs in a step."""

    id: str
    question: str
    reference: Any
    outputs: list[Output]


_GROUPS = msgspec.json.Decoder(Rollouts)


def shard_rollouts(folder: Path, root: Path, name: str) -> list[list[Any]]:
    """Write the shards of a folder of rollouts; (step, mean reward, number of shards) of each step."""
    steps = []
    for path in sorted(folder.glob("step-*.jsonl.zst")):
        step = int(path.name.split(".")[0].removeprefix("step-"))
        rewards: list[float] = []
        parts: list[bytes] = []
        written = 0
        try:
            for line in raw_lines(path):
                group = _GROUPS.decode(line)
                rewards += [output.reward for output in group.outputs]
                for output in group.outputs:
                    output.tokens = len(output.tokens) - sum(end - first for first, end in output.tool_spans)
                    output.tool_spans = []
                parts.append(encode(group))
                if sum(map(len, parts)) >= BYTES:
                    write(root, f"{FOLDER}/{name}/{step}-{written}", parts)
                    parts, written = [], written + 1
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: rollouts that cannot be read ({error})") from error
        if parts:
            write(root, f"{FOLDER}/{name}/{step}-{written}", parts)
            written += 1
        steps.append([step, sum(rewards) / max(len(rewards), 1), written])
    return steps
