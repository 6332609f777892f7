"""Stage `report`: `index.html`, one offline page with the files of its explorer in `samples/`, and
`summary.json`, from the manifests of a run and the files beside them. `pages.html` shows the pages of the
crawl.

Inputs are `--input <stage>/<instance>=<data folder>` for every result, and optionally `truth`, `seed_urls`
and `background_urls` files. Any subset of stages will do: a chapter without its stage is left out.
"""

from pipeline.config.report import ReportSection
from pipeline.core.ending import say
from pipeline.core.manifest import write_json
from pipeline.core.stage import Stage, run_stage
from pipeline.report.chapters import chapters
from pipeline.report.chapters.samples import data
from pipeline.report.chapters.summary import subtitle
from pipeline.report.claims import CONTRADICTED, HELD, INCONCLUSIVE
from pipeline.report.material import read
from pipeline.report.page import render
from pipeline.report.pages import write_pages


def run(stage: Stage[ReportSection]) -> dict[str, int | float | str]:
    """Write `index.html` and `summary.json`; counts say what is in them."""
    section = stage.config
    material = read(section, stage.inputs, stage.partial, stage.work, stage.launch)
    say(f"report: read {len(material.run.finished)} results")
    shown = chapters(material)
    say(f"report: made {len(shown)} chapters")
    samples = data(material.results, stage.partial)
    (stage.partial / "index.html").write_text(render(section.run, subtitle(material), shown, samples))
    write_pages(material.run, stage.partial, stage.work, stage.launch)
    write_json(stage.partial / "summary.json", material.summary())
    verdicts = [judgement.verdict for judgement in material.claims]
    return {
        "results": len(material.run.finished),
        "chapters": len(shown),
        "claims_held": verdicts.count(HELD),
        "claims_contradicted": verdicts.count(CONTRADICTED),
        "claims_inconclusive": verdicts.count(INCONCLUSIVE),
    }


if __name__ == "__main__":
    run_stage("report", ReportSection, run)
