"""What a result is: the hash of its section and of the bytes that it is made from.

The fingerprint of a stage instance covers

- the keys of its section that differ from their defaults, and the section's `version`: a new key whose
  default changes nothing makes nothing stale;
- the bytes of its inputs. For another stage's result these are listed in that stage's manifest, so what was
  made again with the same bytes changes nothing after it. A file of the user's counts by path and content, a
  hub id or an address by its name, the address's query only by a hash, since it may hold a secret;
- the code of the program, unless the section says that it trains a model: a comment must not retrain one.

How a stage runs (launch, threads, cluster resources) is not part of it.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pipeline.common.addresses import is_remote, public
from pipeline.common.errors import InputError
from pipeline.common.manifest import code_hash, fingerprint
from pipeline.config.section import Section

LARGE = 64 << 20  # bytes; a file above it that was never read is left to the job that reads it anyway
# These say how a stage went, hold times, and are not part of what it made.
LOGS = ("metrics.jsonl", "samples.jsonl", "tensorboard/")


class Digests:
    """SHA-256 of files, read once: a file whose size, times and inode are unchanged is not read again.

    `memory`: folder that remembers digests between processes, one small file for each; None remembers them in
    this process only.
    """

    def __init__(self, memory: Path | None = None) -> None:
        self.memory = memory
        self.seen: dict[Path, tuple[list[int], str]] = {}

    def file(self, path: Path, lazy: bool = False) -> str | None:
        """Hex digest of the file; with `lazy` None for a large file that was never read."""
        path = path.absolute()
        status = path.stat()
        state = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
        before = self.seen.get(path) or self._remembered(path)
        if before and before[0] == state:
            return before[1]
        if lazy and before is None and status.st_size > LARGE:
            return None
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from error
        self.seen[path] = (state, digest)
        self._remember(path)
        return digest

    def _place(self, path: Path) -> Path | None:
        if self.memory is None:
            return None
        name = hashlib.sha256(os.fsencode(path)).hexdigest()
        return self.memory / name[:2] / name[2:32]

    def _remembered(self, path: Path) -> tuple[list[int], str] | None:
        place = self._place(path)
        try:
            state, digest = json.loads(place.read_text()) if place else (None, None)
        except (OSError, ValueError):
            return None
        return (state, digest) if state else None

    def _remember(self, path: Path) -> None:
        place = self._place(path)
        if place is not None:
            place.parent.mkdir(parents=True, exist_ok=True)
            temporary = place.with_name(f"{place.name}.{os.getpid()}")
            temporary.write_text(json.dumps(self.seen[path]))
            temporary.replace(place)


def is_log(name: str) -> bool:
    """Whether a file of a result, by its path in it, only says how the stage went."""
    return name.startswith(LOGS)


def essence(section: BaseModel, default: BaseModel | None = None) -> dict[str, Any]:
    """The keys of a section that differ from their defaults, as JSON values, nested sections likewise."""
    found = {}
    for name, info in type(section).model_fields.items():
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


def published(path: Path) -> tuple[Path, Path] | None:
    """(data folder, manifest) of the finished result that `path` lies in; None for other files."""
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
    if not isinstance(found, dict) or not isinstance(files := found.get("files", {}), dict):
        raise InputError(f"{path}: not a manifest; delete it and run again")
    for name, file in files.items():
        if not isinstance(file, list) or [type(part) for part in file] != [int, str]:
            raise InputError(f"{path}: damaged, {name!r} needs size and digest; delete it and run again")
    return found


def read_manifest(path: Path) -> dict[str, Any]:
    """A manifest, read once for each version of it. Raises InputError that names the file."""
    return _read_manifest(path, path.stat().st_mtime_ns)


def damage(data: Path, manifest: Path, digests: Digests) -> str | None:
    """The first file of a result that is missing, cut off or changed since; None for a whole result."""
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


def digest_of(path: str, digests: Digests, manifests: bool = False, lazy: bool = False) -> str | None:
    """What identifies the input `path`: the bytes of a result, path and bytes of another file or folder, the
    name of what is not on this disk. `manifests`: a whole result is identified by its manifest. With `lazy`
    None for large files that were never read.
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
    found = [[str(file.relative_to(place)), digests.file(file, lazy)] for file in files]
    return None if any(digest is None for _, digest in found) else f"{path} {fingerprint(found)}"


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
    inputs: dict[str, list[str | None]],
    module: str,
    code: Callable[[str], str] | None = None,
) -> dict[str, Any]:
    """All that the fingerprint of an instance covers; `inputs`: digests by key, in order; `code`: `code_hash`
    with a memory.
    """
    found = {
        "stage": stage,
        "instance": instance,
        "version": section.version,
        "section": essence(section),
        "inputs": {key: inputs[key] for key in sorted(inputs)},
    }
    return found if section.trains else found | {"code": (code or code_hash)(module)}
