"""The page's chapters, in order: the summary, one for each stage, samples, cost and provenance.

A module here makes what its chapter's template shows and the figures in it. A stage without a module of its
own gets the chapter of `training`: its curves and its counts.
"""

from pipeline.report.chapters import (
    corpus,
    cost,
    crawl,
    decontaminate,
    evaluate,
    reward,
    rl,
    samples,
    summary,
    training,
    trajectory,
)
from pipeline.report.collect import STAGES
from pipeline.report.material import Material
from pipeline.report.page import Chapter

TITLES = {"summary": "Summary"} | STAGES | {"samples": "Samples", "cost": "Cost", "provenance": "Provenance"}
MAKERS = {
    "summary": summary.chapter,
    "crawl": crawl.chapter,
    "corpus": corpus.chapter,
    "decontaminate": decontaminate.chapter,
    "reward": reward.chapter,
    "rl": rl.chapter,
    "evaluate": evaluate.chapter,
    "trajectory": trajectory.chapter,
    "samples": samples.chapter,
    "cost": cost.chapter,
    "provenance": cost.provenance,
}


def chapters(material: Material) -> list[Chapter]:
    """Return the chapters that this run has something to show for."""
    found = []
    for name, title in TITLES.items():
        if name in STAGES and not material.run.of(name):
            continue
        template = name if name in MAKERS else "training"
        shown = MAKERS[name](material) if name in MAKERS else training.chapter(material, name)
        if shown is not None:
            found.append(Chapter(name, title, template, shown))
    return found
