"""Benchmarks over the tokens that pre-training has read (paper Figure 3)."""

from typing import Any

from pipeline.report.collect import Finished, read_json
from pipeline.report.figures import PERCENT, Figure, banded, figure
from pipeline.report.material import Material
from pipeline.report.tables import title

Point = tuple[int, float, list[float]]


def _points(result: Finished, tokens: int, found: dict[tuple[str, str], dict[str, list[Point]]]) -> None:
    """Add an evaluation's greedy accuracies to those of its model, by benchmark and mode."""
    model = result.instance.partition("/")[0]
    for benchmark, modes in read_json(result.data / "scores.json").items():
        for mode, score in modes.items():
            lines = found.setdefault((benchmark, mode), {})
            lines.setdefault(model, []).append((tokens, score["accuracy"], score["ci95"]))


def chapter(material: Material) -> dict[str, Any]:
    """Get a figure for each benchmark and mode: a line for each model, which ends in its final evaluation."""
    run = material.run
    found: dict[tuple[str, str], dict[str, list[Point]]] = {}
    for result in run.of("trajectory"):
        _points(result, int(result.instance.partition("/")[2]), found)
    for name in dict.fromkeys(model for lines in found.values() for model in lines):
        trained, last = run.finished.get(f"cpt/{name}"), run.finished.get(f"evaluate/{name}")
        if trained and last:
            _points(last, trained.config["tokens"], found)
    figures: dict[str, Figure] = {}
    titles = {}
    for (benchmark, mode), lines in found.items():
        kept = {name: sorted(points) for name, points in lines.items() if len(points) > 1}
        drawn = [banded(points, name, run.palette[name]) for name, points in kept.items()]
        if drawn:
            key = f"trajectory-{benchmark}-{mode}"
            traces = [trace for traces in drawn for trace in traces]
            figures[key] = figure(traces, "tokens read", "", yaxis=PERCENT)
            titles[key] = title(material.paper, benchmark, mode.rpartition("_")[2])
    return {"figures": figures, "titles": titles, "results": run.of("trajectory")}
