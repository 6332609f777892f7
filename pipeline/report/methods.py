"""RL methods side by side, each over its seeds: the paper's figures 5, 6 and 7 from a run's own numbers.

Models that differ in nothing but their seed are one line: the mean over seeds, with the 95 % interval of
Student's t. The horizontal axis is sampled tokens, so that methods are compared at equal cost; a second round
starts where its parent ended.
"""

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from pipeline.report.collect import Finished, Run, read_lines
from pipeline.report.compare import Answers, Results, Task
from pipeline.report.figures import VOTING, Figure, band, figure, line, powers

T95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
NAMES = {"rft": "RFT", "online_rft": "Online RFT", "dpo": "DPO", "ppo": "PPO"}
Point = tuple[float, float, list[float]]  # x, mean, 95 % interval


def label(config: dict[str, Any]) -> str:
    """A method as the paper names it, e.g. GRPO+PS, round 2."""
    supervision = "PS" if config.get("supervision") == "process" else "OS"
    name = NAMES.get(config.get("method", "grpo"), f"GRPO+{supervision}")
    iteration = config.get("iteration", 1)
    return f"{name}, round {iteration}" if iteration > 1 else name


def groups(run: Run) -> dict[str, list[Finished]]:
    """The RL models of a run by method; empty unless there are several methods to compare."""
    found: dict[str, list[Finished]] = {}
    for node in run.of("rl"):
        found.setdefault(label(node.config), []).append(node)
    return found if len(found) > 1 else {}


def mean_over_seeds(values: Sequence[float]) -> tuple[float, list[float]]:
    """Mean of shares, and its interval; one seed alone has none, given as the value twice."""
    mean = fmean(values)
    if len(values) < 2:
        return mean, [mean, mean]
    half = T95.get(len(values), 1.96) * stdev(values) / sqrt(len(values))
    return mean, [max(0.0, mean - half), min(1.0, mean + half)]


def _tokens(node: Finished) -> list[int]:
    """Tokens sampled before each step, and in all."""
    total, found = 0, [0]
    for row in read_lines(node.data / "metrics.jsonl"):
        total += row.get("sampled_tokens", 0)
        found.append(total)
    return found


def _start(node: Finished, run: Run) -> int:
    """Tokens that the RL models it comes from had sampled before it."""
    parent = run.models[node.instance].parent
    before = run.nodes.get(f"rl/{parent}")
    return _start(before, run) + _tokens(before)[-1] if before else 0


def learning_curve(nodes: Sequence[Finished], run: Run) -> list[Point]:
    """Held-out accuracy over sampled tokens, for the evaluations that all seeds have."""
    curves = []
    for node in nodes:
        tokens, start = _tokens(node), _start(node, run)
        rows = read_lines(node.data / "evaluation.jsonl")
        curves.append([(start + tokens[row["step"]], row["accuracy"]) for row in rows])
    points = []
    for reached in zip(*curves, strict=False):
        mean, interval = mean_over_seeds([accuracy for _, accuracy in reached])
        points.append((fmean(tokens for tokens, _ in reached), mean, interval))
    return points


def _curves(named: dict[str, list[Point]], x: str, **layout: Any) -> Figure:
    traces: list[Figure] = []
    for index, (name, points) in enumerate(named.items()):
        if any(low < high for _, _, (low, high) in points):
            traces.append(band(points, index))
        traces.append(line([(at, value) for at, value, _ in points], name, index, mode="lines+markers"))
    return figure(traces, x, "", yaxis={"tickformat": ".0%"}, **layout)


def _voting(
    found: dict[str, list[Finished]], results: Results, task: Task, metric: str
) -> dict[str, list[Point]]:
    parents = {results.run.models[node.instance].parent for nodes in found.values() for node in nodes}
    starts = [name for name in parents if name in results.scores and f"rl/{name}" not in results.run.nodes]
    named = {name: list(results.curve(name, task, metric)) for name in sorted(starts)}
    for name, nodes in found.items():
        curves = [results.curve(node.instance, task, metric) for node in nodes]
        named[name] = [
            (at[0][0], *mean_over_seeds([value for _, value, _ in at])) for at in zip(*curves, strict=False)
        ]
    return {name: [(float(k), *rest) for k, *rest in points] for name, points in named.items() if points}


def comparison(run: Run, results: Results) -> dict[str, Figure]:
    """Figures `methods`, `rounds`, and `methods-maj@k`, `methods-pass@k` on the first sampled task."""
    found = groups(run)
    curves = {name: points for name, nodes in found.items() if (points := learning_curve(nodes, run))}
    drawn = {}
    first = {name: points for name, points in curves.items() if ", round" not in name}
    if len(first) > 1:
        drawn["methods"] = _curves(first, "sampled tokens")
    later = {name.partition(", round")[0] for name in curves if ", round" in name}
    rounds = {name: points for name, points in curves.items() if name.partition(", round")[0] in later}
    if later:
        drawn["rounds"] = _curves(rounds, "sampled tokens")
    for task in results.tasks:
        for metric, _ in VOTING:
            named = _voting(found, results, task, metric) if found else {}
            if len(named) > 1 and f"methods-{metric}" not in drawn:
                axis = powers([{"x": [k for k, _, _ in points]} for points in named.values()])
                drawn[f"methods-{metric}"] = _curves(named, "K", xaxis=axis)
    return drawn


def table(run: Run, results: Results) -> list[dict[str, Any]]:
    """A row for each method and task: greedy accuracy, Maj@K and Pass@K at the largest K, means over seeds
    with their intervals, and the gain over the model that they started from, paired over questions.
    """
    rows = []
    for name, nodes in groups(run).items():
        models = [node.instance for node in nodes]
        starts = sorted({run.models[model].parent or "" for model in models})
        for task in results.tasks:
            scores = [score for model in models if (score := results.score(model, task))]
            if not scores or len(scores) < len(models):
                continue
            gain = results.compare(models, starts, task, Answers.accuracy)
            row: dict[str, Any] = {
                "method": name,
                "seeds": len(models),
                "benchmark": task[0],
                "kind": task[1],
            }
            row["accuracy"] = mean_over_seeds([score["accuracy"] for score in scores])
            for metric, _ in VOTING:
                largest = [
                    score[metric][max(score[metric], key=int)] for score in scores if score.get(metric)
                ]
                row[metric] = mean_over_seeds(largest) if len(largest) == len(scores) else None
            row["gain"] = (gain.mean, gain.ci95) if gain else None
            rows.append(row)
    return sorted(rows, key=lambda row: (row["benchmark"], row["kind"], row["accuracy"][0]))
