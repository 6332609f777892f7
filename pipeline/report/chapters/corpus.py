"""The corpus loop: its iterations, classifiers, domains and review queue (paper section 2.1)."""

import csv
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup

from pipeline.report.collect import Run
from pipeline.report.figures import MAX_POINTS, PERCENT, Figure, Point, colour, figure, line, ticks
from pipeline.report.material import Material
from pipeline.report.pages import BECAME
from pipeline.report.truth import headline

Rows = list[dict[str, Any]]
SHARE = PERCENT | {"range": [0, 1.04]}
NAMES = {"en": "English", "zh": "Chinese", "TeX": "pages with TeX", "no TeX": "pages without TeX"}
MAX_DOMAINS, MAX_QUEUE = 200, 40


def review(run: Run) -> list[dict[str, Any]]:
    """Return the last iteration's review queue: prefix, what is known of it, URLs of sample pages."""
    with (run.iterations[-1].data / "review.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    parts = [(row["prefix"], *row["evidence"].partition(": ")) for row in rows]
    return [{"prefix": prefix, "known": known, "pages": urls.split()} for prefix, known, _, urls in parts]


def _card(run: Run) -> Markup | None:
    """Get the corpus' data card; None before decontamination. Tags in its Markdown are shown, not obeyed."""
    cards = [result.data / "card.md" for result in run.of("decontaminate")]
    text = next((path.read_text() for path in cards if path.exists()), None)
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    return (
        None
        if text is None
        else Markup(reader.render(text.replace("\n#", "\n###").removeprefix("# Data card")))
    )


def chapter(material: Material) -> dict[str, Any] | None:
    """Return iterations, the last one's measures, domains and queue; None before the first iteration."""
    rows = material.iterations
    if not rows:
        return None
    last, queue = rows[-1], review(material.run)
    return {
        "rows": rows,
        "truth": headline(last["truth"]) if all("truth" in row for row in rows) else None,
        "honest": _honest(rows) if all("truth" in row for row in rows) else [],
        "last": last,
        "unit": material.unit,
        "domains": sorted(last["domains"], key=lambda row: (-row["kept"], row["domain"]))[:MAX_DOMAINS],
        "used": [(row["iteration"], row["prefixes_used"]) for row in rows if not row["passed_through"]],
        "queue": queue[:MAX_QUEUE],
        "queued": len(queue),
        "run": material.run.name,
        "browsable": BECAME in material.run.finished,
        "card": _card(material.run),
        "figures": _figures([row for row in rows if not row["passed_through"]]),
    }


def _honest(rows: Rows) -> list[tuple[str, dict[str, Any]]]:
    """(which pages, their measures) of the last iteration, and of the first on pages never trained on."""
    first, last = (row["truth"] for row in (rows[0], rows[-1]))
    scopes = [(NAMES.get(scope, scope.replace("_", " ")), last[scope]) for scope in list(last)[2:]]
    return (
        [*scopes[:1], (f"{scopes[0][0]}, iteration 1", first[headline(first)]), *scopes[1:]] if scopes else []
    )


def _figures(rows: Rows) -> dict[str, Figure]:
    """All figures of the iterations; those without data are left out."""
    if not rows:
        return {}
    found = {"corpus-kept": _kept(rows, "pages"), "corpus-tokens": _kept(rows, "tokens")}
    found["corpus-seed"] = _stacked(
        rows, {"seed": "seed_pages", "added for the next": "seed_growth"}, "seed pages"
    )
    found["corpus-hosts"] = _stacked(rows, {"hosts": "new_hosts"}, "new hosts")
    if all("truth" in row for row in rows):
        found["corpus-truth"] = _truth(rows)
    tested = [row for row in rows if row.get("held_out")]
    found |= _curves("corpus-curve", [(row, row["curve"]) for row in rows if row.get("curve")])
    found |= _curves("corpus-held-out", [(row, row["held_out"]["curve"]) for row in tested])
    return found


def _by_iteration(rows: Rows, traces: list[Figure], title: str, **layout: Any) -> Figure:
    xs = [row["iteration"] for row in rows]
    return figure(
        traces, "iteration", title, xaxis=ticks(xs) | {"range": [xs[0] - 0.5, xs[-1] + 0.5]}, **layout
    )


def _stacked(rows: Rows, parts: dict[str, str], title: str) -> Figure:
    """Stacked bars; `parts`: name -> key of the iterations' metrics."""
    bars = [
        {
            "type": "bar",
            "name": name,
            "x": [row["iteration"] for row in rows],
            "y": [row[key] for row in rows],
            "marker": {"color": colour(index)},
        }
        for index, (name, key) in enumerate(parts.items())
    ]
    return _by_iteration(rows, bars, title, barmode="stack", bargap=0.45)


def _kept(rows: Rows, unit: str) -> Figure:
    """Pages or tokens kept: those that the iteration before had kept, and new ones."""
    rows = [row | {"old": row[f"kept_{unit}"] - row[f"marginal_{unit}"]} for row in rows]
    parts = {"kept before": "old", "new in this iteration": f"marginal_{unit}"}
    return _stacked(rows, parts, f"{unit} kept")


def _errors(values: list[float], intervals: list[list[float]]) -> Figure:
    """Error bars of values with intervals."""
    up = [high - value for value, (_, high) in zip(values, intervals, strict=True)]
    down = [value - low for value, (low, _) in zip(values, intervals, strict=True)]
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1.4, "width": 5}


def _truth(rows: Rows) -> Figure:
    """Recall and precision on pages never trained on, with their intervals."""
    traces = []
    for index, measure in enumerate(("recall", "precision")):
        scope = headline(rows[0]["truth"])
        shown = [row for row in rows if row["truth"][scope][measure] is not None]
        points = [(row["iteration"], row["truth"][scope][measure]) for row in shown]
        intervals = [row["truth"][scope][f"{measure}_ci95"] for row in shown]
        bars = _errors([y for _, y in points], intervals)
        traces.append(line(points, measure, index, mode="lines+markers", error_y=bars))
    return _by_iteration(rows, traces, "share", yaxis=SHARE)


def _curves(name: str, curves: list[tuple[dict[str, Any], list[Any]]]) -> dict[str, Figure]:
    """Precision-recall curves of iterations from lists of (recall, precision)."""
    traces = [
        line(_sparse(curve), f"iteration {row['iteration']}", index)
        for index, (row, curve) in enumerate(curves)
    ]
    return {name: figure(traces, "recall", "precision", xaxis=SHARE, yaxis=SHARE)} if traces else {}


def _sparse(points: list[Any]) -> list[Point]:
    step = -(-len(points) // MAX_POINTS)
    return [(x, y) for x, y in points[::step] + points[-1:]]
