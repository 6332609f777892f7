"""How often verdicts are wrong, how often intervals miss, and what each configuration can see: the ledger of
claims judged by the report's own code on simulated runs (`pipeline.plan.power`).

For each configuration: runs whose models are all equal (a claim that is held there is a false one, and no
interval may leave out zero more often than it says), and for each claim runs in which its effect is the
paper's.
"""

import argparse
import copy
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import fmean

import numpy as np
from given.plans import simulation_of
from table import Row, publish, row_of

from pipeline.plan.power import ENOUGH, Simulation, World, true_effect
from pipeline.report.claims import CONTRADICTED, HELD, Claim, Judgement
from pipeline.report.judgements import correct, judge

CONFIGURATIONS = ("demo", "compare", "compare compare-seeds", "ablations", "pretrained", "deepseekmath-1.3b")
CONFIGURATIONS += ("deepseekmath-1.3b table-1", "deepseekmath-7b", "deepseekmath-7b iterative")


def covered(judgement: Judgement, truths: Sequence[float]) -> list[bool]:
    """Return for each effect whether its interval holds the truth."""
    bounds = [effect.estimate.interval() for effect in judgement.effects]
    return [low <= truth <= high for (low, high), truth in zip(bounds, truths, strict=True)]


class Tally:
    """What the simulated runs of a configuration came to."""

    def __init__(self) -> None:
        self.hits: list[bool] = []  # intervals that hold the truth
        self.false: list[bool] = []  # runs of equal models in which some claim is held
        self.verdicts: dict[str, list[str]] = defaultdict(list)  # of runs with the paper's effect

    def equal_models(self, simulation: Simulation, draw: np.random.Generator) -> list[Judgement]:
        """Judge the whole ledger by a run whose models are all equal."""
        found = judge(simulation.claims, simulation.answer(World(0.5), draw), simulation.spread)
        for judgement in found:
            self.hits += covered(judgement, [0.0] * len(judgement.effects))
        no_more = [row for row in found if row.claim.at_least >= 0]  # for the others equal is enough
        self.false.append(any(row.verdict == HELD for row in no_more))
        return found

    def as_published(
        self, simulation: Simulation, claim: Claim, others: list[Judgement], draw: np.random.Generator
    ) -> None:
        """Judge a claim by a run with the paper's effect, beside the claims of a run of equal models."""
        found = simulation.judge_alone(claim, simulation.published(claim), draw)
        self.hits += covered(found, [true_effect(claim, effect) for effect in found.effects])
        beside = [copy.copy(row) for row in others if row.claim.id != claim.id]
        correct([*beside, found])
        self.verdicts[claim.id].append(found.verdict)

    def boundary(self, simulation: Simulation, claim: Claim, draw: np.random.Generator) -> None:
        """Judge a claim that one side is no worse where it is worse by as much as that allows."""
        world = simulation.world(claim, (0.5, 0.5 + claim.at_least), (0.5, 0.5))
        found = simulation.judge_alone(claim, world, draw)
        self.false.append(found.verdict == HELD)


def simulate_runs(configuration: str, first: int, runs: int, spread: float = 1.0) -> Tally:
    """Simulate some runs of a configuration, from number `first` on. `spread`: that of seeds, in multiples of
    what the configuration assumes.
    """
    simulation, tally = simulation_of(configuration), Tally()
    simulation.true_spread = spread * simulation.spread
    for number in range(first, first + runs):
        draw = np.random.default_rng(number)
        others = tally.equal_models(simulation, draw)
        for claim in simulation.claims:
            if claim.published is not None:
                tally.as_published(simulation, claim, others, draw)
            if claim.at_least < 0:
                tally.boundary(simulation, claim, draw)
    return tally


def gather(pool: ProcessPoolExecutor, configuration: str, runs: int, spread: float = 1.0) -> Tally:
    """Simulate runs in several processes."""
    each, parts = 10, range(0, runs, 10)
    whole = Tally()
    jobs = [pool.submit(simulate_runs, configuration, first, each, spread) for first in parts]
    for tally in (job.result() for job in jobs):
        whole.hits += tally.hits
        whole.false += tally.false
        for name, verdicts in tally.verdicts.items():
            whole.verdicts[name] += verdicts
    return whole


def rows_of_tally(configuration: str, tally: Tally) -> list[Row]:
    """Return the rows of the printed table."""

    def row(what: str, share: float, data: str) -> Row:
        return row_of(f"{configuration}: {what}", "%", 100 * share, data=data)

    prospects = {found.claim.id: found for found in simulation_of(configuration).prospects()}
    rows = [
        row("a claim held that is false (goal: under 5)", fmean(tally.false), f"{len(tally.false)} runs"),
        row("interval holds the truth (goal: 94 to 97)", fmean(tally.hits), f"{len(tally.hits)} intervals"),
    ]
    for name, verdicts in tally.verdicts.items():
        found, told = prospects[name], fmean(verdict == HELD for verdict in verdicts)
        worse, better = found.claim.published
        wrong = fmean(verdict == CONTRADICTED for verdict in verdicts)
        note = f"at the paper's {100 * (better - worse):+.1f}; sees {100 * found.detectable:+.1f}"
        note += f"; plan says {100 * found.chance:.0f}; contradicted {100 * wrong:.0f}"
        rows.append(row(f"{name} held", told, note))
    return rows


def main() -> None:
    """Print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=200, help="simulated runs of each configuration")
    parser.add_argument("--configurations", nargs="+", default=CONFIGURATIONS)
    parser.add_argument("--workers", type=int, default=2)
    words = parser.parse_args()
    rows = []
    with ProcessPoolExecutor(words.workers) as pool:
        for configuration in words.configurations:
            rows += rows_of_tally(configuration, gather(pool, configuration, words.runs))
    publish("claims", rows, f"{words.runs} simulated runs each; a claim is decided from {ENOUGH:.0%} on")


if __name__ == "__main__":
    main()
