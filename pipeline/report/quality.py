"""Print how good a run's classifier is on labelled pages that it was never trained on: `make real` ends so.

python -m pipeline.report.quality results/real/report/summary.json
"""

import json
import sys
from pathlib import Path
from typing import Any

MEASURES = {
    "average_precision": "average precision",
    "recall_at_precision_0.9": "recall at precision 90",
    "precision": "precision at the cut",
    "recall": "recall at the cut",
}


def lines(summary: dict[str, Any]) -> list[str]:
    """Return the table, in percent with 95 % intervals over hosts, and what the cut promises; none without
    truth.
    """
    rows = summary.get("corpus", {}).get("iterations", [])
    truth = rows[-1].get("truth", {}) if rows else {}
    scopes = [(name, found) for name, found in sorted(truth.items()) if "hosts" in found]
    if not scopes:
        return []
    table = [f"{'pages (math), last iteration':36}" + "".join(f"{title:>25}" for title in MEASURES.values())]
    for name, found in scopes:
        head = f"{name.replace('_', ' ')}: {found['pages']} ({found['math']})"
        table.append(f"{head:36}" + "".join(f"{_cell(found, measure):>25}" for measure in MEASURES))
        if alone := found.get("fasttext_alone"):
            cells = "".join(f"{_cell(alone, measure):>25}" for measure in MEASURES if measure in alone)
            table.append(f"{'  by fastText alone':36}{cells}")
    if promise := rows[-1].get("promise"):
        values = _cell({"p": promise["precision"], "p_ci95": promise["ci95"]}, "p")
        table.append(f"The cut promises precision {values}, by {promise['pages']} {promise['sample']}.")
        table += map(_language, promise.get("languages", []))
    return table


def _language(row: dict[str, Any]) -> str:
    """Return what a language's own cut promises, or that of all languages that have none."""
    name = row["language"] or "all others"
    if not row["kept"]:
        return f"  {name}: nothing is kept"
    values = _cell({"p": row["precision"], "p_ci95": row["ci95"]}, "p")
    return f"  {name}: {values} by {row['pages']}; {row['kept']} pages from {row['threshold']:.2f} on"


def _cell(found: dict[str, Any], measure: str) -> str:
    if found[measure] is None:
        return "-"
    value, low, high = (100 * number for number in (found[measure], *found[f"{measure}_ci95"]))
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"


def main() -> None:
    print("\n".join(lines(json.loads(Path(sys.argv[1]).read_text()))))


if __name__ == "__main__":
    main()
