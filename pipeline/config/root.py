"""The whole configuration: sections, named nodes, and how a model's node overrides its stage's section.

`Config` validates what Snakemake read from the YAML files. Every error is one line that names the key.
"""

import difflib
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import ValidationError

from pipeline.config.evaluate import BenchmarkNode, Mode
from pipeline.config.sandbox import SandboxSection
from pipeline.config.tokens import MixtureNode
from pipeline.core.addresses import quoted
from pipeline.core.errors import InputError
from pipeline.core.launch.section import LaunchSection
from pipeline.core.overlays import read_config
from pipeline.core.section import LARGEST_SEED, Section, key
from pipeline.core.stages import MODEL_STAGES, STAGES

SECTIONS: dict[str, type[Section]] = {stage.name: stage.section for stage in STAGES} | {
    "sandbox": SandboxSection,
    "launch": LaunchSection,
}
# Stages that may have a launch of their own: those that use GPUs, and one whose joins many jobs share.
LAUNCHED = (*MODEL_STAGES, "evaluate", "trajectory", "corpus")
BENCHMARKS = Path(__file__).resolve().parents[2] / "configs/benchmarks"
# The keys of a node that name another model, and the stages that this may be of.
ROLES = {
    "parent": MODEL_STAGES,
    "policy": ("sft", "rl"),
    "reward_model": ("reward",),
}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class RunKeys(Section):
    """Keys at the top of a configuration, beside its sections and nodes."""

    run: str = key("default", "name of the run: results go to results/<run>")
    seed: int = key(
        0,
        "seed of everything random in the run; that of a model's stage or node and of `evaluate` override it",
        ge=0,
        le=LARGEST_SEED,
    )
    data_folder: str | None = key(
        None,
        "folder of files that you bring: while they are missing a dry run takes them as given; no run starts",
    )
    pins: dict[str, str | None] = key(
        {},
        "results that stay although what they came from changed: instance -> its key, as in cpt/base:"
        " 0123456789abcdef; what follows is made from them, and the report says so; null takes a pin back",
    )


class ModelNode(Section):
    """A named model; all keys that are not listed here override the section of its stage."""

    stage: Literal[MODEL_STAGES] = key("sft", "stage that makes the model: cpt, sft, reward or rl")
    parent: str | None = key(None, "name of the model it starts from")
    init: str | None = key(
        None, "start instead from a folder, a hub id, or `scratch`: entering the workflow at this stage"
    )
    train: bool = key(True, "false: use `init` as it is, for evaluation or as a parent")
    mixture: str | None = key(None, "cpt: name of the mixture it is trained on")
    policy: str | None = key(None, "reward: name of the model whose solutions are labelled")
    reward_model: str | None = key(
        None, "rl: name of the reward model, where the section's reward weights ask for one"
    )
    seeds: list[int] | None = key(
        None, "a family instead of one model: NAME-0 and NAME-1 for [0, 1], which differ in `seed` alone"
    )
    benchmarks: list[str] | None = key(None, "benchmarks it is evaluated on; null means all, [] none")
    modes: list[Mode] | dict[str, list[Mode]] | None = key(
        None, "how it is asked, everywhere or by benchmark; null: as its benchmarks or evaluate.modes say"
    )


class ConfigError(InputError):
    """A configuration that cannot be used; the message names the key."""


def hint(name: Any, known: list[str]) -> str:
    """How to go on after a message about an unknown name."""
    close = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"


def check_name(name: Any, where: str) -> None:
    """Raise ConfigError unless `name` can be part of a path, a `KEY=PATH` argument and a shell command."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError(
            f"config key {where}: not a name: {name!r}; use at most 100 letters, digits, `_`, `-` and `.`,"
            " a letter or digit first"
        )


def validated(model: type[Section], values: Any, where: str) -> Any:
    """`values` as a `model`, or a one-line `ConfigError`."""
    if not isinstance(values, dict):
        raise ConfigError(f"config key {where}: expected a mapping, got {quoted(values)}")
    for name in values:
        if name not in (known := model.own_keys()):
            raise ConfigError(f"config key {where}.{name}: unknown{hint(name, known)}")
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(filter(None, [where, *map(str, first["loc"])]))
        if first["type"] == "extra_forbidden":
            told = hint(first["loc"][-1], _keys(model, first["loc"]))
            raise ConfigError(f"config key {path}: unknown{told}") from error
        raise ConfigError(f"config key {path}: {first['msg']} (got {quoted(first['input'])})") from error


def _keys(model: type[Section], place: tuple[int | str, ...]) -> list[str]:
    """List the keys of the section inside `model` that the key at `place` is in."""
    for name in place[:-1]:
        field = model.model_fields.get(str(name))
        inside = [field.annotation, *get_args(field.annotation)] if field else []
        model = next((one for one in inside if isinstance(one, type) and issubclass(one, Section)), model)
    return list(model.model_fields)


def _run_keys(values: dict[str, Any]) -> RunKeys:
    """Return the keys at the top of a configuration."""
    own = {name: values[name] for name in RunKeys.model_fields if name in values}
    if type(own.get("run")) in (int, float):  # `run: 2024` is a number in YAML
        own["run"] = str(own["run"])
    if own.get("pins", {}) is None:
        del own["pins"]
    keys: RunKeys = validated(RunKeys, own, "")
    check_name(keys.run, "run")
    return keys


def benchmark_file(name: str) -> dict[str, Any]:
    """Return what `configs/benchmarks/NAME.yaml` says of a benchmark; nothing if there is no such file."""
    path = BENCHMARKS / f"{name}.yaml"
    return read_config([path]) if path.is_file() else {}


def _whole_benchmark(name: str, node: dict[str, Any]) -> dict[str, Any]:
    """Return a benchmark's node on top of the shipped one of its name. Raises ConfigError without either."""
    if whole := benchmark_file(name) | node:
        return whole
    shipped = sorted(path.stem for path in BENCHMARKS.glob("*.yaml"))
    told = f"no `source`, and none of this name is shipped{hint(name, shipped)}"
    raise ConfigError(f"config key benchmarks.{name}.source: {told}")


def without_launch(values: Any, where: str) -> tuple[Any, dict[str, Any]]:
    """Keys of a section or a model's node without its own `launch`, and the keys of that."""
    if not isinstance(values, dict) or "launch" not in values:
        return values, {}
    launch = values["launch"] or {}
    validated(LaunchSection, launch, f"{where}.launch")
    return {name: value for name, value in values.items() if name != "launch"}, launch


def expand_seeds(models: dict[str, Any]) -> dict[str, Any]:
    """Put in the place of each node with `seeds` one for each of them. Raises ConfigError."""
    found: dict[str, Any] = {}
    for name, node in models.items():
        if not isinstance(node, dict) or "seeds" not in node:
            found[name] = node
            continue
        alone = {key: value for key, value in node.items() if key != "seeds"}
        if node["seeds"] is None:  # an overlay takes the family back
            found[name] = alone
            continue
        where, seeds = f"config key models.{name}.seeds", node["seeds"]
        if not isinstance(seeds, list) or not seeds or any(type(seed) is not int for seed in seeds):
            raise ConfigError(f"{where}: expected whole numbers, as [0, 1, 2], got {quoted(seeds)}")
        if "seed" in alone:
            raise ConfigError(f"{where}: `seed` stands beside it; give one of them")
        if twice := [seed for seed in seeds if seeds.count(seed) > 1]:
            raise ConfigError(f"{where}: {twice[0]} stands twice")
        family = {f"{name}-{seed}": alone | {"seed": seed} for seed in seeds}
        if known := family.keys() & models.keys():
            raise ConfigError(f"{where}: there is a model {min(known)} already; rename one")
        found |= family
    return found


class Config:
    """The validated configuration of a run.

    `sections`, `models`, `mixtures` and `benchmarks` are keyed by name; `model_sections[name]` is the section
    of the model's stage with the node's overrides applied. How a program runs is asked of `launch_of`; it is
    in no section, because it changes no result.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        known = [*RunKeys.model_fields, *SECTIONS, "mixtures", "benchmarks", "models"]
        for name in values:
            if name not in known:
                sections = [f"{part}.{name}" for part in SECTIONS if name in SECTIONS[part].model_fields]
                told = f"; did you mean {' or '.join(sections)}?" if sections else hint(name, known)
                raise ConfigError(f"config key {name}: unknown{told}")
        keys = _run_keys(values)
        self.run, self.seed, self.data_folder = keys.run, keys.seed, keys.data_folder
        self.pins = {name: key for name, key in keys.pins.items() if key}
        self._raw, self._launches = {}, {}
        for name in SECTIONS:
            section, launch = values.get(name) or {}, {}
            if name in LAUNCHED:
                section, launch = without_launch(section, name)
            self._raw[name], self._launches[name] = self._with_seed(name, section), launch
        self.sections = {name: self._section(name) for name in SECTIONS}
        self._check_names(values)
        self.mixtures = self._nodes(values, "mixtures", MixtureNode)
        for name, mixture in self.mixtures.items():
            for source in mixture.sources:
                check_name(source, f"mixtures.{name}.sources")
        asked = (values.get("benchmarks") or {}).items()
        whole = {
            name: _whole_benchmark(name, node) if isinstance(node, dict) else node for name, node in asked
        }
        self.benchmarks = self._nodes({"benchmarks": whole}, "benchmarks", BenchmarkNode)
        for name, node in self.benchmarks.items():
            self._check_samples(name, node)
        self.models: dict[str, ModelNode] = {}
        self.model_sections: dict[str, Any] = {}
        for name, node in expand_seeds(values.get("models") or {}).items():
            self._add_model(name, node)
        for name in self.models:
            self._check_model(name)
            self.launch_of(self.models[name].stage, name)
        self.launch_of("evaluate")
        self.launch_of("trajectory")
        for benchmark in self.sections["trajectory"].benchmarks:
            if benchmark not in self.benchmarks:
                raise ConfigError(f"config key trajectory.benchmarks: {self._no_benchmark(benchmark)}")
        self._check_cycles()

    def launch_of(self, stage: str, model: str | None = None) -> LaunchSection:
        """How a program of `stage` runs: the section `launch`, then the stage's own, then the model's."""
        own = self._launches[stage] | (self._launches[f"models.{model}"] if model else {})
        found = validated(LaunchSection, self._raw["launch"] | own, "launch")
        if found.offload_optimizer and found.zero_stage < 3:  # DeepSpeed would sum gradients in bf16
            raise ConfigError(f"config key launch.offload_optimizer: needs zero_stage 3 (stage {stage})")
        return found

    def _check_samples(self, name: str, node: BenchmarkNode) -> None:
        k, samples = self.sections["evaluate"].k, node.samples
        if samples and min(k, default=1) > samples:
            raise ConfigError(
                f"config key benchmarks.{name}.samples: {samples}, fewer than any in evaluate.k"
            )

    def _with_seed(self, name: str, section: Any) -> Any:
        if isinstance(section, dict) and "seed" in SECTIONS[name].own_keys():
            return {"seed": self.seed} | section
        return section

    def _section(self, name: str) -> Section:
        """Return a section, with the run's seed where it has none of its own. Raises ConfigError."""
        found = validated(SECTIONS[name], self._raw[name], name)
        return found.model_copy(update={"seed": self.seed}) if "seed" in found.filled else found

    def _check_names(self, values: dict[str, Any]) -> None:
        for group in ("mixtures", "benchmarks", "models"):
            nodes = values.get(group) or {}
            if not isinstance(nodes, dict):
                raise ConfigError(f"config key {group}: expected a mapping, got {nodes!r}")
            for name in nodes:
                check_name(name, group)
        if "tokenizer" in (values.get("mixtures") or {}):
            raise ConfigError("config key mixtures.tokenizer: this name is taken by the run's own tokenizer")

    def _nodes(self, values: dict[str, Any], group: str, model: type[Section]) -> dict[str, Any]:
        nodes = (values.get(group) or {}).items()
        return {name: validated(model, node, f"{group}.{name}") for name, node in nodes if node is not None}

    def _add_model(self, name: str, node: Any) -> None:
        where = f"models.{name}"
        if node is None:  # an overlay removes a model by setting it to null
            return
        if not isinstance(node, dict):
            raise ConfigError(f"config key {where}: expected a mapping, got {node!r}")
        stage = node.get("stage")
        if stage not in MODEL_STAGES:
            raise ConfigError(
                f"config key {where}.stage: expected one of {', '.join(MODEL_STAGES)}, got {stage!r}"
            )
        node, self._launches[where] = without_launch(node, where)
        own = {key: value for key, value in node.items() if key in ModelNode.model_fields}
        overrides = {key: value for key, value in node.items() if key not in ModelNode.model_fields}
        self.models[name] = validated(ModelNode, own, where)
        for key_name in overrides:
            if key_name not in SECTIONS[stage].own_keys():
                names = [*ModelNode.model_fields, *SECTIONS[stage].own_keys()]
                raise ConfigError(f"config key {where}.{key_name}: unknown{hint(key_name, names)}")
        self.model_sections[name] = validated(SECTIONS[stage], self._raw[stage] | overrides, where)

    def _check_model(self, name: str) -> None:
        for key_name, told in self._flaws(self.models[name]):
            raise ConfigError(f"config key {'.'.join(filter(None, ['models', name, key_name]))}: {told}")

    def _flaws(self, node: ModelNode) -> Iterator[tuple[str, str]]:
        """Yield (key of the node, what is wrong with it)."""
        if (node.parent is None) == (node.init is None):
            yield "", "give one of `parent` (a model here) and `init` (scratch, folder, hub)"
        for field, stages in ROLES.items():
            target = getattr(node, field)
            if target is not None and target not in self.models:
                yield field, f"no model {target!r}{hint(target, list(self.models))}"
            elif target is not None and (stage := self.models[target].stage) not in stages:
                yield field, f"{target!r} is a {stage} model"
        if node.stage != "reward" and node.parent and self.models[node.parent].stage == "reward":
            yield "parent", f"{node.parent!r} is a reward model; it writes no text"
        if node.train and node.stage == "reward" and node.policy is None:
            yield "policy", "missing; name the model whose solutions are labelled"
        if not node.train and node.init in (None, "scratch"):
            yield "train", "false needs an `init`: a folder or a hub id"
        if node.train and node.stage == "cpt" and node.mixture not in self.mixtures:
            yield "mixture", f"no mixture {node.mixture!r}; known: {', '.join(self.mixtures)}"
        if node.init == "scratch" and node.stage != "cpt":
            yield "init", "only a cpt model can start from scratch"
        named = list(node.modes) if isinstance(node.modes, dict) else []
        for benchmark in [*(node.benchmarks or []), *named]:
            if benchmark not in self.benchmarks:
                yield "benchmarks", self._no_benchmark(benchmark)

    def _no_benchmark(self, name: str) -> str:
        return f"no benchmark {name!r}; known: {', '.join(self.benchmarks)}"

    def _check_cycles(self) -> None:
        """Refuse a model made from itself: each round of reward model and policy has a node of its own."""
        sources = {
            name: [source for field in ROLES if (source := getattr(node, field))]
            for name, node in self.models.items()
        }
        try:
            TopologicalSorter(sources).prepare()
        except CycleError as error:
            circle = error.args[1][::-1]
            raise ConfigError(
                f"config key models.{circle[0]}: made from itself: {' <- '.join(circle)}"
            ) from error
