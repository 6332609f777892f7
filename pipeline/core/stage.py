"""How every stage program starts and ends: arguments, work folder, atomic publication, manifest last.

A program resumes from `Stage.work`, which survives failures, writes its results to `Stage.partial`, and
returns its counts. `run_stage` then renames `partial` to its final place and writes the manifest, so that a
manifest means a complete result.
"""

import json
import os
import platform
import resource
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar

from pipeline.core import tries, watchdog
from pipeline.core.addresses import public
from pipeline.core.arguments import parser, read_inputs, read_launch, read_section
from pipeline.core.code import Code
from pipeline.core.device import check_device, kind_of_cpu
from pipeline.core.ending import catch_signals, end, leave, place, say
from pipeline.core.errors import AGAIN, InputError, Interrupted, Passing
from pipeline.core.folders import check_writable, full_disk, held
from pipeline.core.identity import (
    Digests,
    digest_of,
    identity,
    is_log,
    published,
    read_manifest,
    recorded,
)
from pipeline.core.manifest import SCHEMA, fingerprint, package_versions, write_json
from pipeline.core.progress import duration
from pipeline.core.section import Section
from pipeline.core.store import Entry, name_of, put_in_place

S = TypeVar("S", bound=Section)
WORK = Path("work")
DIGESTS = WORK / "digests"
CODE = WORK / "code.json"
HANGS = "hangs.json"
DEFINITIONS = "code.json"  # beside the manifest of a trained model
Counts = dict[str, int | float | str]


@dataclass
class Stage(Generic[S]):
    """One instance of a stage: what it is made from, and where it reads, works and writes."""

    name: str
    instance: str
    config: S
    fingerprint: str
    inputs: dict[str, list[str]]
    work: Path
    output: Path
    manifest: Path
    launch: dict[str, Any]
    counters: Counter[str] = field(default_factory=Counter)
    checks: dict[str, Any] = field(default_factory=dict)  # of models, by name; they end in `run.json`
    identity: dict[str, Any] = field(default_factory=dict)
    digests: Digests = field(default_factory=Digests)
    code: Code = field(default_factory=Code)
    entry: Entry | None = None  # where the result is kept in its run's store, if it has one

    @property
    def partial(self) -> Path:
        """Folder for final outputs, renamed to `output` when the program has returned."""
        return self.work / "partial"

    @property
    def is_main(self) -> bool:
        """Whether this process is rank 0, the one that publishes."""
        return os.environ.get("RANK", "0") == "0"

    def input(self, name: str) -> Path:
        """Return the one path given as `--input name=path`; it must exist."""
        paths = self.inputs.get(name, [])
        if len(paths) != 1:
            raise InputError(f"--input {name}: expected one path, got {len(paths)}")
        path = Path(paths[0])
        if not path.exists():
            raise InputError(f"{path}: not found (input {name!r} of {self.name} {self.instance})")
        return path

    def source(self, *names: str) -> str:
        """Return the one model given as `--input NAME=...` under any of `names`: a folder or hub id."""
        found = [path for name in names for path in self.inputs.get(name, [])]
        if len(found) != 1:
            raise InputError(f"--input {' or '.join(names)}: expected one model, got {len(found)}")
        return found[0]

    def counter(self, name: str, amount: int = 1) -> None:
        """Add to a counter of work really done by a component, e.g. `vllm.tokens`; it ends in `run.json`."""
        self.counters[name] += int(amount)


def upstream(inputs: dict[str, list[str]]) -> dict[str, str]:
    """Give the keys of the inputs that are other stages' results, or their fingerprints where they lie in no
    store.
    """
    found = {}
    for path in sorted({path for paths in inputs.values() for path in paths}):
        result = published(Path(path))
        if result is not None:
            manifest = read_manifest(result[1])
            name = name_of(manifest["stage"], manifest["instance"])
            found[name] = manifest.get("key", manifest["fingerprint"])
    return found


def _open_work(stage: Stage[Any]) -> None:
    """Make the work folder ready. Discard work that was begun for another section or other input files.
    Leave a folder alone that this project did not begin. Raises InputError where nothing can be written.
    """
    for folder in _destinations(stage):
        check_writable(folder)
    note = stage.work / "identity.json"
    if note.exists() and (before := _begun(note)) != stage.identity:
        changed = sorted(key for key in stage.identity if before.get(key) != stage.identity[key])
        print(f"{stage.work}: discarded, its {' and '.join(changed)} changed", file=sys.stderr, flush=True)
        shutil.rmtree(stage.work)
    if not stage.work.exists() or note.exists() or not any(stage.work.iterdir()):
        stage.work.mkdir(parents=True, exist_ok=True)
        write_json(note, stage.identity)
    shutil.rmtree(stage.partial, ignore_errors=True)
    check_writable(stage.work)
    stage.partial.mkdir()


def _destinations(stage: Stage[Any]) -> list[Path]:
    """Return the folders in which the result appears."""
    if stage.entry:
        return [stage.entry.folder.parent, stage.entry.link.parent]
    beside = [] if stage.manifest.parent == stage.output else [stage.manifest.parent]
    return [stage.output.parent, *beside]


def _begun(note: Path) -> dict[str, Any]:
    """Return what the work in a folder was begun for."""
    try:
        before = json.loads(note.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{note}: damaged ({error}); delete {note.parent} to start again") from error
    return before if isinstance(before, dict) else {}


def _publish(stage: Stage[Any], module: str, counts: Counts, started: float) -> None:
    """Rename the finished files to their place, then write `run.json` and, last, the manifest. A manifest
    that belongs into the output is written before that gets its name.
    """
    made = {str(path.relative_to(stage.partial)): path for path in stage.partial.rglob("*") if path.is_file()}
    files, known = {}, dict[tuple[int, int], str]()
    statuses = {name: path.stat() for name, path in sorted(made.items()) if not is_log(name)}
    if any(status.st_nlink > 1 for status in statuses.values()):
        known = recorded(chain(*stage.inputs.values()))
    for name, status in statuses.items():
        digest = known.get((status.st_dev, status.st_ino)) or Digests().file(made[name])
        files[name] = [status.st_size, digest]
    new, final = stage.partial, stage.output
    if stage.entry:  # data and manifest get their name in one step
        new, final = stage.work / "result", stage.entry.folder
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        stage.partial.rename(new / "data")
    together = stage.manifest.parent == final
    if together:
        _describe(stage, new / stage.manifest.name, module, counts, files, started)
    else:
        stage.manifest.unlink(missing_ok=True)
    final.parent.mkdir(parents=True, exist_ok=True)
    put_in_place(new, final)
    if not together:
        stage.manifest.parent.mkdir(parents=True, exist_ok=True)
        _describe(stage, stage.manifest, module, counts, files, started)


def _describe(
    stage: Stage[Any], manifest: Path, module: str, counts: Counts, files: dict[str, Any], started: float
) -> None:
    """Write `run.json` and then, beside it, the manifest."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    write_json(
        manifest.with_name("run.json"),
        {
            "started": started,
            "seconds": round(time.time() - started, 3),
            "host": platform.node(),
            "cores": len(os.sched_getaffinity(0)),
            "cpu": kind_of_cpu(),
            "cpu_seconds": round(sum(usage.ru_utime + usage.ru_stime for usage in usages), 3),
            "peak_rss_mb": max(usage.ru_maxrss for usage in usages) // 1024,
            "launch": stage.launch,
            "inputs": {role: [public(path) for path in paths] for role, paths in stage.inputs.items()},
            "counters": dict(stage.counters),
            "checks": stage.checks,
        },
    )
    if stage.config.trains:  # what a later edit is compared with, definition by definition
        write_json(manifest.with_name(DEFINITIONS), stage.code.record(module))
    write_json(
        manifest,
        {
            "schema": SCHEMA,
            "stage": stage.name,
            "instance": stage.instance,
            "fingerprint": stage.fingerprint,
            **({"key": stage.entry.key} if stage.entry else {}),
            "identity": stage.identity,
            "config": stage.config.model_dump(mode="json"),
            "upstream": upstream(stage.inputs),
            "module": module,
            "code": stage.code.digest(module),
            "packages": package_versions(),
            "counts": counts,
            "files": files,
        },
    )


def label(stage: Stage[Any]) -> str:
    """Name the instance for people: `rl grpo`, or `report` where a stage has only one."""
    return name_of(stage.name, stage.instance).replace("/", " ", 1)


def _done(stage: Stage[Any], counts: Counts, seconds: float) -> str:
    """Return the last line of a program that ended well."""
    made = [f"{name} {value:,}" for name, value in counts.items() if not isinstance(value, str)]
    return f"{label(stage)}: done in {duration(seconds)}: {', '.join(made)}"


def open_stage(name: str, section: type[S], module: str, arguments: Any) -> Stage[S]:
    """Make the instance that a program's arguments describe, its fingerprint computed. Raises InputError."""
    config, inputs = read_section(arguments.config, name, section), read_inputs(arguments.input)
    result: Path | None = arguments.result
    entry = Entry.at(result, name, arguments.instance) if result else None
    instance = arguments.instance or (entry.name.partition("/")[2] if entry else "") or name
    digests, code = Digests(DIGESTS if entry else None), Code(CODE if entry else None)
    found = {
        role: [digest_of(path, digests, section.reads_manifests, role in section.named) for path in paths]
        for role, paths in inputs.items()
    }
    what = identity(name, instance, config, found, module, code)
    mark = fingerprint(what)
    if entry and arguments.planned and _key(what, inputs, entry.run) != entry.key:
        raise InputError(f"{entry.name}: code or files were changed since the run was planned; run it again")
    if entry:
        output, manifest = entry.data, entry.manifest
        work = arguments.work or WORK / entry.name / mark
    else:
        output, manifest = arguments.output, arguments.manifest or arguments.output / "manifest.json"
        work = arguments.work or output.with_name(f".{output.name}.work")
    return Stage(
        name=name,
        instance=instance,
        config=config,
        fingerprint=mark,
        inputs=inputs,
        work=work,
        output=output,
        manifest=manifest,
        launch=read_launch(arguments.launch),
        identity=what,
        digests=digests,
        code=code,
        entry=entry,
    )


def _key(what: dict[str, Any], inputs: dict[str, list[str]], run: Path) -> str:
    """Compute the key of a result made from `what`: of results of the same run their keys count."""

    def named(path: str, content: str) -> str:
        made = Entry.of(Path(path))
        inside = made is not None and made.run == run
        return made.mark("/".join(Path(path).relative_to(made.data).parts)) if inside else content

    keys = {role: list(map(named, inputs[role], found)) for role, found in what["inputs"].items()}
    return fingerprint(what | {"inputs": keys})


def run_stage(
    name: str, section: type[S], run: Callable[[Stage[S]], Counts], argv: list[str] | None = None
) -> None:
    """Parse the command line, run the program, publish its results; bad input: one line and exit code 2.

    A program with ranks that a signal asked to end saves its state and ends with exit code 85.
    """
    started = time.time()
    if section.has_ranks():
        catch_signals()
    arguments = parser(name, section, sys.modules[run.__module__].__doc__ or "").parse_args(argv)
    module = sys.modules[run.__module__].__spec__.name if run.__module__ == "__main__" else run.__module__
    module, stage = module.removesuffix(".__main__"), None
    key = arguments.result.parent.name if arguments.result else ""
    try:
        stage = open_stage(name, section, module, arguments)
        if section.has_ranks():
            check_device()
            minutes = float(stage.launch.get("hang_minutes", 30))
            watchdog.watch(minutes, stage.work / HANGS, stage.fingerprint)
        with held(stage.work) if stage.is_main else nullcontext():
            _run(stage, module, run, started, keep=arguments.work is not None)
    except Passing as error:
        leave(str(error), 2)
    except InputError as error:
        tries.note(key, str(error))
        leave(str(error), 2)
    except Interrupted as error:
        leave(f"{error}; state saved, run me again (exit code {AGAIN})", AGAIN)
    except Exception as error:
        if message := full_disk(error, [stage.work, stage.output.parent] if stage else [WORK]):
            tries.note(key, message)
            leave(message, 2)
        if not section.has_ranks() and not isinstance(error, MemoryError):  # it begins anew
            tries.note(key, f"{type(error).__name__}: {error}".splitlines()[0])
        if place():
            traceback.print_exc()
            leave(f"{type(error).__name__}: {error}".splitlines()[0], 1)
        raise
    if run.__module__ == "__main__" and not place():  # a rank may have to send what another waits for
        end()


def _run(stage: Stage[S], module: str, run: Callable[[Stage[S]], Counts], started: float, keep: bool) -> None:
    """Run the program; rank 0 prepares the work folder and publishes. `keep` the folder afterwards."""
    if stage.is_main:
        _open_work(stage)
    counts = run(stage)
    watchdog.enter("publish")
    if stage.is_main:
        _publish(stage, module, counts, started)
        say(_done(stage, counts, time.time() - started))
        if stage.entry:
            stage.entry.make_current()
        stage.code.save()
        if not keep:
            shutil.rmtree(stage.work, ignore_errors=True)
