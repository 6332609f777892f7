"""What the page's interactive figures are made of, as plotly.js JSON; each chapter draws its own.

Colours are names (`@1` to `@8` for series, `@ink`, `@muted`, ...), which the page replaces by those of its
light or dark theme.
"""

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

from pipeline.report.collect import Finished, read_lines
from pipeline.report.compare import Bounded

Figure = dict[str, Any]
Point = tuple[float, float]
MAX_POINTS = 600
SERIES = 8
PERCENT = {"tickformat": ".0%"}


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
    """Get a line of (x, y) points in the colour of series `index`; further keys go to plotly as they are."""
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


def banded(points: Sequence[Bounded], name: str, index: int) -> list[Figure]:
    """Return a line of (x, y, interval) points, and the area between the bounds where an interval is not
    empty.
    """
    curve = line([(x, y) for x, y, _ in points], name, index, mode="lines+markers")
    if all(low == high for _, _, (low, high) in points):
        return [curve]
    there = [(x, high) for x, _, (_, high) in points]
    back = [(x, low) for x, _, (low, _) in reversed(points)]
    area = {"fill": "toself", "fillcolor": f"{colour(index)}/0.13", "line": {"width": 0}}
    return [line(there + back, "", index, hoverinfo="skip", showlegend=False) | area, curve]


def figure(traces: list[Figure], x: str, y: str, *, legend: bool = True, **layout: Any) -> Figure:
    """Return a figure with axis titles; `layout` goes to plotly as it is."""
    axes = {"xaxis": {"title": {"text": x}}, "yaxis": {"title": {"text": y}}}
    for axis in axes:
        axes[axis] |= layout.pop(axis, {})
    return {"data": traces, "layout": axes | {"showlegend": legend and len(traces) > 1} | layout}


def ticks(values: list[Any]) -> Figure:
    """Return what gives an axis a tick at each of these values."""
    return {"tickmode": "array", "tickvals": values, "ticktext": [str(value) for value in values]}


def over_k(traces: list[Figure], y: str, x: str = "K") -> Figure:
    """Return a figure of shares over numbers of samples, whose axis is logarithmic."""
    ks = sorted({x for trace in traces for x in trace["x"]})
    return figure(traces, x, y, xaxis={"type": "log"} | ticks(ks), yaxis=PERCENT)


def thin(points: list[Point]) -> list[Point]:
    """At most `MAX_POINTS` points: means of equal runs of neighbours, so that noise is not aliased."""
    size = -(-len(points) // MAX_POINTS)
    groups = [points[start : start + size] for start in range(0, len(points), max(size, 1))]
    return [(group[-1][0], sum(y for _, y in group) / len(group)) for group in groups]


def logged(
    results: list[Finished], file: str, key: str, palette: dict[str, int], suffix: str = "", **style: Any
) -> list[Figure]:
    """`key` over the steps logged in a file of each result, thinned: a line for each that has numbers."""
    traces = []
    for result in results:
        rows = read_lines(result.data / file)
        points = [(row["step"], row[key]) for row in rows if isinstance(row.get(key), int | float)]
        if points:
            name = result.instance
            traces.append(line(thin(points), f"{name}{suffix}", palette[name], **style))
    return traces
