"""From verdicts to the numbers of `scores.json`: the same for the stage and for the `score` program."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.grading import majorities
from pipeline.evaluate.metrics import mean_interval, pass_at_k
from pipeline.grader.answers import Verdict


def accuracy(values: Sequence[float]) -> dict[str, Any]:
    """Mean over questions with its 95 % interval; `values` are shares of right answers, one per question."""
    return {"accuracy": fmean(values), "ci95": list(mean_interval(values)), "n": len(values)}


def at_k(items: Sequence[Item], samples: Sequence[Sequence[Verdict]], ks: Sequence[int]) -> dict[str, Any]:
    """Maj@K and Pass@K with 95 % intervals, for those `ks` that every question has samples for."""
    ks = sorted({k for k in ks if k <= min(map(len, samples))})
    if not ks:
        return {}
    votes = majorities(items, samples, ks)
    rights = [(len(verdicts), sum(verdict.right for verdict in verdicts)) for verdicts in samples]
    result: dict[str, Any] = {"maj@k": {}, "maj@k_ci95": {}, "pass@k": {}, "pass@k_ci95": {}}
    for k in ks:
        for metric, values in (
            ("maj@k", [vote[k] for vote in votes]),
            ("pass@k", [pass_at_k(total, right, k) for total, right in rights]),
        ):
            result[metric][str(k)] = fmean(values)
            result[f"{metric}_ci95"][str(k)] = list(mean_interval(values))
    return result
