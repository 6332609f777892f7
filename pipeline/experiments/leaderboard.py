"""All experiments, failures too: `dsm leaderboard` prints them and writes them as a page and as JSON.

An experiment is a file in experiments/, a result in results/experiments/, or both: results outlive files.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from pipeline.experiments.design import FILES, read_experiment
from pipeline.experiments.sheet import FAILED, PAGE, RESULT, RESULTS
from pipeline.intervals import in_percent
from pipeline.protocol.atomic import atomic_write
from pipeline.protocol.errors import InputError
from pipeline.protocol.manifest import write_json
from pipeline.protocol.progress import duration
from pipeline.report.claims import NOT_MEASURED
from pipeline.report.collect import read_json
from pipeline.report.page import Chapter, render
from pipeline.report.scores import aligned

VERDICTS = ("held", "open", "contradicted", "stopped", FAILED, NOT_MEASURED)


def list_experiments() -> list[dict[str, Any]]:
    """Give a row for each arm of each experiment: the best first, those without a number last."""
    names = {path.stem for path in FILES.glob("*.yaml")} | {
        path.parent.name for path in RESULTS.glob(f"*/{RESULT}")
    }
    rows = [row for name in sorted(names) for row in _arms(name)]
    signs = {"higher": -1, "lower": 1}
    return sorted(
        rows,
        key=lambda row: (
            VERDICTS.index(row["verdict"]),
            "difference" not in row,
            signs[row["expected"]] * row.get("difference", 0.0),
        ),
    )


def _arms(name: str) -> list[dict[str, Any]]:
    file, result = FILES / f"{name}.yaml", RESULTS / name / RESULT
    now, problem = None, ""
    try:
        now = read_experiment(file).model_dump(mode="json") if file.exists() else None
    except InputError as error:
        problem = str(error)
    found = read_json(result) if result.exists() else {"file": now, "arms": []}
    asked = found["file"] or {"arms": {name: {}}, "baseline": "", "question": "", "expected": "higher"}
    rows = found["arms"] or [
        {"arm": arm, "change": change, "verdict": NOT_MEASURED, "meaning": problem or "not run yet."}
        for arm, change in asked["arms"].items()
    ]
    remark = problem or ("its file was changed since." if now and now != found["file"] else "")
    more = {"experiment": name, "baseline": asked["baseline"], "question": asked["question"]}
    more |= {"expected": asked["expected"]}
    more |= {"page": f"{name}/{PAGE}" if (RESULTS / name / PAGE).exists() else None}
    return [row | more | {"remark": remark if result.exists() else ""} for row in rows]


def lines_of(rows: list[dict[str, Any]]) -> list[str]:
    """Print rows as a table."""
    table = [("experiment", "arm", "over", "verdict", "points", "seeds", "time", "what it means")]
    for row in rows:
        points = in_percent(row["difference"], row["ci95"], "+") if "difference" in row else ""
        cost = row.get("cost")
        spent = [str(cost["seeds"]), duration(cost["training_seconds"])] if cost else ["", ""]
        told = " ".join(filter(None, [row["meaning"], row["remark"]]))
        table.append((row["experiment"], row["arm"], row["baseline"], row["verdict"], points, *spent, told))
    return aligned(table)


def write_leaderboard() -> Path:
    """Write the page and `leaderboard.json` of all experiments; returns the page's path."""
    rows = list_experiments()
    counts = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in VERDICTS}
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    chapter = Chapter("summary", "All arms", "experiments", {"rows": rows})
    page = render(
        "Experiments", f"{told or 'None yet'}.", [chapter], {"tasks": [], "rollouts": {}}, "Leaderboard"
    )
    with atomic_write(RESULTS / PAGE) as partial:
        partial.write_text(page)
    write_json(RESULTS / "leaderboard.json", {"rows": rows})
    return RESULTS / PAGE


def main(argv: list[str] | None = None) -> None:
    """Print and write the leaderboard."""
    argparse.ArgumentParser(prog="dsm leaderboard", description=__doc__.partition("\n")[0]).parse_args(argv)
    try:
        rows = list_experiments()
        print("\n".join(lines_of(rows)) if rows else "no experiment yet; see dsm experiment --help")
        print(f"Page: {write_leaderboard()}")
    except InputError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
