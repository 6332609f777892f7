"""The report stage in this process."""

import json
from pathlib import Path

from pipeline.config.report import ReportSection
from pipeline.core.stage import run_stage
from pipeline.report.__main__ import run as write_report


def report(inputs: dict[str, list[str]], folder: Path, **config: object) -> tuple[str, dict]:
    """Run the stage on `inputs`; the page and the summary."""
    pairs = [f"{key}={path}" for key, paths in inputs.items() for path in paths]
    words = [word for pair in pairs for word in ("--input", pair)]
    words += ["--config", json.dumps({"run": "test", **config}), "--work", f"{folder}/work"]
    output = folder / "report"
    words += ["--output", str(output), "--manifest", str(output / "manifest.json")]
    run_stage("report", ReportSection, write_report, words)
    return (output / "index.html").read_text(), json.loads((output / "summary.json").read_text())
