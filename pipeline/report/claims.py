"""The paper's claims and what a run says about them. `configs/claims.yaml` states each and what decides it.

By the effects that a run measures (`pipeline.report.judgements`) a claim is

- `held` if every effect is at least the smallest that matters and significantly above `at_least`,
- `contradicted` if an effect is significantly below the smallest that matters,
- `inconclusive` if the run's questions and seeds cannot tell,
- `not measured` without such models, or where these solve nothing, or everything.

Significant means a two-sided p below 5 % after Holm's correction over all claims that the run measures.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from pipeline.core.overlays import read_yaml
from pipeline.core.stage import InputError
from pipeline.intervals import Estimate
from pipeline.report.compare import Difference
from pipeline.report.selection import Selector

HELD, CONTRADICTED, INCONCLUSIVE = "held", "contradicted", "inconclusive"
NOT_MEASURED = "not measured"
VERDICTS = (HELD, CONTRADICTED, INCONCLUSIVE, NOT_MEASURED)
LEVEL = 0.05


class Claim(BaseModel):
    """A claim of the paper and the comparison that decides it."""

    model_config = ConfigDict(extra="forbid")

    id: str
    statement: str
    section: str
    paper: str = ""
    published: tuple[float, float] | None = None  # the paper's worse and better, means over its benchmarks
    pass_at_k: tuple[float, float] | None = None  # likewise Pass@K, where `published` is Maj@K
    test: Literal["accuracy", "kinds", "voting", "recall", "converged"]
    better: Selector | str | None = None
    worse: Selector | str | None = None
    models: Selector = {}
    benchmarks: list[str] = []
    kinds: list[str] = ["cot"]
    at_least: float = 0.0
    matters: float
    margin: float = 0.0
    across_parents: bool = False
    decided_by: list[str]

    @field_validator("test")
    @classmethod
    def _voting_has_both(cls, test: str, info: ValidationInfo) -> str:
        if test == "voting" and info.data.get("published") and not info.data.get("pass_at_k"):
            raise PydanticCustomError("claim", "a voting claim with `published` needs `pass_at_k` too")
        return test

    @property
    def deciders(self) -> str:
        """The configurations that decide it, in words."""
        names = ", ".join(self.decided_by)
        return f"decided by {names}" if names else "no shipped configuration decides it"


@dataclass(frozen=True)
class Effect:
    """What a claim says of one pair of families: the effect over all benchmarks, and each benchmark's; what
    it must exceed, and the smallest that matters.
    """

    estimate: Estimate
    comparisons: list[Difference]
    text: str
    at_least: float
    matters: float

    @property
    def p_of_none(self) -> float:
        """One-sided p of the null hypothesis that the effect is not what the claim says."""
        return self.estimate.above(self.at_least)


@dataclass
class Judgement:
    """What a run says about a claim. `effects`: one for each pair of families, the weakest first."""

    claim: Claim
    missing: str = ""  # why nothing was measured
    effects: list[Effect] = field(default_factory=list)
    p: float = 1.0  # after Holm's correction
    level: float = LEVEL  # at which this claim was tested

    @property
    def favoured(self) -> bool:
        """Whether every effect is as large as it must be to matter."""
        return all(found.estimate.effect >= found.matters for found in self.effects)

    @property
    def raw_p(self) -> float:
        """Two-sided p. Favoured, the weakest effect decides; else the worst, corrected for their number."""
        if self.favoured:
            one_sided = max(found.p_of_none for found in self.effects)
        else:
            below = min(found.estimate.below(found.matters) for found in self.effects)
            one_sided = below * len(self.effects)
        return min(1.0, 2 * one_sided)

    @property
    def verdict(self) -> str:
        if not self.effects:
            return NOT_MEASURED
        if self.p > LEVEL:
            return INCONCLUSIVE
        return HELD if self.favoured else CONTRADICTED

    @property
    def detectable(self) -> float:
        """The smallest effect that the run would have seen in four cases of five, at this claim's level."""
        return max(found.at_least + found.estimate.detectable(self.level) for found in self.effects)

    @property
    def comparisons(self) -> list[Difference]:
        return [comparison for found in self.effects for comparison in found.comparisons]

    @property
    def pooled(self) -> list[str]:
        """The effects in words that no single comparison shows."""
        return [found.text for found in self.effects if len(found.comparisons) != 1]

    @property
    def evidence(self) -> str:
        """The numbers in words."""
        if not self.effects:
            return self.missing
        return f"{'; '.join(found.text for found in self.effects)}; {self.test}"

    @property
    def test(self) -> str:
        """The test in words: what mattered, what it said, what it could have seen."""
        p = f"p = {self.p:.3f}" if self.p >= 0.001 else "p < 0.001"
        if self.claim.test == "converged":
            return f"surely above {100 * self.claim.at_least:.0f} % is asked; {p} (Holm)"
        wanted = ", ".join(
            f"from {100 * bound:.1f} points on it matters"
            if bound > 0
            else f"at most {-100 * bound:.1f} points worse"
            for bound in dict.fromkeys(found.matters for found in self.effects)
        )
        return f"{wanted}; {100 * self.detectable:+.1f} could be seen; {p} (Holm)"

    @property
    def scale(self) -> float:
        """The largest bound of any interval, for an axis that shows them all."""
        return max((abs(bound) for row in self.comparisons for bound in row.ci95), default=1.0)

    def row(self) -> dict[str, Any]:
        """As in `summary.json`."""
        claim = self.claim
        found: dict[str, Any] = {
            "id": claim.id,
            "statement": claim.statement,
            "section": claim.section,
            "verdict": self.verdict,
            "evidence": self.evidence,
            "comparisons": [asdict(comparison) for comparison in self.comparisons],
        }
        if self.effects:
            weakest, matters = self.effects[0].estimate, self.effects[0].matters
            found |= {"effect": weakest.effect, "ci95": list(weakest.interval()), "matters": matters}
            found |= {"p_holm": self.p, "detectable": self.detectable}
        return found


def read_claims(path: Path) -> list[Claim]:
    """Claims of a file; a bad one is an `InputError` that names it."""
    try:
        if not isinstance(rows := read_yaml(path), list):
            raise InputError(f"{path}: expected a list of claims")
        return [Claim.model_validate(row) for row in rows]
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: claim key {where}: {first['msg']} (got {first.get('input')!r})") from error
