"""Which models of a run a claim compares. Models that differ in nothing but their seed are one family."""

import json
import os
from dataclasses import dataclass
from typing import Any

from pipeline.report.collect import Model, Run

Selector = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """Two families of models. `matched`: each of `better` started from its place in `worse`, or from its only
    model.
    """

    better: list[str]
    worse: list[str]
    matched: bool = False


def matches(model: Model, selector: Selector, models: dict[str, Model]) -> bool:
    """Whether a model has every value of a selector, or one of the values where that is a list."""
    # Sections of stage rl that do not name a method are GRPO with outcome supervision.
    facts = {"method": "grpo", "supervision": "outcome"} | model.config
    parent = models.get(model.parent or "")
    facts |= {
        "stage": model.stage,
        "name": model.name,
        "mixture": model.mixture,
        "parent_stage": parent.stage if parent else None,
        "parent_mixture": parent.mixture if parent else None,
        "judge": "model" if model.config.get("rewards", {}).get("model") else "rule",
    }
    return all(
        facts.get(key) in value if isinstance(value, list) else facts.get(key) == value
        for key, value in selector.items()
    )


def _kin(name: str | None, models: dict[str, Model]) -> str | None:
    """Return what the seeds of a model have in common: its settings and its parents', but neither the seed
    nor what was kept on the way.
    """
    if name is None or name not in models:
        return name
    model = models[name]
    if not model.config:
        return name  # an outside model is its own family
    settings = {key: value for key, value in model.config.items() if key not in ("seed", "keep_at")}
    return json.dumps([model.stage, model.mixture, _kin(model.parent, models), settings], sort_keys=True)


def families(selector: Selector, run: Run, *, every: bool = False) -> list[list[str]]:
    """Return the judged models that a selector names, or `every` one, as lists of seeds. Two models of one
    seed are never one family.
    """
    found: dict[tuple[str | None, int], list[str]] = {}
    seen: dict[tuple[str | None, Any], int] = {}
    for model in run.models.values():
        if (every or run.is_judged(model.name)) and matches(model, selector, run.models):
            kin = _kin(model.name, run.models)
            again = seen.get((kin, model.config.get("seed")), 0)
            seen[kin, model.config.get("seed")] = again + 1
            found.setdefault((kin, again), []).append(model.name)
    return list(found.values())


def family_name(names: list[str]) -> str:
    """Return a family in print: what the names of its seeds begin with, `grpo` of `grpo-0` and `grpo-1`."""
    return os.path.commonprefix(names).rstrip("-_.") or names[0]


def pairs(
    better: Selector | str | None, worse: Selector | str | None, run: Run, *, across_parents: bool
) -> list[Pair]:
    """Families to compare: each of `better` with the models that it started from (`worse: parent`), or with
    each family of `worse` that started from the same ones.
    """
    if not isinstance(better, dict):
        return []
    if worse == "parent":
        started = [
            (names, [run.models[name].parent for name in names if run.models[name].parent])
            for names in families(better, run)
        ]
        return [
            Pair(names, parents if len(set(parents)) > 1 else parents[:1], matched=True)
            for names, parents in started
            if len(parents) == len(names)
        ]

    def start(names: list[str]) -> str | None:
        return _kin(run.models[names[0]].parent, run.models)

    others = families(worse, run) if isinstance(worse, dict) else []
    return [
        Pair(names, other)
        for names in families(better, run)
        for other in others
        if across_parents or start(names) == start(other)
    ]
