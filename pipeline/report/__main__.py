"""Stage `report`: `index.html`, one offline page, and `summary.json`, from the manifests of a run and the
files beside them.

Inputs are `--input <stage>/<instance>=<data folder>` for every result, and optionally `truth`, `seed_urls`
and `background_urls` files. Any subset of stages will do: a chapter without its stage is left out.
"""

from dataclasses import asdict
from typing import Any

from pipeline.common.manifest import ROOT, write_json
from pipeline.common.stage import Stage, run_stage
from pipeline.config.report import ReportSection
from pipeline.report import corpus, methods, tables
from pipeline.report.chapters import Material, chapters, drawings, subtitle
from pipeline.report.claims import HELD, NOT_HELD, judgements, read_claims
from pipeline.report.collect import collect
from pipeline.report.compare import Results
from pipeline.report.page import render
from pipeline.report.samples import browser


def read(section: ReportSection, inputs: dict[str, list[str]]) -> Material:
    """Read the run and hold it against truth and paper; the section's files are relative to the root."""
    run = collect(section.run, inputs)
    results, rows = Results(run), corpus.iterations(run)
    paper = tables.read_paper(ROOT / section.paper)
    judged = judgements(read_claims(ROOT / section.claims), run, results)
    return Material(section, run, results, paper, judged, rows)


def summary(material: Material) -> dict[str, Any]:
    """`summary.json`: the run as other programs read it."""
    rows = [{key: value for key, value in row.items() if key != "curve"} for row in material.iterations]
    return {
        "run": material.run.name,
        "models": material.results.scores,
        "corpus": {"iterations": rows},
        "comparisons": [asdict(gain) for gain in material.results.gains],
        "claims": [judgement.row() for judgement in material.claims],
        "methods": methods.table(material.run, material.results),
        "cost": material.cost,
        "manifests": {node.name: node.manifest["fingerprint"] for node in material.run.nodes.values()},
    }


def run(stage: Stage[ReportSection]) -> dict[str, int | float | str]:
    """Write `index.html` and `summary.json`; counts say what is in them."""
    section = stage.config
    material = read(section, stage.inputs)
    shown = chapters(material)
    samples = {"tasks": browser(material.results, section.samples, section.sample_characters)}
    page = render(section.run, subtitle(material), shown, drawings(material), samples)
    (stage.partial / "index.html").write_text(page)
    write_json(stage.partial / "summary.json", summary(material))
    verdict = [claim.verdict for claim in material.claims]
    return {
        "results": len(material.run.nodes),
        "chapters": len(shown),
        "claims_held": verdict.count(HELD),
        "claims_not_held": verdict.count(NOT_HELD),
    }


if __name__ == "__main__":
    run_stage("report", ReportSection, run)
