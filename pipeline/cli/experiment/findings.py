"""What came out of an experiment: a verdict on each arm, and what it rests on.

Arms are judged as the paper's claims are (`pipeline.report.judgements`), with Holm's correction over them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from pipeline.cli.experiment.design import Design
from pipeline.core.stages import TEXT_STAGES
from pipeline.report.answers import Greedy, Row
from pipeline.report.claims import HELD, INCONCLUSIVE, Claim, Judgement
from pipeline.report.collect import Finished, collect, read_lines
from pipeline.report.compare import Answers, Results, Task
from pipeline.report.judgements import judge
from pipeline.report.selection import Pair
from workflow.keys import Keys

OPEN, STOPPED = "open", "stopped"


@dataclass(frozen=True)
class Flip:
    """A question whose answer most seeds of one side have right and most of the other wrong, with an answer
    of each side; `gained`: the arm is right. `shares`: right seeds of baseline and arm.
    """

    id: str
    task: Task
    gained: bool
    shares: tuple[float, float]
    question: str
    reference: str
    answers: dict[str, Greedy]


class Findings:
    """The results of a design; `stopped` names arms that got one seed alone, and why."""

    def __init__(self, design: Design, stopped: Mapping[str, str]) -> None:
        self.design, self.stopped = design, stopped
        self.keys = Keys(design.graph)
        short = {*stopped, *([self.baseline] if stopped.keys() >= {*self.arms} else [])}
        self.families = {arm: names[:1] if arm in short else names for arm, names in design.families.items()}
        self.results = Results(collect(design.graph.config.run, self._inputs()))

    def _inputs(self) -> dict[str, list[str]]:
        """Folders of the models, of those that they come from, and of their evaluations."""
        pending = [f"evaluate/{name}" for names in self.families.values() for name in names]
        found: dict[str, list[str]] = {}
        while pending:
            name = pending.pop()
            if name not in found and name.partition("/")[0] in ("evaluate", *TEXT_STAGES):
                found[name] = [str(self.keys.entry(name).data)]
                pending += self.keys.before(name)
        return found

    @property
    def baseline(self) -> str:
        return self.design.experiment.baseline

    @property
    def arms(self) -> list[str]:
        return list(self.design.experiment.arms)

    def models(self, arm: str) -> list[Finished]:
        """Return the trained models of an arm or of the baseline."""
        return [self.results.run.finished[self.design.training(name)] for name in self.families[arm]]

    @cached_property
    def tasks(self) -> list[Task]:
        """What the baseline and all arms were asked, of the benchmarks that decide."""
        wanted = self.design.experiment.benchmarks
        every = [self.results.answers[name] for names in self.families.values() for name in names]
        shared = [task for task in self.results.tasks if all(task in answers for answers in every)]
        return [task for task in shared if wanted is None or task[0] in wanted]

    def pair(self, arm: str) -> Pair:
        """Return the models of an arm and of the baseline, those first whose accuracy should be higher. The
        design knows them: models that older code made have other keys in their settings.
        """
        sides = [self.families[arm], self.families[self.baseline]]
        if arm in self.stopped:
            sides[1] = sides[1][:1]
        return Pair(*(sides if self.design.experiment.expected == "higher" else sides[::-1]))

    def claim(self, arm: str) -> Claim:
        """State what is expected of an arm as the paper's claims are stated."""
        experiment = self.design.experiment
        return Claim(
            id=arm,
            statement=experiment.question,
            section="",
            test="accuracy",
            benchmarks=list(dict.fromkeys(name for name, _ in self.tasks)),
            kinds=list(dict.fromkeys(kind for _, kind in self.tasks)),
            matters=experiment.matters,
            decided_by=["more questions, other benchmarks"],
        )

    @cached_property
    def judgements(self) -> dict[str, Judgement]:
        """What the results say of each arm."""
        spread = self.design.graph.config.sections["report"].seed_spread
        known = {arm: self.pair(arm) for arm in self.arms}
        found = judge([self.claim(arm) for arm in self.arms], self.results, spread, known)
        return dict(zip(self.arms, found, strict=True))

    def verdict(self, arm: str) -> str:
        """Held, contradicted, open, not measured, or stopped."""
        found = self.judgements[arm].verdict
        return STOPPED if arm in self.stopped else OPEN if found == INCONCLUSIVE else found

    def sentence(self, arm: str) -> str:
        """Say what the verdict means."""
        experiment, judgement = self.design.experiment, self.judgements[arm]
        matters = f"{100 * experiment.matters:g} points"
        if arm in self.stopped:
            return self.stopped[arm]
        if not judgement.effects:
            return f"{judgement.missing}."
        if (verdict := self.verdict(arm)) == OPEN:
            seen = f"{100 * judgement.detectable:.1f} points could have been seen"
            return f"questions and seeds cannot tell; {seen}."
        if verdict == HELD:
            surely = f"{arm} is surely {experiment.expected} than {self.baseline}"
            return f"{surely}; the measured difference is at least {matters}."
        _, high = judgement.effects[0].estimate.interval()
        other = {"higher": "lower", "lower": "higher"}[experiment.expected]
        more = f"; {arm} is surely {other} than {self.baseline}" if high < 0 else ""
        return f"that {arm} is {experiment.expected} by {matters} or more can be ruled out{more}."

    def row(self, arm: str) -> dict[str, Any]:
        """Say of an arm what the JSON holds; differences are the arm's accuracy minus the baseline's."""
        judgement, sign = self.judgements[arm], 1 if self.design.experiment.expected == "higher" else -1
        found: dict[str, Any] = {"arm": arm, "change": self.design.experiment.arms[arm]}
        found |= {"verdict": self.verdict(arm), "meaning": self.sentence(arm)}
        if judgement.effects:
            estimate = judgement.effects[0].estimate
            found |= {"difference": sign * estimate.effect}
            found |= {"ci95": sorted(sign * bound for bound in estimate.interval())}
            found |= {"p_holm": judgement.p, "detectable": judgement.detectable}
            found["comparisons"] = [asdict(comparison) for comparison in judgement.comparisons]
        return found | {"cost": self.cost(arm), "models": self.made(arm)}

    def made(self, arm: str) -> dict[str, Any]:
        """Key and fingerprint of each model, with its whole resolved configuration."""
        return {
            model.instance: {
                "key": self.keys.key(model.name),
                "fingerprint": model.manifest["fingerprint"],
                "evaluation": self.keys.key(f"evaluate/{model.instance}"),
                "configuration": model.config,
            }
            for model in self.models(arm)
        }

    # ---- what differs, and at what cost ----

    def settings(self, arm: str) -> list[dict[str, Any]]:
        """Keys in which an arm differs from the baseline, with both values."""
        first, second = (self.models(side)[0].config for side in (self.baseline, arm))
        sides = [_flat(section) for section in (first, second)]
        keys = sorted(set().union(*sides) - {"seed"})
        values = {key: [side.get(key) for side in sides] for key in keys}
        return [{"key": key, "values": pair} for key, pair in values.items() if pair[0] != pair[1]]

    def own_files(self) -> dict[str, str]:
        """Read the user's Python files that the models were made with, by path."""
        made = {self.design.training(name) for names in self.families.values() for name in names}
        inputs = [self.design.graph.nodes[name].inputs for name in sorted(made)]
        files = {str(path) for pairs in inputs for role, path in pairs if role in ("method", "reward")}
        return {path: Path(path).read_text() for path in sorted(files) if path.endswith(".py")}

    def cost(self, arm: str) -> dict[str, float]:
        """Seconds of training and of evaluation, sampled tokens and FLOP of training, of all its seeds."""
        evaluations = [self.results.run.finished[f"evaluate/{name}"] for name in self.families[arm]]
        logs = [list(read_lines(model.data / "metrics.jsonl")) for model in self.models(arm)]
        return {
            "seeds": len(logs),
            "training_seconds": round(sum(model.seconds for model in self.models(arm)), 1),
            "evaluation_seconds": round(sum(result.seconds for result in evaluations), 1),
            "sampled_tokens": sum(row.get("sampled_tokens", 0) for log in logs for row in log),
            "flop": sum(row.get("flop", 0) for log in logs for row in log),
        }

    # ---- questions that flipped ----

    def flips(self, arm: str) -> list[Flip]:
        """Find the flipped questions; those on which most seeds agree come first."""
        found = [flip for task in self.tasks for flip in self._flips(arm, task)]
        return sorted(found, key=lambda flip: -abs(flip.shares[1] - flip.shares[0]))

    def _flips(self, arm: str, task: Task) -> Iterator[Flip]:
        before, after = (self._right(side, task) for side in (self.baseline, arm))
        shares = {key: (fmean(before[key]), fmean(after[key])) for key in before.keys() & after.keys()}
        flipped = {key: both for key, both in shares.items() if (both[0] - 0.5) * (both[1] - 0.5) < 0}
        rows = self._rows(task, arm, set(flipped))
        for key, both in sorted(flipped.items()):
            gained = both[1] > both[0]
            names = [
                self.families[self.baseline][before[key].index(not gained)],
                self.families[arm][after[key].index(gained)],
            ]
            asked = rows[names[1]][key]
            answers = {name: rows[name][key].greedy or Greedy() for name in names}
            yield Flip(key, task, gained, both, asked.question, str(asked.reference), answers)

    def _right(self, arm: str, task: Task) -> dict[str, list[float]]:
        """By question id, 1.0 for each seed that has it right."""
        seeds = self.results.values(self.families[arm], task, Answers.accuracy) or []
        return {key: [seed[key] for seed in seeds] for key in seeds[0] if all(key in seed for seed in seeds)}

    def _rows(self, task: Task, arm: str, ids: set[str]) -> dict[str, dict[str, Row]]:
        """Questions and answers of these ids, by model and id."""
        names = (*self.families[self.baseline], *self.families[arm])
        every = {name: self.results.answers[name][task].rows() for name in names}
        return {name: {row.id: row for row in rows if row.id in ids} for name, rows in every.items()}


def _flat(section: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Keys of a section with those of its parts, as `rewards.functions`."""
    found = {}
    for key, value in section.items():
        inside = isinstance(value, dict) and value
        found |= _flat(value, f"{prefix}{key}.") if inside else {f"{prefix}{key}": value}
    return found
