"""Reward models: their numbers on held-out questions, best-of-N, training curves (paper section 4.2)."""

from typing import Any

from pipeline.report.chapters.training import curves
from pipeline.report.collect import Finished
from pipeline.report.compare import by_k
from pipeline.report.figures import Figure, banded, over_k
from pipeline.report.material import Material

CURVES = (("best_of_n", "best of N"), ("maj@n", "Maj@N"), ("pass@n", "Pass@N"))


def _best_of_n(result: Finished) -> dict[str, Figure]:
    """Best of N by the reward model, against majority vote and the chance that any of N is right."""
    traces = []
    for index, (key, name) in enumerate(CURVES):
        if points := by_k(result.metrics, key):
            traces += banded(points, name, index)
    return {f"{result.name}-best": over_k(traces, "solved", "N")} if traces else {}


def chapter(material: Material) -> dict[str, Any]:
    """Single numbers of each model's metrics, and its curves."""
    results = material.run.of("reward")
    metrics = {
        result.name: {key: value for key, value in result.metrics.items() if isinstance(value, int | float)}
        for result in results
    }
    figures = curves(material, "reward")
    for result in results:
        figures |= _best_of_n(result)
    return {"results": results, "metrics": metrics, "figures": figures}
