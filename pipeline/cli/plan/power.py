"""How likely a configuration is to decide each claim: runs with known accuracies, judged by the report.

A simulated model has an accuracy and answers by chance. What decides an answer are normal numbers: the
question's difficulty, what the family of models makes of the question, and chance; accuracy itself varies
from seed to seed by `report.seed_spread`. Nothing is trained or asked.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, product
from statistics import NormalDist, fmean
from typing import Any

import numpy as np

from pipeline.config.root import Config
from pipeline.intervals import Estimate, t_quantile, t_tail
from pipeline.report.claims import LEVEL, Claim, Effect, Judgement
from pipeline.report.collect import Model, Run
from pipeline.report.compare import VOTING, Answers, Results, Task
from pipeline.report.judgements import judge
from pipeline.report.selection import families, pairs
from workflow.forecast.work import modes_of, questions_of

QUESTIONS, OWN = 1.5, 0.4  # spread of difficulty, and of what a family makes of it, in units of chance's
ENOUGH = 0.8  # P(held) from which on a configuration decides a claim
DRAWS = 8, 2  # simulated runs that tell how wide intervals will be: with several seeds, with one
CORPUS = ("recall", "converged")  # tests that ask no model
GREEDY = "accuracy"


@dataclass(frozen=True)
class World:
    """The true accuracy of each (model, kind, metric), and of all others."""

    others: float
    own: dict[tuple[str, str, str], float] = field(default_factory=dict)

    def share(self, *place: str) -> float:
        return self.own.get(place, self.others)


@dataclass(frozen=True)
class Prospect:
    """What a configuration can say about a claim: the least effect that it sees in four runs of five
    (infinite: none), and how likely it is to hold the claim at the paper's effect; None where the paper
    publishes none.
    """

    claim: Claim
    detectable: float
    chance: float | None

    @property
    def effect(self) -> float | None:
        """The paper's effect, the smaller one where it is published for several pairs."""
        values = self.claim.published
        return None if values is None else values[1] - values[0]


class Simulation:
    """Runs of a configuration as if its models had been trained. `claims`: those that it has models for."""

    def __init__(self, config: Config, claims: Iterable[Claim]) -> None:
        section, corpus = config.sections["report"], config.sections["corpus"]
        self.run = Run(config.run, {}, judged=section.judged)
        self.run.__dict__["models"] = dict(_models(config))
        self.spread: float = section.seed_spread  # that the report assumes
        self.true_spread = self.spread
        claims = list(claims)
        self.sizes = {name: _sizes(config, name, claims) for name in self.run.models}
        self.family = {name: names[0] for names in families({}, self.run, every=True) for name in names}
        asked = {claim.id: self.names(claim) for claim in claims if claim.test not in CORPUS}
        blank = self.answer(World(0.5), np.random.default_rng(0))
        found = judge([claim for claim in claims if asked.get(claim.id)], blank, self.spread)
        self.claims = [judgement.claim for judgement in found if judgement.effects]
        crawl = config.sections["crawl"]
        grows = corpus.iterations > 1 and bool(crawl.warc or crawl.texts)
        wanted = {"converged": grows, "recall": grows and bool(section.truth)}
        self.corpus = [claim for claim in claims if wanted.get(claim.test)]

    def names(self, claim: Claim) -> dict[str, list[str]]:
        """Return the models of either side of a claim; those of both where kinds of solution are compared."""
        if claim.test == "kinds":
            every = list(chain(*families(claim.models, self.run)))
            return {"better": every, "worse": every} if every else {}
        found = pairs(claim.better, claim.worse, self.run, across_parents=claim.across_parents)
        sides = {side: list(chain(*(getattr(pair, side) for pair in found))) for side in ("better", "worse")}
        return sides if found else {}

    def world(self, claim: Claim, values: tuple[float, float], passed: tuple[float, float]) -> World:
        """Give the claim's sides these accuracies (worse, better); for voting `passed` is their Pass@K."""
        better = self.names(claim)["better"]
        kinds = [str(claim.better)] if claim.test == "kinds" else claim.kinds
        metrics = {GREEDY: values[1], "maj@k": values[1], "pass@k": passed[1]}
        own = {
            (name, kind, metric): metrics[metric] for name, kind, metric in product(better, kinds, metrics)
        }
        worse = self.names(claim)["worse"] if claim.test == "voting" else []
        own |= {(name, kind, "pass@k"): passed[0] for name in worse for kind in kinds}
        return World(values[0], own)

    def answer(self, world: World, draw: np.random.Generator, only: Iterable[str] | None = None) -> Results:
        """Return a run whose models, or `only` these, answer with the accuracies of `world`."""
        results, names = Results(self.run), set(self.run.models if only is None else only)
        shifts = self._shifts(draw)
        difficulty: dict[str, np.ndarray] = {}
        families_do: dict[tuple[str, Task], np.ndarray] = {}
        for name in sorted(names):
            results.answers[name] = {}
            for task, (questions, samples) in self.sizes[name].items():
                if task[0] not in difficulty:
                    difficulty[task[0]] = draw.normal(0, QUESTIONS, questions)
                place = self.family[name], task
                if place not in families_do:
                    families_do[place] = difficulty[task[0]] + draw.normal(0, OWN, questions)
                strength, metrics = families_do[place], (GREEDY, *(VOTING if samples > 1 else ()))
                shares = {metric: world.share(name, task[1], metric) + shifts[name] for metric in metrics}
                values = {metric: _right(share, strength, draw) for metric, share in shares.items()}
                results.answers[name][task] = _answers(values, samples)
        return results

    def _shifts(self, draw: np.random.Generator) -> dict[str, float]:
        """How far each model's seed takes it from its accuracy. Half of its parent's is handed down, so that
        an accuracy and a gain over the parent both vary by the spread. What several seeds start from is what
        the claim is about, whatever seed it had.
        """
        models, found = self.run.models, {}
        seeds = Counter(self.family.values())
        given = {model.parent for name, model in models.items() if seeds[self.family[name]] > 1}
        given = {name for name in given if name in models and seeds[self.family[name]] == 1}

        def visit(name: str) -> float:
            if name not in found:
                parent, own = models[name].parent, draw.normal(0, self.true_spread)
                inherits = parent in models and parent not in given
                shift = visit(parent) / 2 + own * 0.75**0.5 if inherits else own
                found[name] = 0.0 if name in given else shift
            return found[name]

        return {name: visit(name) for name in models}

    def judge_alone(self, claim: Claim, world: World, draw: np.random.Generator) -> Judgement:
        """Judge a claim by a run of its models alone."""
        names = set(chain(*self.names(claim).values()))
        return judge([claim], self.answer(world, draw, names), self.spread)[0]

    def published(self, claim: Claim) -> World | None:
        """Return the world in which the claim's effect is the paper's; None where it publishes none."""
        if claim.published is None:
            return None
        return self.world(claim, claim.published, claim.pass_at_k or (0.0, 0.0))

    def prospects(self) -> list[Prospect]:
        """Return what the configuration can say about each claim about models."""
        level = LEVEL / max(1, len(self.claims) + len(self.corpus))  # Holm's, where no other claim is sure
        return [self._prospect(claim, level) for claim in self.claims]

    def _prospect(self, claim: Claim, level: float) -> Prospect:
        world = self.published(claim) or World(0.5)
        several = any(self.family[name] != name for name in chain(*self.names(claim).values()))
        draws = map(np.random.default_rng, range(DRAWS[0 if several else 1]))
        runs = [self.judge_alone(claim, world, draw) for draw in draws]
        most = max(len(run.effects) for run in runs)
        if not most:  # so few questions that all answers are wrong, or all right
            return Prospect(claim, math.inf, 0.0 if claim.published else None)
        runs = [run for run in runs if len(run.effects) == most]
        effects = [_typical(found) for found in zip(*(_in_order(run.effects) for run in runs), strict=True)]
        detectable = max(effect.at_least + effect.estimate.detectable(level) for effect in effects)
        if claim.published is None:
            return Prospect(claim, detectable, None)
        chances = [chance_held(effect, true_effect(claim, effect), level) for effect in effects]
        return Prospect(claim, detectable, float(np.prod(chances)))


def true_effect(claim: Claim, effect: Effect) -> float:
    """Return the paper's value of an effect of a claim."""
    values = claim.published
    if claim.test == "voting" and effect.at_least < 0:
        values = claim.pass_at_k and claim.pass_at_k[::-1]
    assert values is not None
    return values[1] - values[0]


def chance_held(effect: Effect, truth: float, level: float) -> float:
    """Return the chance that an effect whose true value is `truth` is sure at `level`, and matters."""
    found = effect.estimate
    if math.isinf(found.error):
        return 0.0
    bound = max(effect.matters, effect.at_least + t_quantile(level / 2, found.df) * found.error)
    return t_tail((bound - truth) / found.error, found.df)


def _in_order(effects: list[Effect]) -> list[Effect]:
    return sorted(effects, key=lambda effect: (effect.at_least, effect.text.partition(":")[0]))


def _typical(found: tuple[Effect, ...]) -> Effect:
    """Return an effect as wide as those that were `found` in several runs are on average."""
    error = fmean(effect.estimate.error**2 for effect in found) ** 0.5
    df = 1 / fmean(1 / effect.estimate.df for effect in found)
    return Effect(Estimate(0.0, error, df), [], "", found[0].at_least, found[0].matters)


def _models(config: Config) -> Iterable[tuple[str, Model]]:
    """Models that write text and are trained or evaluated, as the report will know them."""
    for name, node in config.models.items():
        if node.stage == "reward" or not (node.train or node.benchmarks is None or node.benchmarks):
            continue
        settings: dict[str, Any] = {}
        if node.train:
            settings = config.model_sections[name].model_dump(mode="json")
        parent, mixture = (node.parent, node.mixture) if node.train else (None, None)
        yield name, Model(name, node.stage, parent, mixture, settings, None)


def _sizes(config: Config, name: str, claims: list[Claim]) -> dict[Task, tuple[int, int]]:
    """Questions and samples of each task of a model that a claim asks."""
    node, section = config.models[name], config.sections["evaluate"]
    wanted: set[Task] = set()
    for claim in claims:
        sides = [str(claim.better), str(claim.worse)] if claim.test == "kinds" else []
        wanted.update(product(claim.benchmarks, [*claim.kinds, *sides]))
    found = {}
    for benchmark in node.benchmarks if node.benchmarks is not None else config.benchmarks:
        asked = config.benchmarks[benchmark]
        for mode in modes_of(config, name, benchmark):
            task = benchmark, mode.rpartition("_")[2]
            if task in wanted and (questions := questions_of(config, benchmark)):
                samples = section.samples if asked.samples is None else asked.samples
                found[task] = questions, samples
    return found


def _right(share: float, strength: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Draw which questions are right, so that their expected share is `share`."""
    scale = (1 + QUESTIONS**2 + OWN**2) ** 0.5
    ability = NormalDist().inv_cdf(min(max(share, 1e-4), 1 - 1e-4)) * scale
    return ability + strength + draw.normal(size=len(strength)) > 0


@cache
def _keys(number: int) -> tuple[str, ...]:
    return tuple(map(str, range(number)))


def _answers(values: dict[str, np.ndarray], samples: int) -> Answers:
    keys = _keys(len(values[GREEDY]))
    greedy = dict(zip(keys, np.where(values[GREEDY], "right", "wrong").tolist(), strict=True))
    votes = {
        metric: dict(zip(keys, values[metric].astype(float).tolist(), strict=True))
        for metric in VOTING
        if metric in values
    }
    return Answers("", greedy=greedy, drawn=samples, votes={samples: votes} if votes else {})
