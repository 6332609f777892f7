"""The page's interactive figures, as plotly.js JSON.

Colours are names (`@1` to `@8` for series, `@ink`, `@muted`, ...), which the page replaces by those of its
light or dark theme.
"""

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

from pipeline.report.collect import Finished, Run, read_json, read_lines
from pipeline.report.compare import Results, Task

Figure = dict[str, Any]
Point = tuple[float, float]
Palette = dict[str, int]  # model -> series: a model has one colour on the whole page
MAX_POINTS = 600
SERIES = 8
FROM_ZERO = ("kl", "truncated", "zero_variance_share")
VOTING = (("maj@k", "Maj@K"), ("pass@k", "Pass@K"))
# Columns of an rl metrics.jsonl that the page draws: key, title, what it tells.
RL_PANELS = (
    ("reward", "Reward", "mean over all outputs of a step"),
    (
        "accuracy",
        "Accuracy",
        "share of right outputs among the samples; squares: greedy on held-out questions",
    ),
    ("kl", "KL to the reference", "nats per token, k3 estimator"),
    ("entropy", "Entropy", "nats per token of the sampling policy"),
    ("length", "Output length", "tokens, mean"),
    ("truncated", "Truncated", "share of outputs cut at the token limit"),
    ("zero_variance_share", "Groups without signal", "share of groups whose rewards are all equal"),
    ("logprob_gap_max", "Log-probability gap", "largest |sampler − trainer| on a sampled token, nats"),
)


def colour(index: int) -> str:
    """Name of the colour of a series."""
    return f"@{index % SERIES + 1}"


def line(
    points: Iterable[Point],
    name: str,
    index: int,
    *,
    mode: str = "lines",
    symbol: str = "circle",
    dash: str = "solid",
    **trace: Any,
) -> Figure:
    """A line of (x, y) points in the colour of series `index`; further keys go to plotly as they are."""
    finite = [(x, y) for x, y in points if isfinite(y)]  # JSON has no NaN: a diverged loss leaves a gap
    return {
        "type": "scatter",
        "mode": mode,
        "name": name,
        "x": [x for x, _ in finite],
        "y": [y for _, y in finite],
        "line": {"color": colour(index), "width": 2, "dash": dash},
        "marker": {"color": colour(index), "size": 7, "symbol": symbol},
    } | trace


def figure(traces: list[Figure], x: str, y: str, *, legend: bool = True, **layout: Any) -> Figure:
    """A figure with axis titles; `layout` goes to plotly as it is."""
    axes = {"xaxis": {"title": {"text": x}}, "yaxis": {"title": {"text": y}}}
    for axis in axes:
        axes[axis] |= layout.pop(axis, {})
    return {"data": traces, "layout": axes | {"showlegend": legend and len(traces) > 1} | layout}


def errors(values: list[float], intervals: list[list[float] | None]) -> Figure:
    """Error bars of values with intervals; None: no bar."""
    pairs = [interval or [value, value] for value, interval in zip(values, intervals, strict=True)]
    up = [high - value for value, (_, high) in zip(values, pairs, strict=True)]
    down = [value - low for value, (low, _) in zip(values, pairs, strict=True)]
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1.4, "width": 5}


def thin(points: list[Point]) -> list[Point]:
    """At most `MAX_POINTS` points: means of equal runs of neighbours, so that noise is not aliased."""
    size = -(-len(points) // MAX_POINTS)
    groups = [points[start : start + size] for start in range(0, len(points), max(size, 1))]
    return [(group[-1][0], sum(y for _, y in group) / len(group)) for group in groups]


def column(rows: list[dict[str, Any]], key: str) -> list[Point]:
    """(step, value) of the rows that have a number under `key`, thinned."""
    found = [(row["step"], row[key]) for row in rows if isinstance(row.get(key), int | float)]
    return thin(found)


def training(nodes: list[Finished], palette: Palette) -> dict[str, Figure]:
    """Loss, learning rate and gradient norm of the models of one stage."""
    logs = [(node.instance, list(read_lines(node.data / "metrics.jsonl"))) for node in nodes]
    found = {}
    for key, title in (("loss", "nats per token"), ("lr", ""), ("grad_norm", "")):
        curves = [(column(rows, key), name) for name, rows in logs]
        if traces := [line(points, name, palette[name]) for points, name in curves if points]:
            axis = {"exponentformat": "e"} if key == "lr" else {}
            found[f"{nodes[0].stage}-{key}"] = figure(traces, "step", title, yaxis=axis)
    return found


def reinforcement(nodes: list[Finished], palette: Palette) -> dict[str, Figure]:
    """One small figure per watched quantity; all models in each."""
    logs = [(node.instance, list(read_lines(node.data / "metrics.jsonl"))) for node in nodes]
    found = {}
    for key, _, _ in RL_PANELS:
        curves = [(column(rows, key), name) for name, rows in logs]
        traces = [line(points, name, palette[name]) for points, name in curves if points]
        if key == "accuracy":
            traces += _held_out(nodes, palette)
        if traces:
            axis = {"rangemode": "tozero"} if key in FROM_ZERO else {}
            axis |= _log_scale(traces) if key == "logprob_gap_max" else {}
            found[f"rl-{key}"] = figure(traces, "step", "", legend=False, yaxis=axis)
    return found


def _held_out(nodes: list[Finished], palette: Palette) -> list[Figure]:
    """Accuracy on held-out questions during training, where it was evaluated."""
    curves = [
        (column(list(read_lines(node.data / "evaluation.jsonl")), "accuracy"), node.instance)
        for node in nodes
    ]
    squares: dict[str, Any] = {"mode": "lines+markers", "symbol": "square", "dash": "dot"}
    return [line(points, f"{name}, held out", palette[name], **squares) for points, name in curves if points]


def _log_scale(traces: list[Figure]) -> Figure:
    positive = all(y > 0 for trace in traces for y in trace["y"])
    return {"type": "log", "exponentformat": "power", "dtick": 1} if positive else {}


def band(points: Sequence[tuple[float, float, list[float]]], index: int) -> Figure:
    """The area between the bounds of (x, y, bounds) points."""
    there = [(x, high) for x, _, (_, high) in points]
    back = [(x, low) for x, _, (low, _) in reversed(points)]
    area = {"fill": "toself", "fillcolor": f"{colour(index)}/0.13", "line": {"width": 0}}
    return line(there + back, "", index, hoverinfo="skip", showlegend=False) | area


def reward(node: Finished) -> dict[str, Figure]:
    """A reward model's best-of-N against majority vote, and the chance that any of N is right."""
    path = node.data / "metrics.json"
    metrics, traces = read_json(path) if path.exists() else {}, []
    for index, (key, name) in enumerate(
        (("best_of_n", "best of N"), ("maj@n", "Maj@N"), ("pass@n", "Pass@N"))
    ):
        bounds = metrics.get(f"{key}_ci95", {})
        points = sorted(
            (int(n), value, bounds.get(n, [value, value])) for n, value in metrics.get(key, {}).items()
        )
        if points:
            curve = [(n, value) for n, value, _ in points]
            traces += [band(points, index), line(curve, name, index, mode="lines+markers")]
    axes = {"xaxis": powers(traces), "yaxis": {"tickformat": ".0%"}}
    return {f"{node.name}-best": figure(traces, "N", "solved", **axes)} if traces else {}


def powers(traces: list[Figure]) -> Figure:
    """A logarithmic axis with a tick at each value of `x`."""
    ks = sorted({x for trace in traces for x in trace["x"]})
    return {"type": "log", "tickmode": "array", "tickvals": ks, "ticktext": [str(k) for k in ks]}


def voting(results: Results, task: Task, palette: Palette) -> dict[str, Figure]:
    """Maj@K and Pass@K of all models on a task, with 95 % bands."""
    found = {}
    for metric, title in VOTING:
        traces: list[Figure] = []
        for name in results.answers:
            points = results.curve(name, task, metric)
            if len(points) > 1:
                curve = [(k, value) for k, value, _ in points]
                traces.append(band(points, palette[name]))
                traces.append(line(curve, name, palette[name], mode="lines+markers"))
        if traces:
            axes = {"xaxis": powers(traces), "yaxis": {"tickformat": ".0%"}}
            found[f"{metric}-{'-'.join(task)}"] = figure(traces, "K", title, **axes)
    return found


def paper_voting(paper: dict[str, Any], benchmark: str) -> dict[str, Figure]:
    """The paper's figure 7 on a benchmark."""
    found, ks = {}, paper["figure_7"]["k"]
    for metric, title in VOTING:
        curves = paper["figure_7"][benchmark][metric.removesuffix("@k")]
        traces = [
            line(
                [(k, value / 100) for k, value in zip(ks, values, strict=True)],
                name,
                index,
                mode="lines+markers",
            )
            for index, (name, values) in enumerate(curves.items())
        ]
        axis = {"tickformat": ".0%"}
        found[f"paper-{metric}"] = figure(traces, "K", title, xaxis=powers(traces), yaxis=axis)
    return found


def cost(run: Run) -> Figure:
    """Seconds per stage, its instances stacked."""
    nodes = [node for node in run.nodes.values() if node.seconds]
    bars = [
        {
            "type": "bar",
            "orientation": "h",
            "name": node.name,
            "x": [node.seconds],
            "y": [node.stage],
            "marker": {"color": f"@1/{0.9 if index % 2 else 0.6}", "line": {"color": "@paper", "width": 1}},
            "hovertemplate": f"{node.name}: %{{x:,.1f}} s<extra></extra>",
        }
        for index, node in enumerate(nodes)
    ]
    order = list(dict.fromkeys(node.stage for node in reversed(nodes)))
    return figure(
        bars,
        "seconds",
        "",
        legend=False,
        barmode="stack",
        yaxis={"categoryorder": "array", "categoryarray": order},
    )
