"""Tables of the page: the paper's numbers with ours beside them, cost and provenance."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.common.stage import InputError
from pipeline.report.collect import Finished, Run
from pipeline.report.compare import Difference, Results, Task


@dataclass(frozen=True)
class Cell:
    """A number in percent (or points), perhaps with its interval; `value` None prints as a dash."""

    value: float | None = None
    ci95: tuple[float, float] | None = None
    signed: bool = False


@dataclass(frozen=True)
class Row:
    """A line of a table: whose it is (`paper`, `ours` or `gain`), a label, a remark and its cells."""

    kind: str
    label: str
    remark: str
    cells: list[Cell]


def read_paper(path: Path) -> dict[str, Any]:
    """The paper's numbers."""
    try:
        return yaml.safe_load(path.read_text())
    except FileNotFoundError as error:
        raise InputError(f"{path}: not found (config key report.paper)") from error


def title(paper: dict[str, Any], benchmark: str, kind: str = "cot") -> str:
    """How a benchmark, and a kind of solution other than chain of thought, is called in print."""
    name = paper["benchmarks"].get(benchmark, benchmark)
    return name if kind == "cot" else f"{name} ({kind})"


def columns(paper: dict[str, Any], results: Results) -> list[Task]:
    """What was measured, then the paper's GSM8K and MATH where they were not."""
    measured = results.tasks
    return measured + [(name, "cot") for name in ("gsm8k", "math") if (name, "cot") not in measured]


def _score(results: Results, model: str, task: Task) -> Cell:
    score = results.score(model, task)
    if score is None:
        return Cell()
    low, high = score["ci95"]
    return Cell(100 * score["accuracy"], (100 * low, 100 * high))


def _gain(gain: Difference | None) -> Cell:
    if gain is None:
        return Cell(signed=True)
    low, high = gain.ci95
    return Cell(100 * gain.mean, (100 * low, 100 * high), signed=True)


def size(parameters: int | None) -> str:
    """Parameters as 1.9M or 6.9B."""
    if not parameters:
        return ""
    unit, name = next(
        (unit, name) for unit, name in ((1e9, "B"), (1e6, "M"), (1e3, "K"), (1, "")) if parameters >= unit
    )
    return f"{parameters / unit:.3g}{name}"


def _paper_rows(paper: dict[str, Any], tasks: list[Task]) -> dict[str, list[Row]]:
    """The paper's rows by role: accuracy, and its gain over the role before."""
    found: dict[str, list[Row]] = {}
    before: dict[str, float] = {}
    for entry in paper["headline"]:
        numbers = {task: entry["accuracy"].get(task[0]) if task[1] == "cot" else None for task in tasks}
        cells = [Cell(number) for number in numbers.values()]
        found[entry["role"]] = [Row("paper", entry["model"], entry["section"], cells)]
        if before:
            gains = [
                numbers[task] - before[task] if numbers[task] and before[task] else None for task in tasks
            ]
            found[entry["role"]].append(
                Row("gain", "gain", "paper", [Cell(gain, signed=True) for gain in gains])
            )
        before = numbers
    return found


def headline(paper: dict[str, Any], run: Run, results: Results) -> list[Row]:
    """Paper and ours, stage by stage; each of ours with its paired gain over the model it started from."""
    tasks, rows = columns(paper, results), []
    gains = {(gain.better, gain.benchmark, gain.kind): gain for gain in results.gains}
    for role, of_paper in _paper_rows(paper, tasks).items():
        rows += of_paper
        for model in run.models.values():
            if model.stage == role and model.name in results.scores:
                cells = [_score(results, model.name, task) for task in tasks]
                rows.append(Row("ours", model.name, size(model.parameters), cells))
                if model.parent in results.scores:
                    cells = [_gain(gains.get((model.name, *task))) for task in tasks]
                    rows.append(Row("gain", f"gain over {model.parent}", "paired", cells))
    return rows


def paper_tables(paper: dict[str, Any], run: Run, results: Results) -> list[dict[str, Any]]:
    """The paper's tables 1 to 5, each with our models of the same stage where a column was measured."""
    found = []
    for table in paper["tables"]:
        tasks = [(benchmark, table.get("kind", "cot")) for benchmark in table["columns"]]
        rows = [
            Row("paper", name, "", [Cell(number) for number in numbers])
            for name, numbers in table["rows"].items()
        ]
        for model in run.models.values():
            cells = [_score(results, model.name, task) for task in tasks]
            if model.stage in table["role"].split() and any(cell.value is not None for cell in cells):
                rows.append(Row("ours", model.name, size(model.parameters), cells))
        names = [title(paper, name) for name in table["columns"]]
        ours = any(row.kind == "ours" for row in rows)
        found.append({"title": table["title"], "columns": names, "rows": rows, "ours": ours})
    return found


def cost(run: Run) -> dict[str, Any]:
    """Seconds in all and by stage, the largest memory, and the counters of work that components did."""
    stages: Counter[str] = Counter()
    counters: Counter[str] = Counter()
    for node in run.nodes.values():
        stages[node.stage] += node.seconds
        counters.update(node.run.get("counters", {}))
    seconds = sum(stages.values())
    return {
        "seconds": round(seconds, 1),
        "hours": round(seconds / 3600, 4),
        "stages": {stage: round(value, 1) for stage, value in stages.items()},
        "peak_rss_mb": max((node.run.get("peak_rss_mb", 0) for node in run.nodes.values()), default=0),
        "hosts": sorted({node.run["host"] for node in run.nodes.values() if "host" in node.run}),
        "counters": dict(sorted(counters.items())),
    }


def packages(nodes: list[Finished]) -> dict[str, list[str]]:
    """Versions of each component over all manifests; more than one means that a run mixes them."""
    found: dict[str, set[str]] = {}
    for node in nodes:
        for name, version in node.manifest.get("packages", {}).items():
            found.setdefault(name, set()).add(version)
    return {name: sorted(versions) for name, versions in sorted(found.items())}


def scores(results: Results) -> list[dict[str, Any]]:
    """One row per model, benchmark and mode: greedy accuracy, and Maj@K and Pass@K at the largest K."""
    found = []
    for model, benchmarks in results.scores.items():
        for benchmark, modes in benchmarks.items():
            for mode, score in modes.items():
                low, high = score["ci95"]
                row = {"model": model, "benchmark": benchmark, "mode": mode, "score": score}
                row["greedy"] = Cell(100 * score["accuracy"], (100 * low, 100 * high))
                row |= {"maj": _largest(score, "maj@k"), "passed": _largest(score, "pass@k")}
                found.append(row)
    return found


def _largest(score: dict[str, Any], metric: str) -> tuple[int, Cell]:
    """(K, value) at the largest K; (0, a dash) without samples."""
    values = score.get(metric) or {}
    if not values:
        return 0, Cell()
    k = max(values, key=int)
    interval = score.get(f"{metric}_ci95", {}).get(k)
    return int(k), Cell(100 * values[k], (100 * interval[0], 100 * interval[1]) if interval else None)
