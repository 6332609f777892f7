"""Judges the paper's claims by a run. `configs/claims.yaml` states each claim and what decides it."""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline.common.overlays import read_yaml
from pipeline.common.stage import InputError
from pipeline.evaluate.metrics import wilson
from pipeline.report.collect import Model, Run
from pipeline.report.compare import Answers, Difference, Results, Task, difference
from pipeline.report.truth import pages_by_scope, urls_of

HELD, NOT_HELD, NOT_MEASURED = "held", "did not hold", "not measured"
Selector = dict[str, Any]


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
    benchmarks: list[str] | None = None
    kinds: list[str] | None = None
    at_least: float = 0.0
    across_parents: bool = False


@dataclass
class Judgement:
    """What a run says about a claim, and the comparisons that decided it."""

    claim: Claim
    verdict: str
    evidence: str
    reason: str = ""  # why it did not hold
    comparisons: list[Difference] = field(default_factory=list)

    @property
    def scale(self) -> float:
        """The largest bound of any interval, for an axis that shows them all."""
        return max((abs(bound) for comparison in self.comparisons for bound in comparison.ci95), default=1.0)

    def row(self) -> dict[str, Any]:
        """As in `summary.json`."""
        claim = self.claim
        return {
            "id": claim.id,
            "statement": claim.statement,
            "section": claim.section,
            "verdict": self.verdict,
            "evidence": self.evidence,
            "comparisons": [asdict(comparison) for comparison in self.comparisons],
        }


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


def points(comparison: Difference) -> str:
    """A difference as text, in points."""
    mean, low, high = comparison.points
    task = " ".join(filter(None, (comparison.benchmark, comparison.kind)))
    sides = f"{comparison.better} − {comparison.worse}"
    return f"{sides}, {task}: {mean} [{low}, {high}]"


def judge(claim: Claim, comparisons: list[Difference | None], missing: str) -> Judgement:
    """Held if every interval lies above `at_least`; without any not measured, for the reason `missing`."""
    made = [comparison for comparison in comparisons if comparison is not None]
    if not made:
        return Judgement(claim, NOT_MEASURED, missing)
    below = sum(comparison.ci95[1] < claim.at_least for comparison in made)
    across = sum(comparison.ci95[0] <= claim.at_least for comparison in made) - below
    evidence = f"{'; '.join(points(comparison) for comparison in made)} (points, paired 95 % intervals)"
    if not below and not across:
        return Judgement(claim, HELD, evidence, comparisons=made)
    parts = [f"{below} below zero" if below else "", f"{across} not separable from zero" if across else ""]
    reason = f"{len(made)} compared: {', '.join(filter(None, parts))}"
    return Judgement(claim, NOT_HELD, f"{evidence}; {reason}", reason, made)


def matches(model: Model, selector: dict[str, Any], models: dict[str, Model]) -> bool:
    """Whether a model has every value of a selector (see `configs/claims.yaml`)."""
    # Sections of stage rl that do not name a method are GRPO with outcome supervision.
    facts = {"method": "grpo", "supervision": "outcome"} | model.config
    facts |= {
        "stage": model.stage,
        "name": model.name,
        "mixture": model.mixture,
        "parent_stage": models[model.parent].stage if model.parent in models else None,
    }
    return all(facts.get(key) == value for key, value in selector.items())


def _by_parent(selector: Selector, claim: Claim, models: dict[str, Model]) -> dict[str | None, list[str]]:
    groups: dict[str | None, list[str]] = {}
    for model in models.values():
        if matches(model, selector, models):
            groups.setdefault(None if claim.across_parents else model.parent, []).append(model.name)
    return groups


def sides(claim: Claim, run: Run) -> list[tuple[list[str], list[str]]]:
    """Pairs (better, worse) of model groups that a claim compares. Models of a group have the same parent, or
    their parents do.
    """
    if not isinstance(claim.better, dict):
        return []
    better = _by_parent(claim.better, claim, run.models)
    if claim.worse == "parent":
        return _rounds([(names, parent) for parent, names in better.items() if parent is not None], run)
    worse = _by_parent(claim.worse, claim, run.models) if isinstance(claim.worse, dict) else {}
    return [(names, worse[parent]) for parent, names in better.items() if parent in worse]


def _rounds(pairs: list[tuple[list[str], str]], run: Run) -> list[tuple[list[str], list[str]]]:
    """Pair models with their parents. Parents of the same stage with one parent, such as the first rounds of
    several seeds, form one group.
    """
    rounds: dict[tuple[bool, str], tuple[list[str], list[str]]] = {}
    for names, parent in pairs:
        above = run.models.get(parent)
        together = above is not None and above.stage == run.models[names[0]].stage and bool(above.parent)
        key = (together, above.parent if together else parent)
        better, worse = rounds.setdefault(key, ([], []))
        better += names
        worse.append(parent)
    return list(rounds.values())


def _tasks(claim: Claim, results: Results) -> list[Task]:
    return [
        (benchmark, kind)
        for benchmark, kind in results.tasks
        if (claim.benchmarks is None or benchmark in claim.benchmarks)
        and (claim.kinds is None or kind in claim.kinds)
    ]


def _accuracy(claim: Claim, results: Results) -> list[Difference | None]:
    return [
        results.compare(*side, task, Answers.accuracy)
        for side in sides(claim, results.run)
        for task in _tasks(claim, results)
    ]


def _voting(claim: Claim, results: Results) -> list[Difference | None]:
    """The difference of (Maj@K - Pass@K) between two sides: gain in Maj@K minus gain in Pass@K."""
    found = []
    for better, worse in sides(claim, results.run):
        for task in _tasks(claim, results):
            answers = [results.answers.get(name, {}).get(task) for name in [*better, *worse]]
            k = min(found.drawn if found else 0 for found in answers)
            if k > 1:
                gap = results.compare(better, worse, task, lambda answers, k=k: answers.voting_gap(k))
                found.append(replace(gap, kind=f"Maj@{k} − Pass@{k}") if gap else None)
    return found


def _kinds(claim: Claim, results: Results) -> list[Difference | None]:
    found = []
    for name, tasks in results.answers.items():
        if not matches(results.run.models[name], claim.models, results.run.models):
            continue
        for benchmark in dict.fromkeys(benchmark for benchmark, _ in _tasks(claim, results)):
            first, second = (tasks.get((benchmark, str(kind))) for kind in (claim.better, claim.worse))
            if first and second:
                names = (f"{name} {claim.better}", f"{name} {claim.worse}")
                found.append(difference(names, (benchmark, ""), first.accuracy(), second.accuracy()))
    return found


def _recall(run: Run) -> list[Difference | None]:
    """Share of the truth's math pages kept by the last iteration minus the first's, paired by page."""
    pages = [item for item in pages_by_scope(run).get("unseen", []) if item.is_math]
    if len(run.iterations) < 2:
        return []
    last, first = (
        {page.url: float(not kept.isdisjoint(page.urls)) for page in pages}
        for kept in (urls_of(run.iterations[place].data / "kept.parquet") for place in (-1, 0))
    )
    names = (f"iteration {len(run.iterations)}", "iteration 1")
    return [difference(names, ("recall", "of math pages"), last, first)]


def _converged(claim: Claim, run: Run) -> Judgement:
    rows = [result.metrics for result in run.iterations]
    if len(rows) < 2:
        return Judgement(claim, NOT_MEASURED, "the run has fewer than two iterations")
    # Iterations after convergence only pass pages on: the first converged one decides.
    row = next((row for row in rows if row["converged"]), rows[-1])
    share, pages = row["overlap_with_previous"] or 0.0, row["kept_pages"]
    low, high = wilson(share * pages, pages)
    evidence = (
        f"iteration {row['iteration']}: {100 * share:.1f} % of its {pages:,} pages were kept before"
        f" [{100 * low:.1f}, {100 * high:.1f}]"
    )
    return Judgement(claim, HELD if share >= claim.at_least else NOT_HELD, evidence)


def _decide(claim: Claim, run: Run, results: Results) -> Judgement:
    match claim.test:
        case "accuracy":
            return judge(claim, _accuracy(claim, results), "no such pair of models was evaluated")
        case "voting":
            return judge(claim, _voting(claim, results), "no such pair of models has sampled answers")
        case "kinds":
            missing = f"no such model was evaluated in both {claim.better} and {claim.worse}"
            return judge(claim, _kinds(claim, results), missing)
        case "recall":
            return judge(claim, _recall(run), "needs two iterations and a truth file")
        case _:
            return _converged(claim, run)


def judgements(claims: list[Claim], run: Run, results: Results) -> list[Judgement]:
    """A judgement of each claim."""
    return [_decide(claim, run, results) for claim in claims]
