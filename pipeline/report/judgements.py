"""Compares the models that a claim is about, and judges each claim of a ledger by a run.

A claim compares families of models (`pipeline.report.selection`), each on the average of its benchmarks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import numpy as np
from pyarrow import compute

from pipeline.config.corpus import CorpusSection
from pipeline.core.data.shards import read_table
from pipeline.intervals import Estimate, estimate_effect, estimate_over_hosts, holm, in_percent
from pipeline.report.claims import Claim, Effect, Judgement
from pipeline.report.collect import Run
from pipeline.report.compare import VOTING, Answers, Results, Task, Value, arrays, difference, side_name
from pipeline.report.selection import Pair, families, pairs
from pipeline.report.truth import headline, pages_by_scope, urls_in, urls_of

PART_OF = {"math500": "math"}  # a benchmark that does not count beside the one that it is a part of
ONE_HOST = "its pages are of one host"
MOST_FAILED = 0.02  # share of a model's answers on which the grader may fail
FLOOR = "no shared question tells the models apart: all answers are wrong, or all right"


@dataclass(frozen=True)
class Row:
    """Values by question id of each model of two sides, on one benchmark and kind of solution. `flaw`: why
    they decide nothing.
    """

    benchmark: str
    kind: str
    better: list[dict[str, float]]
    worse: list[dict[str, float]]
    flaw: str = ""

    @cached_property
    def sides(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Two arrays (seeds, questions) over the questions that all models have; None without any."""
        return arrays(self.better, self.worse)

    @property
    def tells(self) -> bool:
        """Whether the sides share questions, and not all values are the same."""
        return bool(self.sides) and len(np.unique(np.concatenate(self.sides))) > 1


def _mean_of_kinds(rows: list[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays (seeds, questions) of a benchmark, over the questions that were answered in all kinds."""
    if len(rows) == 1 and rows[0].sides:
        return rows[0].sides
    every = [found for row in rows for found in (*row.better, *row.worse)]
    shared = sorted(set.intersection(*map(set, every)))
    better, worse = (
        np.mean([[[found[key] for key in shared] for found in side] for side in sides], axis=0)
        for sides in ([row.better for row in rows], [row.worse for row in rows])
    )
    return better, worse


@dataclass(frozen=True)
class Contest:
    """Two sides, their names in print, and their values on each task. `matched`: each of better's models
    started from its place among worse's, or from the only one, or is the same model.
    """

    names: tuple[str, str]
    rows: list[Row]
    matched: bool

    def weigh(self, bounds: tuple[float, float], spread: float) -> Effect | None:
        """Return the effect over all benchmarks, each the average of its kinds, each with the same weight;
        None where no row tells the sides apart. `bounds`: `at_least` and `matters` of the effect.
        """
        if not any(row.tells for row in self.rows):
            return None
        usable = [row for row in self.rows if row.sides]
        by_benchmark: dict[str, list[Row]] = {}
        for row in usable:
            by_benchmark.setdefault(row.benchmark, []).append(row)
        options: dict[str, Any] = {"matched": self.matched, "spread": spread}
        found = estimate_effect([_mean_of_kinds(members) for members in by_benchmark.values()], **options)
        made = [
            difference(self.names, (row.benchmark, row.kind), row.better, row.worse, **options)
            for row in usable
        ]
        text = self._text(found, usable, spread)
        return Effect(found, [row for row in made if row], text, *bounds)

    def _text(self, found: Estimate, usable: list[Row], spread: float) -> str:
        shown = ", ".join(" ".join(filter(None, (row.benchmark, row.kind))) for row in usable)
        on = "on" if len(usable) == 1 else "mean of"
        better, worse = self.names
        text = f"{better} − {worse}: {in_percent(found.effect, found.interval(), '+')} points, {on} {shown}"
        if not spread:
            return text
        sizes = [len(usable[0].better), len(usable[0].worse)]
        seeds = [max(sizes)] if self.matched else sizes
        ones = {(1,): "one seed", (1, 1): "one seed each"}
        counted = ones.get(tuple(seeds), f"{' and '.join(map(str, seeds))} seeds")
        assumed = f", spread taken as {100 * spread:.1f} points" if 1 in seeds else ""
        return f"{text} ({counted}{assumed})"


def _row(
    results: Results,
    sides: tuple[list[str], list[str]],
    tasks: tuple[Task, Task],
    title: Task,
    value: Value = Answers.accuracy,
) -> list[Row]:
    """Return `value` of two sides, each on its task; nothing unless all models were asked."""
    asked = list(zip(sides, tasks, strict=True))
    better, worse = (results.values(names, task, value) for names, task in asked)
    if not better or not worse:
        return []
    flaws = [flaw for names, task in asked for name in names if (flaw := _flaw(results, name, task))]
    return [Row(*title, better, worse, *flaws[:1])]


def _flaw(results: Results, name: str, task: Task) -> str:
    """Say why a model's answers on a task decide nothing; empty if they may."""
    answers = results.answers[name][task]
    if answers.failed > MOST_FAILED:
        return f"the grader failed on {answers.failed:.0%} of the answers of {name} on {task[0]}"
    return "" if len(answers.greedy) > 1 else f"{name} was asked one question of {task[0]}"


def _whole(rows: list[Row]) -> list[Row]:
    """Leave out the parts of benchmarks that are there themselves."""
    asked = {row.benchmark for row in rows}
    return [row for row in rows if PART_OF.get(row.benchmark) not in asked]


def _tasks(claim: Claim, results: Results) -> list[Task]:
    return [
        (benchmark, kind)
        for benchmark, kind in results.tasks
        if benchmark in claim.benchmarks and kind in claim.kinds
    ]


def _accuracy(claim: Claim, results: Results, known: list[Pair]) -> list[Contest]:
    found = []
    for pair in known or pairs(claim.better, claim.worse, results.run, across_parents=claim.across_parents):
        rows = [
            row
            for task in _tasks(claim, results)
            for row in _row(results, (pair.better, pair.worse), (task, task), task)
        ]
        found.append(Contest((side_name(pair.better), side_name(pair.worse)), _whole(rows), pair.matched))
    return found


def _kinds(claim: Claim, results: Results) -> list[Contest]:
    found = []
    for names in families(claim.models, results.run):
        kinds = str(claim.better), str(claim.worse)
        titles = f"{side_name(names)} {kinds[0]}", f"{side_name(names)} {kinds[1]}"
        rows = [
            row
            for name in claim.benchmarks
            for row in _row(results, (names, names), ((name, kinds[0]), (name, kinds[1])), (name, ""))
        ]
        found.append(Contest(titles, _whole(rows), matched=True))
    return found


def _voting(claim: Claim, results: Results) -> list[tuple[Contest, Contest]]:
    """Return the contest in Maj@K of each pair, and that in Pass@K with the sides exchanged, which `worse`
    may lose by the claim's margin.
    """
    found = []
    for pair in pairs(claim.better, claim.worse, results.run, across_parents=claim.across_parents):
        rows: dict[str, list[Row]] = {metric: [] for metric in VOTING}
        for task in _tasks(claim, results):
            answers = [results.answers.get(name, {}).get(task) for name in (*pair.better, *pair.worse)]
            k = min(found.drawn if found else 0 for found in answers)
            for metric, sides in (
                ("maj@k", (pair.better, pair.worse)),
                ("pass@k", (pair.worse, pair.better)),
            ):
                title = task[0], VOTING[metric].replace("K", str(k))
                value = partial(Answers.at_k, metric=metric, k=k)
                rows[metric] += _row(results, sides, (task, task), title, value) if k > 1 else []
        names = side_name(pair.better), side_name(pair.worse)
        maj = Contest(names, _whole(rows["maj@k"]), pair.matched)
        found.append((maj, Contest(names[::-1], _whole(rows["pass@k"]), pair.matched)))
    return found


def _recall(claim: Claim, run: Run) -> tuple[str, list[Effect]]:
    """Share of the truth's math pages that no iteration was trained on which the last iteration kept, minus
    the first's, paired by page; hosts are what is drawn. Before it what is missing.
    """
    scopes = pages_by_scope(run)
    pages = [item for item in scopes.get(headline(scopes), []) if item.is_math]
    if len(run.iterations) < 2 or not pages:
        return "needs two iterations and a truth file", []
    last, first = (
        {page.url: float(not kept.isdisjoint(page.urls)) for page in pages}
        for kept in (
            urls_of(run.iterations[place].data / "kept.parquet", urls_in(pages)) for place in (-1, 0)
        )
    )
    hosts: dict[str, list[float]] = {}
    for page in pages:
        hosts.setdefault(page.host, []).append(last[page.url] - first[page.url])
    if len(hosts) < 2:
        return ONE_HOST, []
    found = estimate_over_hosts(list(map(sum, hosts.values())), list(map(len, hosts.values())))
    names = (f"iteration {len(run.iterations)}", "iteration 1")
    row = difference(names, ("recall", "of math pages"), [last], [first])
    text = f"{' − '.join(names)}: {in_percent(found.effect, found.interval(), '+')} points,"
    text += f" of {len(pages):,} math pages on {len(hosts):,} hosts"
    comparisons = [replace(row, ci95=found.interval())] if row else []
    return "", [Effect(found, comparisons, text, claim.at_least, claim.matters)]


def _converged(claim: Claim, run: Run) -> tuple[str, list[Effect]]:
    """Share of an iteration's pages that had been kept before: at least the share at which the run's own rule
    stops, and surely more than the claim says. Hosts are what is drawn. Before it what is missing.
    """
    found = [(result, result.metrics) for result in run.iterations]
    found = [pair for pair in found if pair[1].get("seed_grew", True)]  # the same seed finds the same pages
    if len(found) < 2:
        return "the run has fewer than two iterations whose seed grew", []
    # Iterations after convergence only pass pages on: the first converged one decides.
    result, metrics = next((pair for pair in found if pair[1]["converged"]), found[-1])
    if not metrics["converged"] and len(found) < len(run.iterations):
        return f"the seed stopped growing after iteration {metrics['iteration']}: later ones repeat it", []
    kept = read_table(result.data / "kept.parquet", ["host", "iteration"])
    old = compute.cast(compute.less(kept["iteration"], metrics["iteration"]), "int64")
    hosts = kept.append_column("old", old).group_by("host").aggregate([("old", "sum"), ("old", "count")])
    if len(hosts) < 2:
        return ONE_HOST, []
    share = estimate_over_hosts(hosts["old_sum"].to_pylist(), hosts["old_count"].to_pylist())
    rule = result.config.get("converged", CorpusSection.model_fields["converged"].default)
    low, high = (100 * min(1.0, bound) for bound in share.interval())
    text = (
        f"iteration {metrics['iteration']}: {100 * share.effect:.1f} % of its {len(kept):,} pages on "
        f"{len(hosts):,} hosts were kept before [{low:.1f}, {high:.1f}]; the loop stops at {100 * rule:g} %"
    )
    return "", [Effect(share, [], text, claim.at_least, rule)]


def _measure(claim: Claim, results: Results, spread: float, known: list[Pair]) -> Judgement:
    bounds = claim.at_least, claim.matters
    contests: list[Contest] = []
    match claim.test:
        case "accuracy":
            missing, contests = "no such pair of models was evaluated", _accuracy(claim, results, known)
            effects = [contest.weigh(bounds, spread) for contest in contests if contest.rows]
        case "voting":
            missing, effects = "no such pair of models has sampled answers", []
            for maj, some in _voting(claim, results):
                if maj.rows:
                    contests.append(maj)
                    both = maj.weigh(bounds, spread), some.weigh((-claim.margin, -claim.margin), spread)
                    effects += both if None not in both else [None]
        case "kinds":
            missing = f"no such model was evaluated in both {claim.better} and {claim.worse}"
            contests = _kinds(claim, results)
            effects = [contest.weigh(bounds, spread) for contest in contests if contest.rows]
        case "recall":
            missing, effects = _recall(claim, results.run)
        case _:
            missing, effects = _converged(claim, results.run)
    if flaws := [row.flaw for contest in contests for row in contest.rows if row.flaw]:
        return Judgement(claim, flaws[0])
    measured = [found for found in effects if found is not None]
    if not measured:
        return Judgement(claim, f"{FLOOR if effects else missing}; {claim.deciders}")
    return Judgement(claim, effects=sorted(measured, key=lambda found: -found.p_of_none))


def judge(
    claims: list[Claim], results: Results, spread: float, known: Mapping[str, Pair] = MappingProxyType({})
) -> list[Judgement]:
    """Return a judgement of each claim. `spread`: standard deviation of accuracy over training seeds that is
    assumed where a model has one seed. `known`: the families that a claim of that id is about, where its
    selectors need not find them.
    """
    found = [
        _measure(claim, results, spread, [known[claim.id]] if claim.id in known else []) for claim in claims
    ]
    correct(found)
    return found


def correct(found: list[Judgement]) -> None:
    """Correct the p values of all judgements of a run that measured something (Holm)."""
    measured = [judgement for judgement in found if judgement.effects]
    for judgement, (p, level) in zip(measured, holm([row.raw_p for row in measured]), strict=True):
        judgement.p, judgement.level = p, level
