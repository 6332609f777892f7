"""Cost and provenance: time, memory and work of every program, and what each result was made from."""

from typing import Any

from pipeline.report.collect import Run
from pipeline.report.figures import Figure, figure
from pipeline.report.material import Material


def _times(run: Run) -> Figure:
    """Seconds per stage, its instances stacked."""
    timed = [result for result in run.finished.values() if result.seconds]
    bars = [
        {
            "type": "bar",
            "orientation": "h",
            "name": result.name,
            "x": [result.seconds],
            "y": [result.stage],
            "marker": {"color": f"@1/{0.9 if index % 2 else 0.6}", "line": {"color": "@paper", "width": 1}},
            "hovertemplate": f"{result.name}: %{{x:,.1f}} s<extra></extra>",
        }
        for index, result in enumerate(timed)
    ]
    stages = list(dict.fromkeys(result.stage for result in reversed(timed)))
    axis = {"categoryorder": "array", "categoryarray": stages}
    return figure(bars, "seconds", "", legend=False, barmode="stack", yaxis=axis)


def chapter(material: Material) -> dict[str, Any]:
    """Time, memory and machines."""
    cores = sorted(
        {result.run["cores"] for result in material.run.finished.values() if "cores" in result.run}
    )
    shown = f"{' or '.join(map(str, cores))} cores" if cores else ""
    return {"cost": material.cost, "cores": shown, "figures": {"cost": _times(material.run)}}


def provenance(material: Material) -> dict[str, Any]:
    """Every result's manifest, and the versions of each package; several mean that a run mixes them."""
    results = list(material.run.finished.values())
    found: dict[str, set[str]] = {}
    for result in results:
        for name, version in result.manifest.get("packages", {}).items():
            found.setdefault(name, set()).add(version)
    packages = {name: sorted(versions) for name, versions in sorted(found.items())}
    return {"results": results, "packages": packages}
