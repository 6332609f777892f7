"""Stage `report`: `index.html`, one offline page with the files of its explorer in `samples/`, and
`summary.json`, from the manifests of a run and the files beside them. `pages.html` shows the pages of the
crawl.

Inputs are `--input <stage>/<instance>=<data folder>` for every result, and optionally `truth`, `seed_urls`
and `background_urls` files. Any subset of stages will do: a chapter without its stage is left out.

Of finished runs: `--export RUN FOLDER` (`pipeline.report.export`), `--compare RUN RUN FOLDER`
(`pipeline.report.two_runs`).
"""

import argparse
import sys
from pathlib import Path

from pipeline.config.report import ReportSection
from pipeline.protocol.ending import say
from pipeline.protocol.manifest import write_json
from pipeline.protocol.stage import InputError, Stage, run_stage
from pipeline.report.chapters import chapters
from pipeline.report.chapters.samples import data
from pipeline.report.chapters.summary import subtitle
from pipeline.report.claims import CONTRADICTED, HELD, INCONCLUSIVE
from pipeline.report.export import export
from pipeline.report.material import read
from pipeline.report.page import render
from pipeline.report.pages import write_pages
from pipeline.report.two_runs import compare


def run(stage: Stage[ReportSection]) -> dict[str, int | float | str]:
    """Write `index.html` and `summary.json`; counts say what is in them."""
    section = stage.config
    shards = stage.partial if section.samples else None
    material = read(section, stage.inputs, shards, stage.work, stage.launch)
    say(f"report: read {len(material.run.finished)} results")
    shown = chapters(material)
    say(f"report: made {len(shown)} chapters")
    samples = data(material.results, shards)
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


def of_finished_runs(words: list[str]) -> bool:
    """Do what `--export` or `--compare` asks for; False without them."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--export", nargs=2, type=Path, metavar=("RUN", "FOLDER"))
    parser.add_argument("--compare", nargs="+", type=Path, metavar="RUN")
    given, _ = parser.parse_known_args(words)
    if given.export:
        export(*given.export)
        print(f"written to {given.export[1]}")
    elif given.compare:
        if len(given.compare) not in (2, 3):
            raise InputError("--compare: expected two runs, and perhaps a folder for the page")
        first, second, *rest = given.compare
        folder = rest[0] if rest else Path(f"results/{first.name}-{second.name}")
        compare(first, second, folder)
        print(f"Comparison: {folder / 'index.html'}")
    return bool(given.export or given.compare)


if __name__ == "__main__":
    try:
        finished = of_finished_runs(sys.argv[1:])
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    if not finished:
        run_stage("report", ReportSection, run)
