"""What the page on a running workflow shows, read from files alone: links of results, locks of work folders,
logs, and what training logs at each step. So it does not matter who runs the jobs, and where.
"""

import os
import subprocess
import time
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.protocol.folders import holder
from pipeline.protocol.stage import WORK
from pipeline.stages import MODEL_STAGES, STAGES
from pipeline.training.metrics import EVALUATION, METRICS, SAMPLES, logged
from workflow.graph import Graph, Result
from workflow.keys import Keys
from workflow.terminal import cause
from workflow.timing import Timing, tail

CURVES = ("loss", "reward", "accuracy", "kl", "entropy", "length", "truncated", "grad_norm", "lr")
POINTS = 300  # of a curve
ERRORS = 6
STARTED = ("running", "failed", "stopped")  # what a group of jobs is called after, in this order
GPUS = "name,utilization.gpu,memory.used,memory.total,temperature.gpu"
QUEUE = "%i|%T|%M|%D|%R|%k"
TITLES = {row.name: row.title for row in STAGES}


def group_of(name: str) -> str:
    """Get the box that an instance is in: a model, an iteration of the corpus, else all jobs of a program."""
    stage, _, rest = name.partition("/")
    if stage in MODEL_STAGES or stage in ("evaluate", "tokens"):
        return name
    first = rest.partition("/")[0]
    return f"{stage}/{first}" if stage == "corpus" else f"{stage}/{first.partition('-')[0]}".rstrip("/")


class Watch:
    """What is known of a run, brought up to date by `look`."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.keys = graph, Keys(graph)
        machines = any(_table(command) for command in (["nvidia-smi", "-L"], ["squeue", "--me"]))
        self.timing = Timing(self.keys, graph.nodes, set(graph.nodes) if machines else set())
        self.since: dict[str, float] = {}
        self.groups: dict[str, list[str]] = {}
        for name in graph.nodes:
            self.groups.setdefault(group_of(name), []).append(name)
        self.edges = self._edges()

    def look(self) -> dict[str, Any]:
        """All that the page shows, as JSON values."""
        states = {name: self._state(name) for name in self.graph.nodes}
        counts = Counter(states.values())
        errors = [name for name, state in states.items() if state == "failed"]
        return {
            "run": self.graph.config.run,
            "time": time.strftime("%Y-%m-%d %H:%M:%S"),
            "host": os.uname().nodename,
            "counts": {state: counts[state] for state in ("done", *STARTED, "waiting")},
            "left": self._left(states),
            "stages": [{"name": name, "title": TITLES[name]} for name in TITLES if self.graph.names(name)],
            "groups": [self._group(name, members, states) for name, members in self.groups.items()],
            "edges": self.edges,
            "models": self._models(states),
            "gpus": _table(["nvidia-smi", f"--query-gpu={GPUS}", "--format=csv,noheader"], ","),
            "queue": _table(["squeue", "--me", "--noheader", f"--format={QUEUE}"], "|"),
            "errors": [{"name": name, "why": cause([str(self.keys.log(name))])} for name in errors[-ERRORS:]],
        }

    def _state(self, name: str) -> str:
        """done, running, failed, stopped (work was begun, nobody is at it) or waiting."""
        if self.keys.made(name):
            self.since.pop(name, None)
            return "done"
        if any(holder(folder) for folder in self._work(name)):
            self.since.setdefault(name, time.time())
            return "running"
        self.since.pop(name, None)
        if any(line.startswith("error: ") for line in tail(self.keys.log(name))):
            return "failed"
        return "stopped" if self._work(name) else "waiting"

    def _work(self, name: str) -> list[Path]:
        """Work folders of an instance, the one last worked in at the end."""
        found = []
        for note in (WORK / name).glob("*/identity.json"):
            with suppress(FileNotFoundError):  # its job has just ended
                found.append((note.parent.stat().st_mtime_ns, note.parent))
        return [folder for _, folder in sorted(found)]

    def _left(self, states: dict[str, str]) -> float | None:
        self.timing.done = {name for name, state in states.items() if state == "done"}
        self.timing.running = dict(self.since)
        self.timing.most = max(self.timing.most, len(self.timing.running))
        seconds, _ = self.timing.left(time.time())
        return round(seconds) or None

    def _group(self, name: str, members: list[str], states: dict[str, str]) -> dict[str, Any]:
        counts = Counter(states[member] for member in members)
        state = next((state for state in STARTED if counts[state]), "waiting")
        if counts["done"] == len(members):
            state = "done"
        shown = next((member for member in members if states[member] in STARTED), members[-1])
        lines = tail(self.keys.log(shown)) if state in STARTED else []
        return {
            "name": name,
            "stage": name.partition("/")[0],
            "state": state,
            "done": counts["done"],
            "total": len(members),
            "said": lines[-1] if lines else "",
        }

    def _edges(self) -> list[tuple[str, str]]:
        """(before, after) of groups, without those that follow from others."""
        direct: dict[str, set[str]] = {name: set() for name in self.groups}
        for name, node in self.graph.nodes.items():
            for source in (source.node for _, source in node.inputs if isinstance(source, Result)):
                if group_of(source) != group_of(name):
                    direct[group_of(source)].add(group_of(name))

        @cache
        def reached(name: str) -> set[str]:
            return direct[name].union(*map(reached, direct[name]))

        return [
            (name, after)
            for name, afters in direct.items()
            for after in sorted(afters)
            if not any(after in reached(between) for between in afters)
        ]

    def _models(self, states: dict[str, str]) -> list[dict[str, Any]]:
        """Models that have logged something: those at work first, then the last in the graph."""
        order = (*STARTED, "done")
        names = [name for name in self.graph.nodes if name.partition("/")[0] in MODEL_STAGES]
        begun = sorted(
            (name for name in names[::-1] if states[name] in order), key=lambda n: order.index(states[n])
        )
        return [model for name in begun if (model := self._model(name, states[name]))["step"]]

    def _model(self, name: str, state: str) -> dict[str, Any]:
        work = self._work(name) if state != "done" else []
        folder = work[-1] if work else self.keys.run / name / "data"
        rows, samples = logged(folder / METRICS), logged(folder / SAMPLES)
        curves = {key: points for key in CURVES if len(points := _points(rows, key)) > 1}
        if held_out := _points(logged(folder / EVALUATION), "accuracy"):
            curves["held-out accuracy"] = held_out
        return {
            "name": name,
            "state": state,
            "step": rows[-1]["step"] if rows else 0,
            "steps": self.graph.nodes[name].section.get("steps"),
            "curves": curves,
            "samples": samples[-1]["samples"] if samples else [],
        }


def _points(rows: list[dict[str, Any]], key: str) -> list[tuple[int, float]]:
    """(step, value) of a column, thinned to at most `POINTS`, the last one kept."""
    found = [(row["step"], row[key]) for row in rows if isinstance(row.get(key), int | float)]
    return found[-1 :: -max(1, -(-len(found) // POINTS))][::-1]


def _table(command: list[str], separator: str = ",") -> list[list[str]]:
    """Return the rows that a command prints; none where it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = done.stdout.splitlines() if done.returncode == 0 else []
    return [[cell.strip() for cell in line.split(separator)] for line in lines]
