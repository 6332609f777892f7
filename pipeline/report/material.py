"""What a run is reported from, read and computed once: the chapters and `summary.json` draw on it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.config.report import PAPER, ReportSection
from pipeline.core.manifest import ROOT
from pipeline.core.overlays import read_yaml
from pipeline.core.stage import InputError
from pipeline.core.stages import MODEL_STAGES
from pipeline.report import methods
from pipeline.report.baselines import baselines
from pipeline.report.claims import Judgement, read_claims
from pipeline.report.collect import Run, collect
from pipeline.report.compare import Results
from pipeline.report.judgements import judge
from pipeline.report.pages import kept_by_language
from pipeline.report.truth import iterations


@dataclass
class Material:
    """A run, what its models scored, the paper's numbers and claims, the corpus iterations' metrics."""

    section: ReportSection
    run: Run
    results: Results
    paper: dict[str, Any]
    claims: list[Judgement]
    iterations: list[dict[str, Any]]
    languages: dict[str, int]  # pages of the clean corpus
    hosts: int

    @property
    def corpus_only(self) -> bool:
        """Whether the run has made a corpus, and at most asked models that are there."""
        return bool(self.iterations) and not any(self.run.of(stage) for stage in MODEL_STAGES)

    @property
    def unit(self) -> str:
        """What kept pages are counted in."""
        return "tokens" if "tokens" in self.iterations[-1] else "words and CJK characters"

    @cached_property
    def cost(self) -> dict[str, Any]:
        """Seconds in all and by stage, the largest memory, and the counters of work that components did."""
        stages: Counter[str] = Counter()
        counters: Counter[str] = Counter()
        runs = [result.run for result in self.run.finished.values()]
        for result in self.run.finished.values():
            stages[result.stage] += result.seconds
            counters.update(result.run.get("counters", {}))
        seconds = sum(stages.values())
        return {
            "seconds": round(seconds, 1),
            "hours": round(seconds / 3600, 4),
            "stages": {stage: round(value, 1) for stage, value in stages.items()},
            "peak_rss_mb": max((run.get("peak_rss_mb", 0) for run in runs), default=0),
            "hosts": sorted({run["host"] for run in runs if "host" in run}),
            "counters": dict(sorted(counters.items())),
        }

    @cached_property
    def baselines(self) -> dict[str, dict[str, float]]:
        """Scores of rules without a model, by benchmark."""
        return baselines(self.results)

    def summary(self) -> dict[str, Any]:
        """`summary.json`: the run as other programs read it."""
        rows = [{key: value for key, value in row.items() if key != "curve"} for row in self.iterations]
        return {
            "run": self.run.name,
            "models": self.results.scores,
            "baselines": self.baselines,
            "corpus": {"iterations": rows},
            "comparisons": [asdict(gain) for gain in self.results.gains],
            "claims": [judgement.row() for judgement in self.claims],
            "methods": methods.table(self.run, self.results),
            "cost": self.cost,
            "manifests": {name: result.manifest["fingerprint"] for name, result in self.run.finished.items()},
        }


def _paper(path: Path) -> dict[str, Any]:
    if not isinstance(numbers := read_yaml(path), dict):
        raise InputError(f"{path}: expected a mapping")
    return numbers


def read(
    section: ReportSection,
    inputs: dict[str, list[str]],
    shards: Path | None = None,
    work: Path = Path(),
    launch: Mapping[str, Any] | None = None,
) -> Material:
    """Read the run, and judge it by truth and paper; the section's files are relative to the root. The files
    of the page's explorer go to the folder `shards`; tables are joined in `work`, as `launch` says.
    """
    run = collect(section.run, inputs)
    run.judged = section.judged
    results = Results(run, shards)
    judged = judge(read_claims(ROOT / section.claims), results, section.seed_spread)
    kept = kept_by_language(run, work, dict(launch or {}))
    return Material(section, run, results, _paper(ROOT / PAPER), judged, iterations(run), *kept)
