"""How long jobs will take: what a running one says itself, else as long as when it was last made, in this run
or another, else as forecast (`pipeline.plan`) where it gets GPUs, else as other jobs of the same program.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from heapq import heapify, heappop, heappush
from pathlib import Path
from statistics import fmean

from pipeline.plan.shapes import known
from pipeline.protocol.errors import InputError
from pipeline.protocol.store import STORE
from workflow.graph import Graph
from workflow.keys import Keys

GPU = "H100"
TAIL = 4096  # bytes of a log in which its last lines are looked for
SAID = re.compile(r", (?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)? left\b")  # by `Progress`


def tail(log: Path) -> list[str]:
    """The last lines of a log, without what a bar drew over."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line for part in text.splitlines() if (line := part.rpartition("\r")[2].strip())]


def said(log: Path) -> float | None:
    """The seconds left that the last line of a log names, if it does."""
    if not (lines := tail(log)) or not (found := SAID.search(lines[-1])):
        return None
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return 3600 * hours + 60 * minutes + seconds


def recorded(name: str, runs: Sequence[Path]) -> float | None:
    """Seconds that the instance took when it was last made, in the first of the runs that has it."""
    for run in runs:
        found = (run / STORE / name).glob("*/run.json")
        for file in sorted(found, key=lambda path: path.stat().st_mtime_ns, reverse=True):
            try:
                return float(json.loads(file.read_text())["seconds"])
            except (OSError, ValueError, KeyError):
                continue
    return None


def forecast(graph: Graph) -> dict[str, float]:
    """Seconds of the jobs of models on GPUs; none where the plan cannot know them."""
    from pipeline.plan.costs import Gpu
    from pipeline.plan.forecast import Assumptions, Planner  # torch behind it takes seconds to import

    flops, memory, bandwidth = known()["gpus"][GPU]
    gpu = Gpu(GPU, flops * 1e12, memory * 1e9, bandwidth * 1e12)
    try:
        rows = Planner(graph.config, Assumptions(gpu)).rows()
    except InputError:
        return {}
    return {f"{row.stage}/{row.model}": row.hours * 3600 / row.gpus for row in rows}


class Timing:
    """The jobs `names` of a graph, of which `gpus` get GPUs. `running`: since when, by the caller's clock.

    A graph may have tens of thousands of jobs, so the end of one changes little of what is kept: all is
    estimated anew only when four times as many jobs of a program have been timed.
    """

    def __init__(self, keys: Keys, names: Iterable[str], gpus: set[str]) -> None:
        self.keys, graph, own = keys, keys.graph, keys.run
        planned = forecast(graph) if gpus else {}
        runs = [own, *(run for run in sorted(own.parent.glob("*")) if run != own)]
        self.seconds = {
            name: recorded(name, runs) or (planned.get(name) if name in gpus else None) for name in names
        }
        self.after: dict[str, list[str]] = {name: [] for name in self.seconds}
        for name in self.seconds:
            for job in graph.before(name).keys() & self.seconds.keys():
                self.after[job].append(name)
        self.running: dict[str, float] = {}
        self.most = 1  # jobs that ran at the same time
        self.ended: Counter[str] = Counter()  # jobs of each program
        self.restart(set())

    def restart(self, done: set[str]) -> None:
        """Estimate anew how long the jobs take that are not `done`."""
        self.done, self.stale, means = done, False, self._means()
        self.expected = {
            name: means.get(self._program(name)) if seconds is None else seconds
            for name, seconds in self.seconds.items()
        }
        self.guessed = {self._program(name) for name, seconds in self.seconds.items() if seconds is None}
        waiting = [self.expected[name] for name in self.seconds.keys() - done]
        self.unknown, self.rest = waiting.count(None), sum(seconds or 0 for seconds in waiting)

        @cache
        def follows(name: str) -> float:
            return max(((self.expected[job] or 0) + follows(job) for job in self.after[name]), default=0.0)

        # The longest chain of jobs after each job, and a heap of the chains that begin with one that waits.
        self.follows = {name: follows(name) for name in self.seconds.keys() - done}
        self.chains = [(-(self.expected[name] or 0) - after, name) for name, after in self.follows.items()]
        heapify(self.chains)

    def _program(self, name: str) -> str:
        return self.keys.graph.nodes[name].module

    def _means(self) -> dict[str, float]:
        """Seconds of the jobs of each program, as far as known."""
        found: dict[str, list[float]] = {}
        for name, seconds in self.seconds.items():
            if seconds is not None:
                found.setdefault(self._program(name), []).append(seconds)
        return {module: fmean(times) for module, times in found.items()}

    def finish(self, name: str, seconds: float) -> None:
        """A job has ended well."""
        self.rest -= self.expected[name] or 0
        self.unknown -= self.expected[name] is None
        self.seconds[name], program = seconds, self._program(name)
        self.done.add(name)
        self.ended[program] += 1
        ended = self.ended[program]
        self.stale |= program in self.guessed and ended.bit_count() == 1 == ended.bit_length() % 2  # 1, 4, 16

    def about(self, name: str) -> float | None:
        """Seconds that a job will take, if any like it is known."""
        if self.stale:
            self.restart(self.done)
        return self.expected[name]

    def left(self, now: float) -> tuple[float, int]:
        """(seconds, jobs of unknown time) until all is done: at least the longest chain of jobs, at least
        all work shared by as many jobs as have run at the same time.
        """
        if self.stale:
            self.restart(self.done)
        work, unknown, chains = self.rest, self.unknown, [self._waits()]
        for name in (name for name in self.running if name not in self.done):
            expected = self.expected[name] or 0
            rest = said(self.keys.log(name))
            if rest is None:
                rest = max(expected - (now - self.running[name]), 0)
            work += rest - expected
            chains.append(rest + self.follows[name])
        return round(max(work / self.most, *chains), 3), unknown

    def _waits(self) -> float:
        """Seconds of the longest chain that begins with a job that waits."""
        aside = []
        while self.chains and (self.chains[0][1] in self.done or self.chains[0][1] in self.running):
            aside.append(heappop(self.chains))
        longest = -self.chains[0][0] if self.chains else 0.0
        for chain in aside:
            if chain[1] not in self.done:
                heappush(self.chains, chain)  # it may fail, and wait again
        return longest
