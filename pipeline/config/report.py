"""Keys of the report: what the page shows, and the files that hold the paper's numbers and claims."""

from typing import ClassVar

from pipeline.config.section import Section, key


class ReportSection(Section):
    """One offline HTML page and `summary.json`, made from the manifests of a run."""

    files: ClassVar[tuple[str, ...]] = ("truth", "claims", "paper")
    version: ClassVar[int] = 2
    reads_manifests: ClassVar[bool] = True

    run: str = key("run", "name of the run; the workflow fills it in")
    pins: dict[str, str] = key({}, "results kept although what they came from changed; likewise filled in")
    truth: list[str] | None = key(
        None,
        "labels.jsonl with `url` and `label` (math, not_math, unsure), for precision and recall",
    )
    claims: str = key("configs/claims.yaml", "the paper's claims and the comparisons that decide each")
    judged: list[str] | None = key(
        None, "models that claims and headline are about, as names or patterns (`grpo-?`); null: all"
    )
    seed_spread: float = key(
        0.03,
        "standard deviation of accuracy over training seeds, a share, assumed where a run has one; ours",
        gt=0,
    )
    paper: str = key("configs/paper.yaml", "the paper's tables and figures as numbers")
    samples: bool = key(
        True, "write all answers and rollouts for the page's explorer; as large as the evaluations"
    )
    removals: int = key(60, "listed removals of decontamination, taken from the benchmarks in turn", ge=0)
