"""How long jobs will take: what a running one says itself, else as long as when it was last made, in this run
or another, else as forecast (`workflow.forecast`) where it gets GPUs, else as other jobs of the same program.
The training of another model says nothing.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError
from pipeline.core.identity import read_manifest
from pipeline.core.store import STORE
from workflow.graph import Graph
from workflow.keys import Keys

GPU = "H100"
TAIL = 4096  # bytes of a log in which its last lines are looked for
SAID = re.compile(r", (?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)? left\b")  # by `Progress`


def tail(log: Path, size: int = TAIL) -> list[str]:
    """Read the lines in the last `size` bytes of a log, without what a bar drew over."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - size))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line for part in text.splitlines() if (line := part.rpartition("\r")[2].strip())]


def said(log: Path) -> float | None:
    """Read the seconds left that the last line of a log names, if it does."""
    if not (lines := tail(log)) or not (found := SAID.search(lines[-1])):
        return None
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return 3600 * hours + 60 * minutes + seconds


def recorded(name: str, runs: Sequence[Path], section: Mapping[str, Any] | None = None) -> float | None:
    """Read the seconds that the instance took when it was last made, in the first of the runs that has it;
    with the keys of `section`, but for the seed, if it is given.
    """
    for run in runs:
        found = (run / STORE / name).glob("*/run.json")
        for file in sorted(found, key=lambda path: path.stat().st_mtime_ns, reverse=True):
            try:
                made = read_manifest(file.with_name("manifest.json"))["config"]
                if section is None or {**made, "seed": 0} == {**section, "seed": 0}:
                    return float(json.loads(file.read_text())["seconds"])
            except (OSError, ValueError, KeyError, InputError):
                continue
    return None


def forecast(graph: Graph) -> dict[str, float]:
    """Forecast the seconds of the jobs of models on GPUs; none where the plan cannot know them."""
    from workflow.forecast.costs import gpu_named
    from workflow.forecast.forecast import Assumptions, Planner  # torch behind it takes seconds to import

    try:
        rows = Planner(graph.config, Assumptions(gpu_named(GPU))).rows()
    except InputError:
        return {}
    return {f"{row.stage}/{row.model}": row.hours * 3600 / row.gpus for row in rows}


class Timing:
    """The jobs `names` of a graph, of which `gpus` get GPUs. `running`: since when, by the caller's clock;
    `done`: those that have ended well; `most`: how many have run at the same time.
    """

    def __init__(self, keys: Keys, names: Iterable[str], gpus: set[str]) -> None:
        self.keys, graph, own, jobs = keys, keys.graph, keys.run, set(names)
        planned = forecast(graph) if gpus else {}
        self.others = [run for run in sorted(own.parent.glob("*")) if run != own]
        self.counts, self.totals = Counter[str](), Counter[str]()  # of each program: jobs of known time
        self.seconds: dict[str, float | None] = {name: None for name in graph.nodes if name in jobs}
        self.after: dict[str, list[str]] = {name: [] for name in self.seconds}
        for name in self.seconds:
            if seconds := self.before(name) or (planned.get(name) if name in gpus else None):
                self.learn(name, seconds)
            for job in graph.before(name).keys() & self.seconds.keys():
                self.after[job].append(name)
        self.running: dict[str, float] = {}
        self.done: set[str] = set()
        self.most = 1

    def before(self, name: str) -> float | None:
        """Read the seconds that an instance of the graph took when it was last made, here or elsewhere."""
        node = self.keys.graph.nodes[name]
        like = node.section if node.kind.trains else None  # of this name may be any model in another run
        return recorded(name, [self.keys.run]) or recorded(name, self.others, like)

    def liken(self, names: Iterable[str], to: str) -> None:
        """Take the seconds that `to` took before for the time of the jobs among `names` that have none."""
        seconds = self.before(to)
        for name in names if seconds else ():
            if name in self.seconds and self.seconds[name] is None:
                self.learn(name, seconds)

    def learn(self, name: str, seconds: float) -> None:
        """Take `seconds` for the time of a job."""
        program, before = self._program(name), self.seconds[name]
        self.counts[program] += before is None
        self.totals[program] += seconds - (before or 0)
        self.seconds[name] = seconds

    def finish(self, name: str, seconds: float) -> None:
        """Note that a job has ended well, and how long it took."""
        self.learn(name, seconds)
        self.done.add(name)

    def about(self, name: str) -> float | None:
        """Estimate the seconds of a job: its own, or the mean of its program unless that trains a model; None
        if none is known.
        """
        program, trains = self._program(name), self.keys.graph.nodes[name].kind.trains
        if self.seconds[name] is None and self.counts[program] and not trains:
            return self.totals[program] / self.counts[program]
        return self.seconds[name]

    def left(self, now: float) -> tuple[float, int]:
        """Estimate (seconds, jobs of unknown time) until all is done: at least the longest chain of jobs, at
        least all work shared by as many jobs as have run at the same time.
        """
        work, unknown = 0.0, 0
        chains: dict[str, float] = {}  # seconds of the longest chain that begins with a job
        for name in reversed(self.seconds):  # followers first
            if name in self.done:
                continue
            expected = self.about(name)
            unknown += expected is None
            rest = expected or 0
            if name in self.running:
                said_left = said(self.keys.log(name))
                rest = max(rest - (now - self.running[name]), 0) if said_left is None else said_left
            work += rest
            chains[name] = rest + max((chains.get(job, 0) for job in self.after[name]), default=0)
        return round(max(work / self.most, *chains.values(), 0), 3), unknown

    def _program(self, name: str) -> str:
        return self.keys.graph.nodes[name].module
