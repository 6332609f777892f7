"""Reads what a run left behind: manifests, `run.json` files and the results beside them.

The report takes any subset of a run's stages; what is absent is simply not among `Run.nodes`. Everything
here is read-only.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from pipeline.common.manifest import code_hash
from pipeline.common.stage import InputError

MODEL_STAGES = ("cpt", "sft", "rl")
STAGES = ("miniweb", "crawl", "corpus", "decontaminate", "tokens", "cpt", "sft", "reward", "rl", "evaluate")
FILES = ("truth", "seed_urls", "background_urls", "claims", "paper")


def read_json(path: Path) -> Any:
    """Parsed JSON, or an `InputError` that names the file."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError as error:
        raise InputError(f"{path}: not found; run the stage that makes it first") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: not JSON ({error})") from error


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Objects of a JSON-lines file; none if it does not exist."""
    if not path.exists():
        return
    with path.open() as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except json.JSONDecodeError as error:
                    raise InputError(f"{path}: line {number} is not JSON ({error})") from error


@cache
def code_of(module: str) -> str | None:
    """Hash of a program's code in this checkout; None if there is no such program any more."""
    try:
        return code_hash(module)
    except ModuleNotFoundError:
        return None


@dataclass(frozen=True)
class Finished:
    """A finished instance of a stage: `name` is its folder under the run's results, `data` its results."""

    name: str
    data: Path
    manifest: dict[str, Any]
    run: dict[str, Any]

    @property
    def stage(self) -> str:
        return self.name.partition("/")[0]

    @property
    def instance(self) -> str:
        return self.name.partition("/")[2] or self.name

    @property
    def config(self) -> dict[str, Any]:
        return self.manifest["config"]

    @property
    def seconds(self) -> float:
        return float(self.run.get("seconds", 0.0))

    @cached_property
    def upstream(self) -> dict[str, str]:
        """Fingerprints of what it was made from, by node name."""
        names = ((name.partition("/"), value) for name, value in self.manifest.get("upstream", {}).items())
        return {
            stage if stage == instance else f"{stage}/{instance}": value
            for (stage, _, instance), value in names
        }

    @cached_property
    def code_is_older(self) -> bool:
        """Whether the checkout's code differs from the code that made this result."""
        return code_of(self.manifest["module"]) != self.manifest["code"]


@dataclass(frozen=True)
class Model:
    """A model and where it comes from; `parent` is the model it started from, if this run trained that."""

    name: str
    stage: str
    parent: str | None
    mixture: str | None
    config: dict[str, Any]
    parameters: int | None


@dataclass
class Run:
    """All that the report is made from; nodes are in the order of the stages."""

    name: str
    nodes: dict[str, Finished]
    files: dict[str, list[Path]] = field(default_factory=dict)

    def of(self, stage: str) -> list[Finished]:
        """Instances of a stage."""
        return [node for node in self.nodes.values() if node.stage == stage]

    @cached_property
    def iterations(self) -> list[Finished]:
        """The `select` results of the corpus loop, first iteration first."""
        found = [node for node in self.of("corpus") if node.instance.endswith("/select")]
        return sorted(found, key=lambda node: read_json(node.data / "metrics.json")["iteration"])

    @cached_property
    def models(self) -> dict[str, Model]:
        """Models by name: those trained here, and outside ones that were only evaluated."""
        trained = [_model(node) for stage in MODEL_STAGES for node in self.of(stage)]
        found = {model.name: model for model in trained}
        for node in self.of("evaluate"):
            if node.instance not in found:
                found[node.instance] = Model(
                    node.instance, node.config.get("model_stage", "outside"), None, None, {}, None
                )
        return found

    @property
    def palette(self) -> dict[str, int]:
        """Each model's place among all: its colour wherever it is drawn."""
        names = [*self.models, *(node.instance for node in self.of("reward"))]
        return {name: index for index, name in enumerate(names)}


def _model(node: Finished) -> Model:
    parents = [name for name in node.upstream if name.partition("/")[0] in MODEL_STAGES]
    mixtures = [name for name in node.upstream if name.startswith("tokens/") and name != "tokens/tokenizer"]
    parent = parents[0].partition("/")[2] if parents else None
    mixture = mixtures[0].partition("/")[2] if mixtures else None
    return Model(node.instance, node.stage, parent, mixture, node.config, parameter_count(node.data))


def parameter_count(folder: Path) -> int | None:
    """Parameters of the safetensors files of a model folder, read from their headers; None without any."""
    files = sorted(folder.glob("*.safetensors"))
    total = 0
    for path in files:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        for name, tensor in header.items():
            if name != "__metadata__":
                size = 1
                for extent in tensor["shape"]:
                    size *= extent
                total += size
    return total if files else None


def _finished(name: str, path: Path) -> Finished:
    if not path.is_dir():
        raise InputError(f"{path}: no such folder (input {name!r} of the report)")
    manifest = read_json(path.parent / "manifest.json")
    run = path.parent / "run.json"
    missing = [key for key in ("stage", "fingerprint", "config", "module", "code") if key not in manifest]
    if missing:
        raise InputError(f"{path.parent / 'manifest.json'}: key {missing[0]!r} is missing")
    return Finished(name, path, manifest, read_json(run) if run.exists() else {})


def collect(name: str, inputs: dict[str, list[str]]) -> Run:
    """The run called `name` from `--input` pairs: `stage/instance` -> data folder, or `FILES` -> files."""
    nodes, files = [], {}
    for key, paths in inputs.items():
        if key in FILES:
            files[key] = [Path(path) for path in paths]
        elif key.partition("/")[0] in STAGES:
            nodes.append(_finished(key, Path(paths[-1])))
        else:
            raise InputError(
                f"--input {key}: expected a stage ({', '.join(STAGES)}) or one of {', '.join(FILES)}"
            )
    nodes.sort(key=lambda node: STAGES.index(node.stage))  # stable: within a stage as given
    return Run(name, {node.name: node for node in nodes}, files)


def read_urls(paths: list[Path]) -> set[str]:
    """URLs of list files, one a line."""
    return {line.strip() for path in paths for line in path.read_text().splitlines() if line.strip()}


def read_truth(paths: list[Path]) -> dict[str, dict[str, Any]]:
    """Truth rows by URL."""
    rows = [row for path in paths for row in read_lines(path)]
    for row in rows:
        if row.get("label") not in ("math", "not_math", "unsure"):
            raise InputError(
                f"{paths[0]}: label of {row.get('url')!r} is {row.get('label')!r}; see report.truth"
            )
    return {row["url"]: row for row in rows}
