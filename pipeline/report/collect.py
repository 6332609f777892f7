"""Reads what a run left behind: manifests, `run.json` files and the results beside them.

The report takes any subset of a run's stages: what is absent is not in `Run.finished`. Nothing is written.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, cached_property
from math import prod
from pathlib import Path
from typing import Any

from safetensors import safe_open

from pipeline.core import stages
from pipeline.core.code import Code
from pipeline.core.data.rows import read_rows
from pipeline.core.stage import CODE, InputError
from pipeline.core.store import Entry

STAGES = {stage.name: stage.title for stage in stages.STAGES if stage.name != "report"}
ORDER = tuple(STAGES)
FILES = ("truth", "seed_urls", "background_urls", "claims", "paper")


def read_json(path: Path) -> Any:
    """Return parsed JSON, or an `InputError` that names the file."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError as error:
        raise InputError(f"{path}: not found; run the stage that makes it first") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: not JSON ({error})") from error


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Objects of a JSON-lines file; none if it does not exist."""
    return (row for _, row in read_rows(str(path))) if path.exists() else iter(())


_code = cache(lambda: Code(CODE))


@cache
def code_of(module: str) -> str | None:
    """Hash of a program's code in this checkout; None if the program is gone."""
    try:
        return _code().digest(module)
    except ModuleNotFoundError:
        return None


@dataclass(frozen=True)
class Finished:
    """A finished instance of a stage. `name`: its folder under the run's results; `data`: its results."""

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
        """Fingerprints of its inputs, by their folder under the run's results."""
        names = ((name.partition("/"), value) for name, value in self.manifest.get("upstream", {}).items())
        return {
            stage if stage == instance else f"{stage}/{instance}": value
            for (stage, _, instance), value in names
        }

    @cached_property
    def code_is_older(self) -> bool:
        """Whether the code that made this result differs from the checkout's."""
        return code_of(self.manifest["module"]) != self.manifest["code"]

    @property
    def metrics(self) -> dict[str, Any]:
        """Its `metrics.json`; empty if it has none."""
        path = self.data / "metrics.json"
        return read_json(path) if path.exists() else {}


@dataclass(frozen=True)
class Model:
    """A model; `parent` is the model that it started from, if this run trained that one."""

    name: str
    stage: str
    parent: str | None
    mixture: str | None
    config: dict[str, Any]
    parameters: int | None


@dataclass
class Run:
    """A run's results by name, in the order of the stages, and the files that the report compares with.
    `judged`: patterns of the names of the models that the paper's claims are about; None: all.
    """

    name: str
    finished: dict[str, Finished]
    files: dict[str, list[Path]] = field(default_factory=dict)
    judged: list[str] | None = None

    def of(self, stage: str) -> list[Finished]:
        """Results of a stage."""
        return [result for result in self.finished.values() if result.stage == stage]

    @cached_property
    def iterations(self) -> list[Finished]:
        """The `select` results of the corpus loop, first iteration first."""
        found = [result for result in self.of("corpus") if result.instance.endswith("/select")]
        return sorted(found, key=lambda result: read_json(result.data / "metrics.json")["iteration"])

    @cached_property
    def models(self) -> dict[str, Model]:
        """Language models by name: those trained here, and outside ones that were only evaluated."""
        trained = [_model(result) for stage in stages.TEXT_STAGES for result in self.of(stage)]
        found = {model.name: model for model in trained}
        for result in self.of("evaluate"):
            stage = result.config.get("model_stage", "outside")
            found.setdefault(result.instance, Model(result.instance, stage, None, None, {}, None))
        return found

    def is_judged(self, model: str) -> bool:
        """Whether the paper's claims are about a model."""
        return self.judged is None or any(fnmatchcase(model, pattern) for pattern in self.judged)

    @property
    def palette(self) -> dict[str, int]:
        """Each model's place among all, which decides its colour on the whole page."""
        names = [*self.models, *(result.instance for result in self.of("reward"))]
        return {name: index for index, name in enumerate(names)}


def _model(result: Finished) -> Model:
    upstream = [name.partition("/") for name in result.upstream]
    given = result.run.get("inputs", {})  # upstream the sampler of `rl.rollouts` may stand before the parent
    starts = [Entry.of(Path(source)) for role in ("parent", "init") for source in given.get(role, [])]
    names = [entry.name.partition("/") for entry in starts if entry] or upstream
    parents = [name for stage, _, name in names if stage in stages.TEXT_STAGES]
    mixtures = [name for stage, _, name in upstream if stage == "tokens" and name != "tokenizer"]
    parent, mixture = next(iter(parents), None), next(iter(mixtures), None)
    return Model(result.instance, result.stage, parent, mixture, result.config, parameter_count(result.data))


def parameter_count(folder: Path) -> int | None:
    """Parameters of the safetensors files of a model folder, read from their headers; None without files."""
    files, total = sorted(folder.glob("*.safetensors")), 0
    for path in files:
        with safe_open(path, "numpy") as tensors:
            total += sum(prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
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
    """Return the run called `name`; `inputs`: `stage/instance` -> its data folder, and each of `FILES` ->
    files.
    """
    results, files = [], {}
    for key, paths in inputs.items():
        if key in FILES:
            files[key] = [Path(path) for path in paths]
        elif key.partition("/")[0] in ORDER:
            results.append(_finished(key, Path(paths[-1])))
        else:
            raise InputError(
                f"--input {key}: expected a stage ({', '.join(ORDER)}) or one of {', '.join(FILES)}"
            )
    results.sort(key=lambda result: ORDER.index(result.stage))  # stable: within a stage as given
    return Run(name, {result.name: result for result in results}, files)


def open_run(folder: Path) -> Run:
    """Return the models and evaluations of a run's folder, `results/<run>`."""
    inputs = {
        f"{stage}/{path.name}": [str(path / "data")]
        for stage in (*stages.TEXT_STAGES, "evaluate")
        for path in sorted((folder / stage).glob("*"))
        if (path / "manifest.json").is_file()
    }
    if not any(name.startswith("evaluate/") for name in inputs):
        raise InputError(
            f"{folder}: no evaluation of a model here; expected the folder of a run, results/<run>"
        )
    return collect(folder.absolute().name, inputs)
