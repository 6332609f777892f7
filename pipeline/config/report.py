"""Keys of the report: what the page shows, and the files that hold the paper's numbers and claims."""

from typing import ClassVar

from pipeline.core.section import Section, key

PAPER = "configs/paper.yaml"  # its tables and figures as numbers


class ReportSection(Section):
    """One offline HTML page and `summary.json`, made from the manifests of a run."""

    files: ClassVar[tuple[str, ...]] = ("truth", "claims")
    version: ClassVar[int] = 2
    reads_manifests: ClassVar[bool] = True
    filled: ClassVar[tuple[str, ...]] = ("run", "pins")

    run: str = key("run", "name of the run")
    pins: dict[str, str] = key({}, "results kept although what they came from changed")
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
