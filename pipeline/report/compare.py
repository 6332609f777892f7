"""Models compared on the same questions: paired differences with 95 % intervals, and curves over K.

Differences are taken question by question, which removes the spread between easy and hard questions. Base
models are asked few-shot and the others by chat (paper section 8.1), so models are compared by kind of
solution (cot, pal, tool), each in its own mode of that kind.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from mathverdict.answers import Verdict

from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.metrics import majority, pass_at_k
from pipeline.intervals import estimate_effect, paired_difference
from pipeline.report.answers import Row, rows_of
from pipeline.report.collect import ORDER, Run, read_json
from pipeline.report.selection import families
from pipeline.report.shards import count_all

Task = tuple[str, str]  # benchmark, kind of solution
VOTING = {"maj@k": "Maj@K", "pass@k": "Pass@K"}  # metrics over K samples, and their titles
Bounded = tuple[float, float, list[float]]  # x, value, 95 % interval


@dataclass(frozen=True)
class Difference:
    """Mean paired difference `better - worse` over `n` shared questions, as a share (0.05 = 5 points)."""

    better: str
    worse: str
    benchmark: str
    kind: str
    values: tuple[float, float]  # of better and worse
    mean: float
    ci95: tuple[float, float]
    n: int
    gained: int  # questions on which better is ahead
    lost: int

    @property
    def points(self) -> tuple[str, str, str]:
        """Mean and bounds in points, as text."""
        mean, low, high = (f"{100 * value:+.1f}" for value in (self.mean, *self.ci95))
        return mean, low, high


@dataclass(frozen=True)
class Headline:
    """The seeds of a model, the models that they started from, and the gain."""

    better: list[str]
    worse: list[str]
    gain: Difference


def arrays(
    better: list[dict[str, float]], worse: list[dict[str, float]]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Two arrays (seeds, questions) of values by question id, over the ids that all have; None without."""
    shared = sorted(set.intersection(*(set(found) for found in (*better, *worse))))
    if not shared:
        return None
    first, second = (np.array([[found[key] for key in shared] for found in side]) for side in (better, worse))
    return first, second


def difference(
    names: tuple[str, str],
    task: Task,
    better: list[dict[str, float]],
    worse: list[dict[str, float]],
    *,
    matched: bool = False,
    spread: float = 0.0,
) -> Difference | None:
    """Difference of values by question id, over the ids that all have; None if there are none. With several
    seeds the interval covers questions and seeds (`pipeline.intervals`), with one seed and no `spread`
    of seeds only questions.
    """
    if (sides := arrays(better, worse)) is None:
        return None
    first, second = (side.mean(axis=0) for side in sides)
    found: dict[str, Any] = paired_difference(second.tolist(), first.tolist())
    means = (float(first.mean()), float(second.mean()))
    mean, bounds = found.pop("difference"), found.pop("ci95")
    if spread or len(better) > 1 or len(worse) > 1:
        bounds = estimate_effect([sides], matched=matched, spread=spread).interval()
    return Difference(*names, *task, means, mean, (bounds[0], bounds[1]), **found)


@dataclass
class Answers:
    """One model on one task: greedy verdicts by question id, and `drawn` samples of each question, which stay
    on disk: `rows` reads them.
    """

    mode: str
    rows: Callable[[], Iterable[Row]] = tuple
    greedy: dict[str, str] = field(default_factory=dict)
    drawn: int = 0
    votes: dict[int, dict[str, dict[str, float]]] = field(default_factory=dict)

    @property
    def failed(self) -> float:
        """Share of the greedy answers on which the grader failed."""
        return sum(verdict == "failed" for verdict in self.greedy.values()) / max(1, len(self.greedy))

    def accuracy(self) -> dict[str, float]:
        """1.0 where the greedy answer is right, by question id."""
        return {key: float(verdict == "right") for key, verdict in self.greedy.items()}

    def at_k(self, metric: str, k: int) -> dict[str, float]:
        """Return `maj@k` or `pass@k` by question id, by the evaluation's own definitions of both."""
        if k not in self.votes:
            found: dict[str, dict[str, float]] = {name: {} for name in VOTING}
            for row in self.rows():
                if row.samples:
                    found["maj@k"][row.id], found["pass@k"][row.id] = _maj_and_pass(row, k)
            self.votes[k] = found
        return self.votes[k][metric]


def _maj_and_pass(row: Row, k: int) -> tuple[float, float]:
    verdicts = [Verdict(sample.verdict, sample.extracted, sample.reason) for sample in row.samples]
    right = sum(verdict.right for verdict in verdicts)
    item = Item(row.id, row.question, str(row.reference))
    return majority(item, verdicts, [k])[k], pass_at_k(len(verdicts), right, k)


Value = Callable[[Answers], dict[str, float]]


class Results:
    """Evaluations of a run's models: `answers[model][task]`, `scores[model][benchmark][mode]` as stored. With
    `shards`, a folder, all answers are written there for the page's explorer.
    """

    def __init__(self, run: Run, shards: Path | None = None) -> None:
        self.run = run
        self.scores: dict[str, dict[str, Any]] = {}
        self.answers: dict[str, dict[Task, Answers]] = {}
        files: list[tuple[Answers, Path, str]] = []
        for name in run.models:
            if evaluation := run.finished.get(f"evaluate/{name}"):
                self.scores[name] = read_json(evaluation.data / "scores.json")
                self.answers[name] = {}
                for benchmark, modes in self.scores[name].items():
                    for mode in modes:
                        kind = mode.rpartition("_")[2]
                        key = kind if (benchmark, kind) not in self.answers[name] else mode
                        path = evaluation.data / f"{benchmark}.{mode}.jsonl"
                        answers = Answers(mode, partial(rows_of, path))
                        self.answers[name][benchmark, key] = answers
                        files.append((answers, path, f"{name}/{benchmark}.{mode}"))
        counted = count_all([(path, shards, folder) for _, path, folder in files])
        for (answers, _, _), found in zip(files, counted, strict=True):
            answers.greedy, answers.drawn = found.greedy, found.drawn

    def scored(self) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
        """(model, benchmark, mode, its scores) of everything that was scored."""
        for model, benchmarks in self.scores.items():
            for benchmark, modes in benchmarks.items():
                for mode, score in modes.items():
                    yield model, benchmark, mode, score

    @cached_property
    def tasks(self) -> list[Task]:
        """All tasks that any model was evaluated on."""
        return list(dict.fromkeys(task for tasks in self.answers.values() for task in tasks))

    def score(self, name: str, task: Task) -> dict[str, Any] | None:
        """Return a model's stored score on a task."""
        answers = self.answers.get(name, {}).get(task)
        return self.scores[name][task[0]][answers.mode] if answers else None

    def values(self, names: list[str], task: Task, value: Value) -> list[dict[str, float]] | None:
        """`value` by question id of each model; None if any is not evaluated."""
        found = [self.answers[name][task] for name in names if task in self.answers.get(name, {})]
        return [value(answers) for answers in found] if len(found) == len(names) else None

    def compare(self, better: list[str], worse: list[str], task: Task, value: Value) -> Difference | None:
        """`value` of two sides, each the seeds of a model; None if any is not evaluated."""
        sides = self.values(better, task, value), self.values(worse, task, value)
        if sides[0] is None or sides[1] is None:
            return None
        return difference((side_name(better), side_name(worse)), task, *sides)

    @cached_property
    def gains(self) -> list[Difference]:
        """Greedy accuracy of every model minus that of the model it started from, on every shared task."""
        pairs = [(name, model.parent) for name, model in self.run.models.items() if model.parent]
        found = [
            self.compare([name], [parent], task, Answers.accuracy)
            for name, parent in pairs
            for task in self.tasks
        ]
        return [gain for gain in found if gain is not None]

    def starts(self, names: list[str]) -> list[str]:
        """Return the models that a family's seeds started from; none unless all of them were evaluated."""
        parents = [self.run.models[name].parent for name in names]
        known = all(name in self.answers for name in (*names, *parents))
        return sorted({parent for parent in parents if parent}) if known else []

    @cached_property
    def headline(self) -> Headline | None:
        """The gain that the report opens with: of the last stage and round, by GRPO before other methods,
        on the most questions. None where several families compete for it.
        """
        models = self.run.models

        def place(names: list[str]) -> tuple[int, bool, int]:
            model = models[names[0]]
            stage, rounds = model.stage, 0
            while (model.parent in models) and (model := models[model.parent]).stage == stage:
                rounds += 1
            return ORDER.index(stage), models[names[0]].config.get("method", "grpo") == "grpo", rounds

        found = [names for names in families({}, self.run) if self.starts(names)]
        last = max(map(place, found), default=None)
        best = [names for names in found if place(names) == last]
        if len(best) != 1:
            return None
        better, worse = best[0], self.starts(best[0])
        gains = [self.compare(better, worse, task, Answers.accuracy) for task in self.tasks]
        most = max(filter(None, gains), key=lambda gain: gain.n, default=None)
        return Headline(better, worse, most) if most else None

    def curve(self, name: str, task: Task, metric: str) -> list[Bounded]:
        """(K, value, 95 % interval) of `maj@k` or `pass@k`, smallest K first; empty without samples."""
        return by_k(self.score(name, task) or {}, metric)


def by_k(scores: dict[str, Any], metric: str) -> list[Bounded]:
    """(K, value, 95 % interval) of a metric stored as K -> value, smallest K first."""
    intervals = scores.get(f"{metric}_ci95", {})
    values = (scores.get(metric) or {}).items()
    return sorted((int(k), value, intervals.get(k, [value, value])) for k, value in values)


def side_name(names: list[str]) -> str:
    """Return a model, or the seeds of one, in print."""
    return names[0] if len(names) == 1 else f"mean of {', '.join(names)}"
