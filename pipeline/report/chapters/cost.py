"""Cost and provenance: time, memory and work of every program, and what each result was made from.

A dump has thousands of results of one kind. Those are drawn and listed together, by all but the last word of
their names.
"""

import re
from collections import Counter
from typing import Any

from pipeline.report.collect import STAGES, Finished, Run
from pipeline.report.figures import Figure, figure
from pipeline.report.material import Material

LISTED = 20  # results of a kind that are shown one by one


def _kind(result: Finished) -> str:
    """Its name without the part that tells it from its like: `crawl/extract` of `crawl/extract-00af`."""
    return re.sub(r"-[0-9a-f]+$", "", result.name)


def _times(run: Run) -> Figure:
    """Seconds per stage, its instances stacked."""
    many = {kind for kind, number in Counter(map(_kind, run.finished.values())).items() if number > LISTED}
    seconds: Counter[tuple[str, str]] = Counter()
    for result in run.finished.values():
        seconds[result.stage, _kind(result) if _kind(result) in many else result.name] += result.seconds
    timed = {key: value for key, value in seconds.items() if value}
    bars = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "x": [value],
            "y": [stage],
            "marker": {"color": f"@1/{0.9 if index % 2 else 0.6}", "line": {"color": "@paper", "width": 1}},
            "hovertemplate": f"{name}: %{{x:,.1f}} s<extra></extra>",
        }
        for index, ((stage, name), value) in enumerate(timed.items())
    ]
    stages = list(dict.fromkeys(stage for stage, _ in reversed(timed)))
    axis = {"categoryorder": "array", "categoryarray": stages}
    return figure(bars, "seconds", "", legend=False, barmode="stack", yaxis=axis)


def chapter(material: Material) -> dict[str, Any]:
    """Time, memory and machines."""
    runs = [result.run for result in material.run.finished.values()]
    cores = sorted({run["cores"] for run in runs if "cores" in run})
    shown = [f"{' or '.join(map(str, cores))} cores"] if cores else []
    shown += sorted({run["cpu"] for run in runs if "cpu" in run})  # the same digits on the same kind only
    return {"cost": material.cost, "cores": ", ".join(shown), "figures": {"cost": _times(material.run)}}


def provenance(material: Material) -> dict[str, Any]:
    """Manifests by stage, of each kind of result the first `LISTED`, and the versions of each package:
    several mean that a run mixes them.
    """
    results = list(material.run.finished.values())
    stages = [(title, material.run.of(stage)) for stage, title in STAGES.items() if material.run.of(stage)]
    found: dict[str, set[str]] = {}
    for result in results:
        for name, version in result.manifest.get("packages", {}).items():
            found.setdefault(name, set()).add(version)
    packages = {name: sorted(versions) for name, versions in sorted(found.items())}
    return {"stages": [_group(title, found) for title, found in stages], "packages": packages}


def _group(title: str, results: list[Finished]) -> dict[str, Any]:
    """Return a stage's line and its table."""
    kinds: dict[str, list[Finished]] = {}
    for result in results:
        kinds.setdefault(_kind(result), []).append(result)
    return {
        "title": title,
        "number": len(results),
        "seconds": sum(result.seconds for result in results),
        "older": sum(result.code_is_older for result in results),
        "results": [result for members in kinds.values() for result in members[:LISTED]],
        "left": {kind: len(members) - LISTED for kind, members in kinds.items() if len(members) > LISTED},
    }
