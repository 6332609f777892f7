"""Judges the paper's claims by a run. `configs/claims.yaml` states each claim and what decides it.

A claim compares families of models, each on the average of the claim's benchmarks. It is

- `held` if every effect is at least the smallest that matters and significantly above `at_least`,
- `contradicted` if an effect is significantly below the smallest that matters,
- `inconclusive` if the run's questions and seeds cannot tell,
- `not measured` without such models, or where these solve nothing, or everything.

Significant means a two-sided p below 5 % after Holm's correction over all claims that the run measures.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline.intervals import Estimate, estimate_effect, holm
from pipeline.protocol.overlays import read_yaml
from pipeline.protocol.stage import InputError
from pipeline.report.collect import Run
from pipeline.report.compare import Answers, Difference, Results, Task, arrays, difference, side_name
from pipeline.report.selection import Pair, Selector, families, pairs
from pipeline.report.truth import headline, pages_by_scope, urls_in, urls_of

HELD, CONTRADICTED, INCONCLUSIVE = "held", "contradicted", "inconclusive"
NOT_MEASURED = "not measured"
VERDICTS = (HELD, CONTRADICTED, INCONCLUSIVE, NOT_MEASURED)
LEVEL = 0.05
FLOOR = "no shared question tells the models apart: all answers are wrong, or all right"


class Claim(BaseModel):
    """A claim of the paper and the comparison that decides it."""

    model_config = ConfigDict(extra="forbid")

    id: str
    statement: str
    section: str
    paper: str = ""
    test: Literal["accuracy", "kinds", "voting", "recall", "converged"]
    better: Selector | str | None = None
    worse: Selector | str | None = None
    models: Selector = {}
    benchmarks: list[str] = []
    kinds: list[str] = ["cot"]
    at_least: float = 0.0
    matters: float
    across_parents: bool = False
    decided_by: list[str]


@dataclass(frozen=True)
class Row:
    """Values by question id of each model of two sides, on one benchmark and kind of solution."""

    benchmark: str
    kind: str
    better: list[dict[str, float]]
    worse: list[dict[str, float]]

    @property
    def tells(self) -> bool:
        """Whether the sides share questions, and not all values are the same."""
        found = arrays(self.better, self.worse)
        return bool(found) and len(np.unique(np.concatenate(found))) > 1


@dataclass(frozen=True)
class Effect:
    """What a claim says of one pair of families: the effect over all benchmarks, and each benchmark's."""

    estimate: Estimate
    comparisons: list[Difference]
    text: str


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
        return all(found.estimate.effect >= self.claim.matters for found in self.effects)

    @property
    def raw_p(self) -> float:
        """Two-sided p. Favoured, the weakest effect decides; else the worst, corrected for their number."""
        if self.favoured:
            one_sided = max(found.estimate.above(self.claim.at_least) for found in self.effects)
        else:
            below = min(found.estimate.below(self.claim.matters) for found in self.effects)
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
        return max(self.claim.at_least + found.estimate.detectable(self.level) for found in self.effects)

    @property
    def comparisons(self) -> list[Difference]:
        return [comparison for found in self.effects for comparison in found.comparisons]

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
            return f"held above {100 * self.claim.at_least:.0f} %; {p} (Holm)"
        matters = 100 * self.claim.matters
        wanted = (
            f"from {matters:.1f} points on it matters"
            if matters > 0
            else f"at most {-matters:.1f} points worse"
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
            weakest = self.effects[0].estimate
            found |= {"effect": weakest.effect, "ci95": list(weakest.interval()), "matters": claim.matters}
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


def _points(mean: float, bounds: tuple[float, float]) -> str:
    low, high = (f"{100 * bound:+.1f}" for bound in bounds)
    return f"{100 * mean:+.1f} [{low}, {high}]"


def _mean_of_kinds(rows: list[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays (seeds, questions) of a benchmark, over the questions that were answered in all kinds."""
    every = [found for row in rows for found in (*row.better, *row.worse)]
    shared = sorted(set.intersection(*map(set, every)))
    better, worse = (
        np.mean([[[found[key] for key in shared] for found in side] for side in sides], axis=0)
        for sides in ([row.better for row in rows], [row.worse for row in rows])
    )
    return better, worse


def weigh(names: tuple[str, str], rows: list[Row], *, matched: bool, spread: float) -> Effect | None:
    """Return the effect over all benchmarks, each the average of its kinds, each with the same weight."""
    usable = [row for row in rows if arrays(row.better, row.worse)]
    if not usable:
        return None
    by_benchmark: dict[str, list[Row]] = {}
    for row in usable:
        by_benchmark.setdefault(row.benchmark, []).append(row)
    tasks = [_mean_of_kinds(members) for members in by_benchmark.values()]
    found = estimate_effect(tasks, matched=matched, spread=spread)
    made = [
        difference(names, (row.benchmark, row.kind), row.better, row.worse, matched=matched, spread=spread)
        for row in usable
    ]
    seeds = [len(usable[0].better), *([] if matched else [len(usable[0].worse)])]
    ones = {(1,): "one seed", (1, 1): "one seed each"}
    counted = ones.get(tuple(seeds), f"{' and '.join(map(str, seeds))} seeds")
    assumed = f", spread taken as {100 * spread:.1f} points" if spread and 1 in seeds else ""
    shown = ", ".join(" ".join(filter(None, (row.benchmark, row.kind))) for row in usable)
    on = "on" if len(usable) == 1 else "mean of"
    text = f"{names[0]} − {names[1]}: {_points(found.effect, found.interval())} points, {on} {shown}"
    return Effect(found, [row for row in made if row], text + (f" ({counted}{assumed})" if spread else ""))


def _tasks(claim: Claim, results: Results) -> list[Task]:
    return [
        (benchmark, kind)
        for benchmark, kind in results.tasks
        if benchmark in claim.benchmarks and kind in claim.kinds
    ]


def _of_models(
    claim: Claim, results: Results, rows: Callable[[Pair], list[Row]], spread: float
) -> list[Effect | None]:
    found = []
    for pair in pairs(claim.better, claim.worse, results.run, across_parents=claim.across_parents):
        if shared := rows(pair):
            names = side_name(pair.better), side_name(pair.worse)
            told = any(row.tells for row in shared)
            found.append(weigh(names, shared, matched=pair.matched, spread=spread) if told else None)
    return found


def _accuracy(claim: Claim, results: Results, spread: float) -> list[Effect | None]:
    def rows(pair: Pair) -> list[Row]:
        found = []
        for task in _tasks(claim, results):
            better, worse = (
                results.values(names, task, Answers.accuracy) for names in (pair.better, pair.worse)
            )
            if better and worse:
                found.append(Row(*task, better, worse))
        return found

    return _of_models(claim, results, rows, spread)


def _voting(claim: Claim, results: Results, spread: float) -> list[Effect | None]:
    """Return the difference of (Maj@K - Pass@K) between two sides: gain in Maj@K minus gain in Pass@K."""

    def rows(pair: Pair) -> list[Row]:
        found = []
        for task in _tasks(claim, results):
            answers = [results.answers.get(name, {}).get(task) for name in (*pair.better, *pair.worse)]
            k = min(found.drawn if found else 0 for found in answers)
            if k > 1:
                gaps = [
                    results.values(names, task, lambda answers, k=k: answers.voting_gap(k)) or []
                    for names in (pair.better, pair.worse)
                ]
                found.append(Row(task[0], f"Maj@{k} − Pass@{k}", *gaps))
        return found

    return _of_models(claim, results, rows, spread)


def _kinds(claim: Claim, results: Results, spread: float) -> list[Effect | None]:
    found = []
    for names in families(claim.models, results.run):
        rows = []
        for benchmark in claim.benchmarks:
            sides = [
                results.values(names, (benchmark, str(kind)), Answers.accuracy)
                for kind in (claim.better, claim.worse)
            ]
            if sides[0] and sides[1]:
                rows.append(Row(benchmark, "", sides[0], sides[1]))
        if rows:
            titles = (f"{side_name(names)} {claim.better}", f"{side_name(names)} {claim.worse}")
            told = any(row.tells for row in rows)
            found.append(weigh(titles, rows, matched=True, spread=spread) if told else None)
    return found


def _recall(run: Run) -> list[Effect | None]:
    """Share of the truth's math pages that no iteration was trained on which the last iteration kept, minus
    the first's, paired by page.
    """
    scopes = pages_by_scope(run)
    pages = [item for item in scopes.get(headline(scopes), []) if item.is_math]
    if len(run.iterations) < 2 or not pages:
        return []
    last, first = (
        {page.url: float(not kept.isdisjoint(page.urls)) for page in pages}
        for kept in (
            urls_of(run.iterations[place].data / "kept.parquet", urls_in(pages)) for place in (-1, 0)
        )
    )
    names = (f"iteration {len(run.iterations)}", "iteration 1")
    return [weigh(names, [Row("recall", "of math pages", [last], [first])], matched=True, spread=0.0)]


def _converged(run: Run) -> list[Effect | None]:
    rows = [result.metrics for result in run.iterations]
    rows = [row for row in rows if row.get("seed_grew", True)]  # the same seed finds the same pages
    if len(rows) < 2:
        return []
    # Iterations after convergence only pass pages on: the first converged one decides.
    row = next((row for row in rows if row["converged"]), rows[-1])
    share, pages = row["overlap_with_previous"] or 0.0, row["kept_pages"]
    # All or none is no certainty: it counts as if one page were different.
    error = max(share * (1 - share) / pages, 1 / pages**2) ** 0.5
    found = Estimate(share, error, max(pages - 1, 1))
    low, high = (100 * min(1.0, bound) for bound in found.interval())
    text = (
        f"iteration {row['iteration']}: {100 * share:.1f} % of its {pages:,} pages were kept before"
        f" [{low:.1f}, {high:.1f}]"
    )
    return [Effect(found, [], text)]


def _measure(claim: Claim, results: Results, spread: float) -> Judgement:
    match claim.test:
        case "accuracy":
            effects, missing = _accuracy(claim, results, spread), "no such pair of models was evaluated"
        case "voting":
            effects, missing = _voting(claim, results, spread), "no such pair of models has sampled answers"
        case "kinds":
            missing = f"no such model was evaluated in both {claim.better} and {claim.worse}"
            effects = _kinds(claim, results, spread)
        case "recall":
            effects, missing = _recall(results.run), "needs two iterations and a truth file"
        case _:
            missing = "the run has fewer than two iterations whose seed grew"
            effects = _converged(results.run)
    measured = [found for found in effects if found is not None]
    if not measured:
        return Judgement(claim, f"{FLOOR if effects else missing}; decided by {', '.join(claim.decided_by)}")
    return Judgement(claim, effects=sorted(measured, key=lambda found: -found.estimate.above(claim.at_least)))


def judgements(claims: list[Claim], results: Results, spread: float) -> list[Judgement]:
    """Return a judgement of each claim. `spread`: standard deviation of accuracy over training seeds that is
    assumed where a model has one seed.
    """
    found = [_measure(claim, results, spread) for claim in claims]
    measured = [judgement for judgement in found if judgement.effects]
    for judgement, (p, level) in zip(measured, holm([row.raw_p for row in measured]), strict=True):
        judgement.p, judgement.level = p, level
    return found
