"""How every stage program starts and ends: arguments, work folder, atomic publication, manifest last.

A program resumes from `Stage.work`, which survives failures, writes its results to `Stage.partial`, and
returns its counts. `run_stage` then renames `partial` to its final place and writes the manifest, so that a
manifest means a complete result.
"""

import argparse
import errno
import hashlib
import json
import os
import platform
import re
import resource
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from pipeline.common.manifest import code_hash, fingerprint, package_versions, write_json
from pipeline.config.section import Section

S = TypeVar("S", bound=Section)
FULL_DISK_BYTES = 1 << 16
BLOCKS, BLOCK = 16, 1 << 15  # how many, and bytes of each, tell a file from another
NUMBERED = re.compile(r"(.*-)(\d{4})((?:/.*)?)")
RANGE = re.compile(r"\[(\d{4})-(\d{4})\]")
Counts = dict[str, int | float | str]


class InputError(Exception):
    """Bad input or configuration. One line: which file, key or record, what is wrong, what to do."""


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

    @property
    def partial(self) -> Path:
        """Folder for final outputs, renamed to `output` when the program has returned."""
        return self.work / "partial"

    @property
    def is_main(self) -> bool:
        """Whether this process is rank 0, the one that publishes."""
        return os.environ.get("RANK", "0") == "0"

    def input(self, name: str) -> Path:
        """The one path given as `--input name=path`; it must exist."""
        paths = self.inputs.get(name, [])
        if len(paths) != 1:
            raise InputError(f"--input {name}: expected one path, got {len(paths)}")
        path = Path(paths[0])
        if not path.exists():
            raise InputError(f"{path}: not found (input {name!r} of {self.name} {self.instance})")
        return path

    def counter(self, name: str, amount: int = 1) -> None:
        """Add to a counter of work really done by a component, e.g. `vllm.tokens`; it ends in `run.json`."""
        self.counters[name] += int(amount)


def parser(stage: str, section: type[Section], about: str = "") -> argparse.ArgumentParser:
    """The command line that all stage programs share; `about`: what this one does, reads and writes."""
    keys = "\n".join(f"  {name}: {info.description}" for name, info in section.model_fields.items())
    parser = argparse.ArgumentParser(
        description=f"One instance of stage {stage!r}.\n\n{about}",
        epilog=f"keys of --config (JSON):\n{keys}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--instance", default=stage, help="name of this instance, e.g. a model's name")
    parser.add_argument("--config", default="{}", help="the section as JSON, or @FILE")
    parser.add_argument(
        "--fingerprint", default="unnamed", help="identity of section and upstream; names nothing else"
    )
    parser.add_argument(
        "--input", action="append", default=[], metavar="KEY=PATH", help="an input; may repeat"
    )
    parser.add_argument("--output", type=Path, required=True, help="final folder; appears only when complete")
    parser.add_argument(
        "--work",
        type=Path,
        help="folder for checkpoints; survives failures; default: a sibling of the output",
    )
    parser.add_argument(
        "--manifest", type=Path, help="manifest, written last; default: manifest.json in the output"
    )
    parser.add_argument(
        "--launch", default="{}", help="JSON: how it runs (threads, micro-batch, ...), never what it is"
    )
    return parser


def _read_config(text: str, stage: str, section: type[S]) -> S:
    try:
        values = json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
        return section.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join([stage, *map(str, first["loc"])])
        raise InputError(f"config key {where}: {first['msg']} (got {first.get('input')!r})") from error
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"--config: {error}") from error


def pack(pairs: list[tuple[str, str]]) -> list[str]:
    """`KEY=PATH` words for `--input`; paths that only count on (`x-0000/data`, `x-0001/data`, ...) make one
    word, `x-[0000-0001]/data`: a command line has room for some thousand shards only.
    """
    words: list[str] = []
    rows: list[tuple[str, str, str, str]] = []  # key, before the number, number, after it
    for key, path in pairs:
        match = NUMBERED.fullmatch(path)
        row = (key, *match.groups()) if match else (key, path, "", "")
        if rows and match and _follows(rows[-1], row):
            words.pop()
            first = rows[0][2]
            words.append(f"{key}={row[1]}[{first}-{row[2]}]{row[3]}")
            rows.append(row)
        else:
            words.append(f"{key}={path}")
            rows = [row]
    return words


def _follows(one: tuple[str, str, str, str], other: tuple[str, str, str, str]) -> bool:
    same = (one[0], one[1], one[3]) == (other[0], other[1], other[3])
    return same and len(one[2]) == len(other[2]) > 0 and int(other[2]) == int(one[2]) + 1


def unpack(path: str) -> list[str]:
    """The paths that `pack` made one of."""
    match = RANGE.search(path)
    if match is None:
        return [path]
    numbers = range(int(match[1]), int(match[2]) + 1)
    return [f"{path[: match.start()]}{n:0{len(match[1])}d}{path[match.end() :]}" for n in numbers]


def _read_inputs(pairs: list[str]) -> dict[str, list[str]]:
    inputs: dict[str, list[str]] = {}
    for pair in pairs:
        name, separator, path = pair.partition("=")
        if not separator:
            raise InputError(f"--input {pair}: expected KEY=PATH")
        inputs.setdefault(name, []).extend(unpack(path))
    return inputs


def _upstream(inputs: dict[str, list[str]]) -> dict[str, str]:
    """Fingerprints of the inputs that are other stages' results."""
    found = {}
    for path in sorted({path for paths in inputs.values() for path in paths}):
        for folder in Path(path).parents:
            if folder.name == "data" or Path(path).name == "data":
                base = Path(path).parent if Path(path).name == "data" else folder.parent
                if (base / "manifest.json").exists():
                    manifest = json.loads((base / "manifest.json").read_text())
                    found[f"{manifest['stage']}/{manifest['instance']}"] = manifest["fingerprint"]
                break
    return found


def _state(file: Path) -> str:
    """A file's size and a hash of blocks spread over it; of all of a small one. Raises InputError."""
    found = hashlib.sha256()
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            for start in sorted({place * max(0, size - BLOCK) // (BLOCKS - 1) for place in range(BLOCKS)}):
                stream.seek(start)
                found.update(stream.read(BLOCK))
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror})") from error
    return f"{size} {found.hexdigest()[:16]}"


def _origin(inputs: dict[str, list[str]]) -> dict[str, str]:
    """The state of each input that is here, a folder's being that of its files."""
    found = {}
    for path in sorted({Path(path) for paths in inputs.values() for path in paths}):
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        states = [[file.name, _state(file)] for file in files if file.is_file()]
        if states:
            found[str(path)] = fingerprint(states)
    return found


def _open_work(stage: Stage[Any]) -> None:
    """Make the work folder ready. What was begun with other inputs is given up: the fingerprint does not see
    that code edited since made the same upstream result anew. A folder that holds other things is let be.
    """
    note, origin = stage.work / "origin.json", _origin(stage.inputs)
    if note.exists() and (before := json.loads(note.read_text())) != origin:
        changed = sorted({name for name, _ in before.items() ^ origin.items()})
        print(f"{stage.work}: begun anew, {changed[0]} is not what it was", file=sys.stderr, flush=True)
        shutil.rmtree(stage.work)
    if not stage.work.exists() or note.exists() or not any(stage.work.iterdir()):
        stage.work.mkdir(parents=True, exist_ok=True)
        write_json(note, origin)
    shutil.rmtree(stage.partial, ignore_errors=True)
    stage.partial.mkdir(parents=True)


def put_in_place(new: Path, final: Path) -> None:
    """Give the finished folder `new` the name `final`, whatever stood there. Killed at any moment, there is
    the old folder, none or the new one under that name, never a part of one.
    """
    old, beside = (final.with_name(f".{final.name}.{name}") for name in ("old", "new"))
    shutil.rmtree(beside, ignore_errors=True)
    try:
        new.rename(beside)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copytree(new, beside)  # they are on different file systems
    if final.exists():
        shutil.rmtree(old, ignore_errors=True)
        final.rename(old)  # a removal takes its time, and would leave a part if it were killed
    beside.rename(final)
    shutil.rmtree(old, ignore_errors=True)


def _publish(stage: Stage[Any], module: str, counts: Counts, started: float) -> None:
    """Rename the finished files to their place, then write `run.json` and, last, the manifest. A manifest
    that belongs into the output is written before that gets its name.
    """
    stage.manifest.unlink(missing_ok=True)
    inside = stage.manifest.parent == stage.output
    if inside:
        _describe(stage, stage.partial / stage.manifest.name, module, counts, started)
    stage.output.parent.mkdir(parents=True, exist_ok=True)
    stage.manifest.parent.mkdir(parents=True, exist_ok=True)
    put_in_place(stage.partial, stage.output)
    if not inside:
        _describe(stage, stage.manifest, module, counts, started)


def _describe(stage: Stage[Any], manifest: Path, module: str, counts: Counts, started: float) -> None:
    """Write `run.json` and then, beside it, the manifest."""
    usage = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    write_json(
        manifest.with_name("run.json"),
        {
            "started": started,
            "seconds": round(time.time() - started, 3),
            "host": platform.node(),
            "cores": len(os.sched_getaffinity(0)),
            "peak_rss_mb": usage // 1024,
            "launch": stage.launch,
            "counters": dict(stage.counters),
        },
    )
    write_json(
        manifest,
        {
            "stage": stage.name,
            "instance": stage.instance,
            "fingerprint": stage.fingerprint,
            "config": stage.config.model_dump(mode="json"),
            "upstream": _upstream(stage.inputs),
            "module": module,
            "code": code_hash(module),
            "packages": package_versions(),
            "counts": counts,
        },
    )


def _fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr, flush=True)
    sys.exit(2)


def _fail_if_disk_is_full(error: Exception, folders: list[Path]) -> None:
    """Libraries report a full disk in many ways; what they have in common is the full disk."""
    for folder in folders:
        existing = next(path for path in [folder, *folder.absolute().parents] if path.exists())
        full = shutil.disk_usage(existing).free < FULL_DISK_BYTES
        if full or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
            where = getattr(error, "filename", None) or folder
            _fail(f"{where}: no space left on this disk; free some and run again")


def run_stage(
    name: str, section: type[S], run: Callable[[Stage[S]], Counts], argv: list[str] | None = None
) -> None:
    """Parse the command line, run the program, publish its results; bad input: one line and exit code 2."""
    started = time.time()
    arguments = parser(name, section, sys.modules[run.__module__].__doc__ or "").parse_args(argv)
    output = arguments.output
    module = sys.modules[run.__module__].__spec__.name if run.__module__ == "__main__" else run.__module__
    try:
        stage = Stage(
            name=name,
            instance=arguments.instance,
            config=_read_config(arguments.config, name, section),
            fingerprint=arguments.fingerprint,
            inputs=_read_inputs(arguments.input),
            work=arguments.work or output.with_name(f".{output.name}.work"),
            output=output,
            manifest=arguments.manifest or output / "manifest.json",
            launch=json.loads(arguments.launch),
        )
        if stage.is_main:
            _open_work(stage)
        counts = run(stage)
        if stage.is_main:
            _publish(stage, module.removesuffix(".__main__"), counts, started)
            if arguments.work is None:
                shutil.rmtree(stage.work, ignore_errors=True)
    except InputError as error:
        _fail(str(error))
    except Exception as error:
        _fail_if_disk_is_full(error, [arguments.work or output.parent, output.parent])
        raise
