"""Figures of the corpus chapter: the loop by iteration, and its classifiers on held-out pages."""

from typing import Any

from pipeline.report.figures import MAX_POINTS, Figure, Point, errors, figure, line

Rows = list[dict[str, Any]]
SHARE = {"tickformat": ".0%", "range": [0, 1.04]}
NAMES = {"en": "English", "zh": "Chinese", "TeX": "pages with TeX", "no TeX": "pages without TeX"}
LANGUAGES = 4  # drawn at most, those with most mathematical pages


def corpus(rows: Rows) -> dict[str, Figure]:
    """All figures for the metrics of the iterations, first one first; those without data are left out."""
    if not rows:
        return {}
    found = {"corpus-kept": _kept(rows), "corpus-tokens": _tokens(rows), "corpus-seed": _seed(rows)}
    found["corpus-hosts"] = _stacked(rows, [("hosts", [row["new_hosts"] for row in rows])], "new hosts")
    if all("truth" in row for row in rows):
        found["corpus-truth"] = _truth(rows)
    curves = [(f"iteration {row['iteration']}", row["curve"]) for row in rows if row.get("curve")]
    found |= _curves("corpus-curve", curves)
    tested = [row for row in rows if row.get("held_out")]
    curves = [(f"iteration {row['iteration']}", row["held_out"]["curve"]) for row in tested]
    found |= _curves("corpus-held-out", curves)
    if tested:
        found["corpus-calibration"] = _calibration(tested[-1])
        found["corpus-sources"] = _sources(tested)
    if rows[-1].get("out_of_distribution"):
        found["corpus-unseen"] = _unseen(rows)
    return found


def _ticks(rows: Rows) -> dict[str, Any]:
    xs = [row["iteration"] for row in rows]
    return {
        "tickmode": "array",
        "tickvals": xs,
        "ticktext": [str(x) for x in xs],
        "range": [xs[0] - 0.5, xs[-1] + 0.5],
    }


def _stacked(rows: Rows, parts: list[tuple[str, list[int]]], title: str) -> Figure:
    bars = [
        {
            "type": "bar",
            "name": name,
            "x": [row["iteration"] for row in rows],
            "y": values,
            "marker": {"color": f"@{index + 1}"},
        }
        for index, (name, values) in enumerate(parts)
    ]
    return figure(bars, "iteration", title, barmode="stack", bargap=0.45, xaxis=_ticks(rows))


def _kept(rows: Rows) -> Figure:
    new = [row["marginal_pages"] for row in rows]
    old = [row["kept_pages"] - count for row, count in zip(rows, new, strict=True)]
    return _stacked(rows, [("kept before", old), ("new in this iteration", new)], "pages kept")


def _tokens(rows: Rows) -> Figure:
    new = [row["marginal_tokens"] for row in rows]
    old = [row["kept_tokens"] - count for row, count in zip(rows, new, strict=True)]
    return _stacked(rows, [("kept before", old), ("new in this iteration", new)], "tokens kept")


def _seed(rows: Rows) -> Figure:
    parts = [
        ("seed", [row["seed_pages"] for row in rows]),
        ("added for the next", [row["seed_growth"] for row in rows]),
    ]
    return _stacked(rows, parts, "seed pages")


def _truth(rows: Rows) -> Figure:
    traces = []
    for index, measure in enumerate(("recall", "precision")):
        values = [
            (row["iteration"], row["truth"]["unseen"][measure], row["truth"]["unseen"][f"{measure}_ci95"])
            for row in rows
        ]
        shown = [value for value in values if value[1] is not None]
        bars = errors([y for _, y, _ in shown], [interval for _, _, interval in shown])
        points = [(x, y) for x, y, _ in shown]
        traces.append(line(points, measure, index, mode="lines+markers", error_y=bars))
    return figure(traces, "iteration", "share", xaxis=_ticks(rows), yaxis=SHARE)


def _curves(name: str, curves: list[tuple[str, list[Any]]]) -> dict[str, Figure]:
    """Precision-recall curves from lists of (recall, precision)."""
    traces = [line(_sparse(curve), title, index) for index, (title, curve) in enumerate(curves)]
    return {name: figure(traces, "recall", "precision", xaxis=SHARE, yaxis=SHARE)} if traces else {}


def _sparse(points: list[Any]) -> list[Point]:
    step = -(-len(points) // MAX_POINTS)
    return [(x, y) for x, y in points[::step] + points[-1:]]


def _calibration(row: dict[str, Any]) -> Figure:
    """Share of math by predicted probability, of held-out pages and of each out-of-distribution set."""
    ideal = line([(0, 0), (1, 1)], "perfect", 6, dash="dot", hoverinfo="skip")
    sets = {"held-out hosts": row["held_out"]} | row["out_of_distribution"]
    traces = [
        line(
            [(probability, share) for probability, share, _ in measured["calibration"]],
            name,
            index,
            mode="lines+markers",
            text=[f"{size} pages" for _, _, size in measured["calibration"]],
        )
        for index, (name, measured) in enumerate(sets.items())
    ]
    return figure([*traces, ideal], "predicted probability", "share of math", xaxis=SHARE, yaxis=SHARE)


def _sources(rows: Rows) -> Figure:
    """Recall by language, with and without TeX, one line each."""
    last = [source for source in rows[-1]["held_out"]["sources"] if source["math"]]
    languages = [source for source in last if source["kind"] == "language"][:LANGUAGES]
    traces = []
    for source in [*languages, *(source for source in last if source["kind"] == "markup")]:
        points = [
            (row["iteration"], other["recall"])
            for row in rows
            for other in row["held_out"]["sources"]
            if (other["kind"], other["source"]) == (source["kind"], source["source"]) and other["math"]
        ]
        name = NAMES.get(source["source"], source["source"])
        dash = "solid" if source["kind"] == "language" else "dash"
        traces.append(line(points, name, len(traces), mode="lines+markers", dash=dash))
    return figure(traces, "iteration", "recall", xaxis=_ticks(rows), yaxis=SHARE)


def _unseen(rows: Rows) -> Figure:
    """Average precision of each out-of-distribution set, and dashed its recall at the held-out threshold."""
    traces = []
    for index, name in enumerate(rows[-1]["out_of_distribution"]):
        for measure, dash in (("average_precision", "solid"), ("recall", "dash")):
            points = [
                (row["iteration"], row["out_of_distribution"][name][measure])
                for row in rows
                if row["out_of_distribution"].get(name, {}).get(measure) is not None
            ]
            title = f"{name}, {measure.replace('_', ' ')}"
            traces.append(line(points, title, index, mode="lines+markers", dash=dash))
    return figure(traces, "iteration", "share", xaxis=_ticks(rows), yaxis=SHARE)
