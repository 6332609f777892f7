"""Two runs side by side: `python -m pipeline.report --compare results/A results/B FOLDER`.

The page pairs the models that have the same name in both by question, says which of their settings differ,
and has the explorer over the answers of both runs.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.protocol.manifest import write_json
from pipeline.report.chapters.samples import tasks_of
from pipeline.report.compare import Answers, Difference, Results, difference
from pipeline.report.export import open_run
from pipeline.report.page import Chapter, render

Pair = tuple[Results, Results]


def names_of(first: Path, second: Path) -> tuple[str, str]:
    """Return what the page calls two runs: the shortest ends of their paths that differ."""
    paths = [path.absolute().parts for path in (first, second)]
    for length in range(1, max(map(len, paths)) + 1):
        names = tuple("/".join(part for part in parts[-length:] if part != "/") for parts in paths)
        if names[0] != names[1]:
            break
    return names[0], names[1]


def differences(runs: Pair, names: tuple[str, str]) -> list[Difference]:
    """Greedy accuracy of each model of the second run minus that of the first, on every task of both."""
    found = []
    for model, tasks in runs[0].answers.items():
        for task, answers in tasks.items():
            other = runs[1].answers.get(model, {}).get(task)
            if other:
                sides = [Answers.accuracy(other)], [Answers.accuracy(answers)]
                labels = (f"{names[1]}: {model}", f"{names[0]}: {model}")
                found.append(difference(labels, task, *sides))
    return [row for row in found if row is not None]


def changes(runs: Pair) -> list[dict[str, Any]]:
    """Keys of results in both runs that differ: result, key, value in each."""
    found = []
    for name, result in runs[0].run.finished.items():
        if other := runs[1].run.finished.get(name):
            found += [{"result": name} | row for row in differing(result.config, other.config)]
    return found


def differing(*sections: dict[str, Any]) -> list[dict[str, Any]]:
    """Keys in which two sections differ: key, value in each."""
    values = [_flat(section) for section in sections]
    keys = sorted(set().union(*values))
    pairs = ((key, [side.get(key) for side in values]) for key in keys)
    return [{"key": key, "values": pair} for key, pair in pairs if pair[0] != pair[1]]


def _flat(section: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Keys of a section with those of its parts, as `rewards.functions`."""
    found = {}
    for key, value in section.items():
        inside = isinstance(value, dict) and value
        found |= _flat(value, f"{prefix}{key}.") if inside else {f"{prefix}{key}": value}
    return found


def compare(first: Path, second: Path, folder: Path) -> None:
    """Write `index.html`, the files of its explorer and `comparison.json` into a folder."""
    names = names_of(first, second)
    folder.mkdir(parents=True, exist_ok=True)
    runs = tuple(
        Results(open_run(path), folder, f"{place}-") for place, path in enumerate((first, second), 1)
    )
    rows, changed = differences(runs, names), changes(runs)
    context = {
        "names": names,
        "rows": rows,
        "changes": changed,
        "scale": max((abs(bound) for row in rows for bound in row.ci95), default=1.0),
        "only": [sorted(a.scores.keys() - b.scores.keys()) for a, b in (runs, runs[::-1])],
    }
    chapters = [
        Chapter("comparison", "Comparison", "comparison", context),
        Chapter("samples", "Samples", "samples", {"sharded": True, "rollouts": False}),
    ]
    tasks: dict[str, dict[str, Any]] = {}
    for place, (name, results) in enumerate(zip(names, runs, strict=True), 1):
        for task in tasks_of(results, f"{place}-", f"{name}: "):
            merged = tasks.setdefault(task["name"], task | {"models": {}})
            merged["models"] |= task["models"]
    for task in tasks.values():
        both = [row for row in rows if f"{row.benchmark}.{row.kind}" == task["name"]]
        task["pair"] = [both[-1].better, both[-1].worse] if both else list(task["models"])[:2]
    title = f"{names[0]} and {names[1]}"
    page = render(
        title,
        "Two runs, paired question by question.",
        chapters,
        {"tasks": list(tasks.values()), "rollouts": {}},
    )
    (folder / "index.html").write_text(page)
    write_json(
        folder / "comparison.json",
        {"runs": list(names), "comparisons": [asdict(row) for row in rows], "changes": changed},
    )
