"""An experiment as a file, and the models that it asks for beside those of its configuration.

`experiments/NAME.yaml` says what is asked, which changes (arms) are compared with which model, with how many
seeds, what is expected and which effect matters, before anything runs. Each arm is the baseline's node with
its own keys on top, or with a `stage` of its own a node that shares what it starts from and is asked;
baseline and arms get the same seeds. Nothing of the configuration itself changes, so
nothing before the arms is made again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

import yaml

from pipeline.config.root import Config, ConfigError, ModelNode, check_name, expand_seeds, hint, validated
from pipeline.core.atomic import atomic_write
from pipeline.core.errors import InputError
from pipeline.core.overlays import DEFAULTS, merge, read_config
from pipeline.core.section import Section, key
from pipeline.core.stages import TEXT_STAGES
from pipeline.report.collect import Run
from pipeline.report.selection import family_name
from workflow.graph import Graph

FILES, OVERLAYS = Path("experiments"), Path("work/experiments")


class Experiment(Section):
    """What `experiments/NAME.yaml` holds."""

    question: str = key("", "what is asked, in a sentence")
    configs: list[str] = key(["configs/demo.yaml"], "configuration files that the baseline is a model of")
    baseline: str = key("", "the model that arms are compared with")
    arms: dict[str, dict[str, Any]] = key({}, "what changes: name -> keys of the baseline's node")
    seeds: int = key(3, "trainings of each arm and of the baseline", ge=1)
    benchmarks: list[str] | None = key(None, "those that decide; null: all that the baseline is asked")
    expected: Literal["higher", "lower"] = key("higher", "accuracy of the arms beside the baseline's")
    matters: float = key(0.02, "smallest effect that matters; a share: 0.02 is 2 points", gt=0, lt=1)
    stop: float | None = key(
        None,
        "an arm that is surely so much behind what is expected after its first seed gets no other; a share",
        ge=0,
        lt=1,
    )


def read_experiment(path: Path) -> Experiment:
    """Read an experiment's file. Raises InputError that names file and key."""
    return checked(read_config([path]), path)


def checked(values: dict[str, Any], path: Path) -> Experiment:
    """Check what an experiment's file holds, or will. Raises InputError that names file and key."""
    try:
        found: Experiment = validated(Experiment, values, "")
    except ConfigError as error:
        raise InputError(f"{path}: {str(error).replace('config key .', 'config key ')}") from error
    for name in ("question", "configs", "baseline", "arms"):
        if not getattr(found, name):
            raise InputError(f"{path}: config key {name}: missing or empty")
    return found


@dataclass(frozen=True)
class Design:
    """The models of an experiment: `families` are the nodes of the baseline, the first one, and of each arm,
    in the order of the seeds. `overlay` adds them to the `configs`; `graph` has them, `plain` has not.
    """

    name: str
    experiment: Experiment
    families: dict[str, list[str]]
    overlay: dict[str, Any]
    graph: Graph
    plain: Graph

    @property
    def path(self) -> Path:
        """The overlay's file."""
        return OVERLAYS / f"{self.name}.yaml"

    def training(self, model: str) -> str:
        """Name the instance that trains a model, `rl/grpo`."""
        return f"{self.graph.config.models[model].stage}/{model}"

    def write_overlay(self) -> None:
        """Write the overlay, whole or not at all."""
        with atomic_write(self.path) as partial:
            partial.write_text(yaml.safe_dump(self.overlay, sort_keys=False, allow_unicode=True))

    def targets(self, seeds: slice = slice(None)) -> list[str]:
        """Name the evaluations that are needed, of some of the seeds."""
        return [f"evaluate/{name}" for family in self.families.values() for name in family[seeds]]


def make_design(name: str, experiment: Experiment) -> Design:
    """Find out which models an experiment needs. Raises InputError or ConfigError where it cannot be."""
    values = read_config([DEFAULTS, *experiment.configs])
    plain = Graph(Config(values))
    baseline = experiment.baseline
    if baseline not in plain.config.models:
        raise InputError(f"baseline: no model {baseline!r}{hint(baseline, list(plain.config.models))}")
    node = plain.config.models[baseline]
    if not node.train or node.stage not in TEXT_STAGES or f"evaluate/{baseline}" not in plain.nodes:
        raise InputError(f"baseline: {baseline} is not trained and evaluated by this configuration")
    nodes = expand_seeds(values["models"])
    known = _siblings(plain.config, baseline)
    stem = family_name(list(known.values()))
    spare = (seed for seed in count() if seed not in known and f"{stem}-{seed}" not in nodes)
    seeds = [*known][: experiment.seeds]
    seeds += [next(spare) for _ in range(experiment.seeds - len(seeds))]
    families = {baseline: [known.get(seed, f"{stem}-{seed}") for seed in seeds]}
    changes: dict[str, dict[str, Any]] = {baseline: {}}
    for arm, change in experiment.arms.items():
        check_name(arm, "arms")
        if arm == baseline:
            raise InputError(f"arms: {arm} is the baseline's own name; rename the arm")
        if "seed" in change:
            raise InputError(
                f"arms: {arm}: `seed` is not a change; arms get the baseline's seeds, see `seeds`"
            )
        families[arm] = [f"{arm}-{seed}" for seed in seeds]
        changes[arm] = change
    new: dict[str, Any] = {}
    for arm, names in families.items():
        for seed, each in zip(seeds, names, strict=True):
            if arm == baseline and seed in known:
                continue
            if each in nodes or each in new:
                raise InputError(f"arms: there is a model {each} already; rename the arm {arm}")
            new[each] = merge(_shared(nodes[baseline], changes[arm]), changes[arm]) | {"seed": seed}
    judged = Run("", {}, judged=plain.config.sections["report"].judged).is_judged
    # The paper's claims stay about the models that they were about: a pattern may match a new one's name.
    overlay = {"models": new, "report": {"judged": list(filter(judged, plain.config.models))}}
    graph = Graph(Config(merge(values, overlay)))
    for arm in experiment.arms:
        _check_arm(graph, arm, families[arm][0], baseline)
    check_own_code(graph.config, new)
    return Design(name, experiment, families, overlay, graph, plain)


def _shared(node: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of the baseline's node that an arm has, too: all of them in the same stage."""
    if change.get("stage", node["stage"]) == node["stage"]:
        return node
    return {key: value for key, value in node.items() if key in ("parent", "init", "benchmarks", "modes")}


def _check_arm(graph: Graph, arm: str, model: str, baseline: str) -> None:
    """Raise InputError unless an arm is trained and asked as the baseline is, with a change."""
    nodes = graph.config.models
    if nodes[model].stage not in TEXT_STAGES or not nodes[model].train:
        raise InputError(f"arms: {arm}: is not trained by one of the stages {', '.join(TEXT_STAGES)}")
    if f"evaluate/{model}" not in graph.nodes:
        raise InputError(f"arms: {arm}: nothing is asked of it; `benchmarks` must name those to compare on")
    if _settings(graph.config, model) == _settings(graph.config, baseline):
        raise InputError(f"arms: {arm}: changes nothing; {baseline} has these values already")


def _settings(config: Config, model: str) -> tuple[ModelNode, dict[str, Any]]:
    section = config.model_sections[model].model_dump()
    return config.models[model], {key: value for key, value in section.items() if key != "seed"}


def _siblings(config: Config, model: str) -> dict[int, str]:
    """Models that differ from a model in nothing but their seed, by that; the model itself is the first."""
    names = [model, *(name for name in config.models if name != model)]
    found: dict[int, str] = {}
    for name in names:
        if _settings(config, name) == _settings(config, model):
            found.setdefault(config.model_sections[name].seed, name)
    return found


def check_own_code(config: Config, names: Iterable[str]) -> None:
    """Load methods and rewards from files of the user's now: their jobs would only after all before them."""
    from pipeline.rl.methods import method_of  # torch behind it takes seconds to import
    from pipeline.rl.rewards import load_function

    for name in names:
        section = config.model_sections[name]
        if config.models[name].stage == "rl":
            method_of(section)
            for function in section.rewards.functions:
                load_function(function)
