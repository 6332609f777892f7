"""An experiment on one page, and in `result.json` beside it: both say all and need nothing else. A list of
all experiments links to them.
"""

from html import escape
from pathlib import Path
from typing import Any

from pipeline.cli.experiment.design import Design
from pipeline.cli.experiment.findings import Findings
from pipeline.core.atomic import atomic_write
from pipeline.core.manifest import write_json
from pipeline.report import figures
from pipeline.report.chapters.rl import PANELS
from pipeline.report.collect import read_json
from pipeline.report.compare import side_name
from pipeline.report.page import Chapter, render

RESULTS = Path("results/experiments")
PAGE, RESULT = "index.html", "result.json"
FAILED = "failed"  # the verdict where the run ended with an error
WATCHED = ("accuracy", "reward", "length", "entropy", "kl")  # of the panels of RL
CHAPTERS = {
    "summary": "Verdict",
    "curves": "Training",
    "flips": "Questions that flipped",
    "cost": "Cost",
    "origin": "Origin",
}
SHOWN = 10  # flipped questions of an arm, each way


def _figures(found: Findings) -> dict[str, Any]:
    """Draw the curves of all seeds over the baseline's, each side in a colour of its own."""
    palette = {name: place for place, side in enumerate(found.families) for name in found.families[side]}
    models = [model for side in found.families for model in found.models(side)]
    files = {"held-out": ("evaluation.jsonl", "accuracy")}
    files |= {name: ("metrics.jsonl", name) for name in (*WATCHED, "loss")}
    drawn = {}
    for name, (file, column) in files.items():
        if traces := figures.logged(models, file, column, palette):
            share = {"yaxis": figures.PERCENT} if column == "accuracy" else {}
            drawn[name] = figures.figure(traces, "step", "", legend=False, **share)
    return drawn


def _chapters(found: Findings, rows: dict[str, Any]) -> list[Chapter]:
    """Make the chapters, each of which shows its part of what is known."""
    panels = {"held-out": ("Accuracy, held out", "greedy, on questions that training does not use")}
    panels |= {name: PANELS[name] for name in WATCHED} | {"loss": ("Loss", "of the training")}
    known = {
        "experiment": found.design.experiment,
        "baseline": found.baseline,
        "families": found.families,
        "rows": rows,
        "judgements": found.judgements,
        "scale": max((item.scale for item in found.judgements.values()), default=1.0),
        "sides": {side_name(names): arm for arm, names in found.families.items()},
        "tasks": found.tasks,
        "figures": _figures(found),
        "panels": panels,
        "flips": {arm: found.flips(arm) for arm in found.arms},
        "shown": SHOWN,
        "costs": {side: found.cost(side) for side in found.families},
        "settings": {arm: found.settings(arm) for arm in found.arms},
        "files": found.own_files(),
        "models": {side: found.made(side) for side in found.families},
    }
    return [Chapter(name, title, f"experiment_{name}", known) for name, title in CHAPTERS.items()]


def write_failed(design: Design, reason: str) -> Path:
    """Write the JSON of an experiment whose run failed; what an earlier run of the same file found stays.
    Returns what to look at.
    """
    folder, about = RESULTS / design.name, _about(design)
    page, result = folder / PAGE, folder / RESULT
    if page.exists() and result.exists() and read_json(result)["file"] == about["file"]:
        return page
    page.unlink(missing_ok=True)
    arms = design.experiment.arms.items()
    rows = [{"arm": arm, "change": change, "verdict": FAILED, "meaning": reason} for arm, change in arms]
    write_json(result, about | {"arms": rows})
    return result


def _about(design: Design) -> dict[str, Any]:
    file = design.experiment.model_dump(mode="json")
    return {"experiment": design.name, "file": file, "run": design.graph.config.run}


def tell(row: dict[str, Any]) -> str:
    """Say in a line what came out of an arm."""
    shown = ""
    if "difference" in row:
        mean, low, high = (f"{100 * value:+.1f}" for value in (row["difference"], *row["ci95"]))
        shown = f"{mean} points (95 % interval {low} to {high}); "
    return f"{row['arm']}, {row['verdict']}: {shown}{row['meaning']}"


def write_sheet(found: Findings) -> Path:
    """Write page and JSON of an experiment; returns the page's path."""
    folder, rows = RESULTS / found.design.name, {arm: found.row(arm) for arm in found.arms}
    subtitle = " ".join(map(tell, rows.values()))
    chapters = _chapters(found, rows)
    page = render(found.design.name, subtitle, chapters, {"tasks": [], "rollouts": {}}, "Experiment")
    with atomic_write(folder / PAGE) as partial:
        partial.write_text(page)
    baseline = {"name": found.baseline, "cost": found.cost(found.baseline)}
    whole = _about(found.design) | {
        "baseline": baseline | {"models": found.made(found.baseline)},
        "arms": list(rows.values()),
        "own_files": found.own_files(),
    }
    write_json(folder / RESULT, whole)
    return folder / PAGE


def write_index() -> Path:
    """Write a page that lists all experiments, failures too; returns its path."""
    items = []
    for result in sorted(RESULTS.glob(f"*/{RESULT}")):
        name, page = result.parent.name, result.with_name(PAGE)
        shown = (page if page.exists() else result).relative_to(RESULTS)
        verdicts = "".join(f"<br>{escape(tell(row))}" for row in read_json(result)["arms"])
        items.append(f'<li><a href="{shown}">{name}</a>{verdicts}</li>\n')
    head = '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>Experiments</title>\n'
    with atomic_write(RESULTS / PAGE) as partial:
        partial.write_text(f"{head}<h1>Experiments</h1>\n<ul>\n{''.join(items)}</ul>\n</html>\n")
    return RESULTS / PAGE
