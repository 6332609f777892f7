"""What a result is made from, under two names.

Its **key** is known before anything runs, and its folder in the store is named after it. It covers

- the keys of its section that differ from their defaults, and the section's `version`: a new key whose
  default changes nothing makes nothing stale;
- its inputs: another instance's result by that instance's key; a file of the user's by its role and its
  bytes, wherever it lies; a hub id or an address by its name, the address's query only by a hash, since it
  may hold a secret;
- the code and the packages that decide bytes (`code.py`), unless a model is trained: no refactoring and no
  patch release may cost one. What made a model is recorded, and told where it differs.

Its **fingerprint** is known when its inputs are there. It covers the same, but other results by their bytes.
So a result that was made again with the same bytes ends the chain: what follows has a new key and a known
fingerprint, and is linked instead of made.

How a stage runs (launch, threads, cluster resources) is part of neither.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pipeline.core.addresses import is_remote, public
from pipeline.core.atomic import atomic_write
from pipeline.core.code import Code
from pipeline.core.errors import InputError
from pipeline.core.manifest import SCHEMA, fingerprint
from pipeline.core.section import Section

# These say how a stage went, hold times, and are not part of what it made.
LOGS = ("metrics.jsonl", "samples.jsonl", "tensorboard/")
LARGE = 1 << 30  # bytes: about a second of reading


class Digests:
    """SHA-256 of files, read once: a file whose size, times and inode are unchanged is not read again.

    `memory`: folder that remembers digests between processes, one small file for each; None remembers them in
    this process only. With `lazy` nothing is written there before `save` but after each `LARGE` bytes read: a
    dump on this disk takes a day.
    """

    def __init__(self, memory: Path | None = None, lazy: bool = False) -> None:
        self.memory, self.lazy = memory, lazy
        self.seen: dict[Path, tuple[list[int], str]] = {}
        self.new: list[Path] = []
        self.unsaved = 0  # bytes of the new ones

    def file(self, path: Path) -> str:
        """Hex digest of the file. Raises InputError if it cannot be read."""
        path = path.absolute()
        status = path.stat()
        state = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
        before = self.seen.get(path) or self._remembered(path)
        if before and before[0] == state:
            return before[1]
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from error
        self.seen[path] = (state, digest)
        self.new.append(path)
        self.unsaved += status.st_size
        if not self.lazy or self.unsaved >= LARGE:
            self.save()
        return digest

    def save(self) -> None:
        """Remember for later processes what was read."""
        self.unsaved = 0
        while self.memory and self.new:
            place = self._place(path := self.new.pop())
            with atomic_write(place) as partial:
                partial.write_text(json.dumps(self.seen[path]))

    def _place(self, path: Path) -> Path:
        name = hashlib.sha256(os.fsencode(path)).hexdigest()
        return Path(self.memory or "") / name[:2] / name[2:32]

    def _remembered(self, path: Path) -> tuple[list[int], str] | None:
        try:
            state, digest = json.loads(self._place(path).read_text()) if self.memory else (None, None)
        except (OSError, ValueError):
            return None
        return (state, digest) if state else None


def is_log(name: str) -> bool:
    """Whether a file of a result, by its path in it, only says how the stage went."""
    return name.startswith(LOGS)


def essence(section: BaseModel, default: BaseModel | None = None) -> dict[str, Any]:
    """Return the keys of a section that differ from their defaults, but those that only name files, as JSON
    values; nested sections likewise.
    """
    found = {}
    skipped = getattr(section, "files", ())
    for name, info in type(section).model_fields.items():
        if name in skipped:
            continue
        value = getattr(section, name)
        usual = getattr(default, name) if default else info.get_default(call_default_factory=True)
        if info.is_required() or value != usual:
            found[name] = _essence(value, usual)
    return found


def _essence(value: Any, usual: Any) -> Any:
    if isinstance(value, BaseModel):
        return essence(value, usual if type(usual) is type(value) else None)
    if isinstance(value, dict):
        return {key: _essence(item, None) for key, item in value.items()}
    return [_essence(item, None) for item in value] if isinstance(value, list | tuple) else value


def data_of(path: str) -> str:
    """Resolve the folder of a finished result or a link to it, `results/demo/rl/grpo`, to the result's data;
    other paths and names stay as they are. All commands and programs take results in this way.
    """
    data = os.path.join(path, "data")
    return data if os.path.isdir(data) and _is_ours(Path(path, "manifest.json")) else path


def published(path: Path) -> tuple[Path, Path] | None:
    """Return (data folder, manifest) of the finished result that `path` lies in; None for other files."""
    for folder in (path, *path.parents):
        if folder.name == "data" and _is_ours(folder.parent / "manifest.json"):
            return folder, folder.parent / "manifest.json"
        if _is_ours(folder / "manifest.json"):
            return folder, folder / "manifest.json"
    return None


def _is_ours(manifest: Path) -> bool:
    """Whether this is a stage's manifest, and not some other program's file of that name. Raises InputError
    for a damaged one; `run.json` beside it tells that it is ours.
    """
    if not manifest.is_file():
        return False
    try:
        found = read_manifest(manifest)
    except InputError:
        if manifest.with_name("run.json").is_file():
            raise
        return False
    return {"stage", "instance", "fingerprint", "files"} <= found.keys()


@cache
def _read_manifest(path: Path, changed: int) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
        json.dumps(found, ensure_ascii=False).encode()  # half of a surrogate pair cannot be hashed
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a manifest ({error}); delete it and run again") from error
    if not isinstance(found, dict) or not isinstance(files := found.get("files"), dict):
        raise InputError(f"{path}: not a manifest; delete it and run again")
    if found.get("schema") != SCHEMA:
        raise InputError(f"{path}: schema {found.get('schema')}, this version reads {SCHEMA}; make it again")
    for name, file in files.items():
        if not isinstance(file, list) or [type(part) for part in file] != [int, str]:
            raise InputError(f"{path}: damaged, {name!r} needs size and digest; delete it and run again")
    return found


def read_manifest(path: Path) -> dict[str, Any]:
    """Return a manifest, read once for each version of it. Raises InputError that names the file."""
    return _read_manifest(path, path.stat().st_mtime_ns)


def damage(data: Path, manifest: Path, digests: Digests) -> str | None:
    """Get the first file of a result that is missing, cut off or changed since; None for a whole result."""
    finished = manifest.stat().st_mtime_ns
    for name, (size, digest) in read_manifest(manifest).get("files", {}).items():
        path = data / name
        try:
            status = path.stat()
        except OSError:
            return f"{path} is missing"
        if status.st_size != size:
            return f"{path} has {status.st_size} bytes, not {size}"
        if status.st_mtime_ns > finished and digests.file(path) != digest:
            return f"{path} was changed"
    return None


def recorded(paths: Iterable[str]) -> dict[tuple[int, int], str]:
    """Digests of the files of the results that `paths` lie in, as their manifests list them, by device and
    inode; without files that are gone or were changed since.

    An output of a program that is a hard link of such a file of its inputs need not be read for its digest:
    it is the same file, `digest_of` has compared it with its manifest, and nobody writes into a result.
    """
    found = {}
    for data, manifest in {result for path in paths if (result := published(Path(path)))}:
        finished = manifest.stat().st_mtime_ns
        for name, (size, digest) in read_manifest(manifest)["files"].items():
            try:
                status = (data / name).stat()
            except OSError:
                continue
            if status.st_size == size and status.st_mtime_ns <= finished:
                found[status.st_dev, status.st_ino] = digest
    return found


def digest_of(path: str, digests: Digests, manifests: bool = False, named: bool = False) -> str:
    """Identify the input `path`: by the bytes of a result, of another file or of a folder's files, or by the
    name of what is not on this disk. `manifests`: a whole result is identified by its manifest. `named`: the
    name of a file counts too.
    """
    place = Path(path)
    if is_remote(path) or not place.exists():
        return _name_of(path)
    result = published(place)
    if result is not None:
        data, manifest = result
        if manifests and place == data:
            return digests.file(manifest)
        if problem := damage(data, manifest, digests):
            raise InputError(f"{problem}; {data} is a damaged result: make it again")
        return part_of(read_manifest(manifest), str(place.relative_to(data)))
    files = sorted(file for file in place.rglob("*") if file.is_file()) if place.is_dir() else [place]
    found = [[str(file.relative_to(place)), digests.file(file)] for file in files]
    return f"{place.name} {fingerprint(found)}" if named else fingerprint(found)


def _name_of(address: str) -> str:
    shown, query = public(address), address.partition("?")[2]
    return f"{shown}?{fingerprint({'query': query})[:8]}" if is_remote(address) and query else shown


def part_of(manifest: dict[str, Any], part: str) -> str:
    """Digest of a file or folder among the files that a manifest lists; `.` is the whole."""
    files = manifest["files"]
    if part in files:
        return files[part][1][:16]
    prefix = "" if part == "." else f"{part}/"
    return fingerprint({name: file for name, file in files.items() if name.startswith(prefix)})


def identity(
    stage: str,
    instance: str,
    section: Section,
    inputs: dict[str, list[str]],
    module: str,
    code: Code,
    own: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Gather what an instance's fingerprint covers or, with the keys of other results as `inputs`, its key.
    `inputs`: what identifies each, by role, in order; `own`: the section's `essence`, if it is known.
    """
    found = {
        "stage": stage,
        "instance": instance,
        "version": section.version,
        "section": essence(section) if own is None else own,
        "inputs": {role: inputs[role] for role in sorted(inputs)},
    }
    if section.trains:
        return found
    return found | {"code": code.digest(module), "packages": code.packages(module)}
