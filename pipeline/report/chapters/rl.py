"""RL: what was watched in training, and the methods side by side (paper sections 4 and 5.2)."""

from typing import Any

from pipeline.intervals import mean_over_seeds
from pipeline.report import methods
from pipeline.report.collect import Finished, Run
from pipeline.report.compare import VOTING, Bounded, Results, Task
from pipeline.report.figures import PERCENT, Figure, banded, figure, logged, over_k
from pipeline.report.material import Material
from pipeline.report.tables import Cell, Row, share

# Columns of metrics.jsonl that are drawn: title, what it tells.
PANELS = {
    "reward": ("Reward", "mean over all outputs of a step"),
    "accuracy": (
        "Accuracy",
        "share of right outputs among the samples; squares: greedy on held-out questions",
    ),
    "kl": ("KL to the reference", "nats per token, k3 estimator"),
    "entropy": ("Entropy", "nats per token of the sampling policy"),
    "length": ("Output length", "tokens, mean"),
    "solution_steps": (
        "Steps of an output",
        "process supervision: an early token earns the rewards of all later steps",
    ),
    "programs_failed": ("Failed programs", "share of outputs whose program printed no answer"),
    "truncated": ("Truncated", "share of outputs cut at the token limit"),
    "zero_variance_share": ("Groups without signal", "share of groups whose rewards are all equal"),
    "logprob_gap_max": (
        "Log-probability gap",
        "largest |sampler − trainer| on a sampled token, nats",
    ),
}
FROM_ZERO = ("kl", "programs_failed", "truncated", "zero_variance_share")
GAIN_COLUMNS = ["greedy", *VOTING.values(), "gain"]


def _watched(run: Run) -> dict[str, Figure]:
    """One small figure per watched quantity, all models in each; held-out accuracy as squares."""
    found, results = {}, run.of("rl")
    for key in PANELS:
        traces = logged(results, "metrics.jsonl", key, run.palette)
        if key == "accuracy":
            squares = {"mode": "lines+markers", "symbol": "square", "dash": "dot"}
            traces += logged(results, "evaluation.jsonl", key, run.palette, ", held out", **squares)
        if traces:
            axis = {"rangemode": "tozero"} if key in FROM_ZERO else {}
            axis |= _log_scale(traces) if key == "logprob_gap_max" else {}
            found[f"rl-{key}"] = figure(traces, "step", "", legend=False, yaxis=axis)
    return found


def _log_scale(traces: list[Figure]) -> Figure:
    positive = all(y > 0 for trace in traces for y in trace["y"])
    return {"type": "log", "exponentformat": "power", "dtick": 1} if positive else {}


def _curves(named: dict[str, list[Bounded]]) -> list[Figure]:
    """Return a banded line for each method."""
    drawn = (banded(points, name, index) for index, (name, points) in enumerate(named.items()))
    return [trace for traces in drawn for trace in traces]


def _voting(
    found: dict[str, list[Finished]], results: Results, task: Task, metric: str
) -> dict[str, list[Bounded]]:
    """Return a metric over K: of the models that the methods started from, then of each method over its
    seeds.
    """
    run = results.run
    parents = {run.models[seed.instance].parent for seeds in found.values() for seed in seeds}
    starts = [name for name in parents if name in results.scores and f"rl/{name}" not in run.finished]
    named = {name: results.curve(name, task, metric) for name in sorted(starts)}
    for name, seeds in found.items():
        curves = [results.curve(seed.instance, task, metric) for seed in seeds]
        named[name] = [
            (at[0][0], *mean_over_seeds([value for _, value, _ in at])) for at in zip(*curves, strict=False)
        ]
    return {name: points for name, points in named.items() if points}


def comparison(run: Run, results: Results) -> dict[str, Figure]:
    """Return the paper's figures 5, 6 and 7 of this run: `methods` and `rounds` over sampled tokens, so that
    methods are compared at equal cost, `methods-<file>` where several files were asked, then `methods-maj@k`
    and `methods-pass@k` on the first sampled task.
    """
    found = methods.groups(run)
    curves = {name: points for name, seeds in found.items() if (points := methods.learning_curve(seeds, run))}
    drawn = {}
    first = [name for name in curves if ", round" not in name]
    for file in (None, *methods.files_asked(run)) if len(first) > 1 else ():
        named = {name: methods.learning_curve(found[name], run, file) for name in first}
        key = f"methods-{file}" if file else "methods"
        drawn[key] = figure(_curves(named), "sampled tokens", "", yaxis=PERCENT)
    later = {name.partition(", round")[0] for name in curves if ", round" in name}
    if later:
        rounds = {name: points for name, points in curves.items() if name.partition(", round")[0] in later}
        drawn["rounds"] = figure(_curves(rounds), "sampled tokens", "", yaxis=PERCENT)
    for task in results.tasks:
        for metric in VOTING:
            named = _voting(found, results, task, metric) if found else {}
            if len(named) > 1 and f"methods-{metric}" not in drawn:
                drawn[f"methods-{metric}"] = over_k(_curves(named), "")
    return drawn


def _row(row: dict[str, Any]) -> Row:
    seeds = f"{row['seeds']} seed{'s' if row['seeds'] > 1 else ''}"
    cells = [
        share(row[name][0], row[name][1] if row["seeds"] > 1 else None) if row[name] else Cell()
        for name in ("accuracy", *VOTING)
    ]
    gained = share(*row["gain"], signed=True) if row["gain"] else Cell()
    rate = f", rate {row['learning_rate']:g}" if row["learning_rate"] else ""
    return Row("ours", row["method"], f"{seeds}{rate}, {row['benchmark']} {row['kind']}", [*cells, gained])


def chapter(material: Material) -> dict[str, Any]:
    """Curves of training, and figures and table of the methods if there are several."""
    run, results = material.run, material.results
    return {
        "results": run.of("rl"),
        "panels": PANELS,
        "palette": run.palette,
        "columns": GAIN_COLUMNS,
        "methods": [_row(row) for row in methods.table(run, results)],
        "costs": methods.costs(run),
        "files": methods.files_asked(run),
        "figures": _watched(run) | comparison(run, results),
    }
