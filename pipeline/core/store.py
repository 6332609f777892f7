"""Where finished results live: each in a folder named after its key, until it is dropped.

    results/<run>/store/<stage>/<instance>/<key>/{data/, manifest.json, run.json}
    results/<run>/<stage>/<instance>    a link to today's result; missing until it is made
    results/<run>/report                a link to the data of the report
    results/<run>/tensorboard/<model>   a link to the curves of the current model, or of the one being trained

A result whose content was made before under another key is linked: its `data` is a link to that result's, and
its manifest says so (`made_as`). Nothing but the manifest says that a result is there.
"""

import errno
import os
import re
import secrets
import shutil
from pathlib import Path

from pipeline.core.errors import InputError
from pipeline.core.identity import Digests, damage, read_manifest
from pipeline.core.manifest import write_json

STORE = "store"
DATA = "data"
KEY = re.compile("[0-9a-f]{16}")
CURVES = "tensorboard"
FLAT = ("report",)  # stages whose link leads to their data
# Links beside those of the instances, which lead to one file of them; of two names one is there.
PAGES = {"decontaminate/pages": {"pages.parquet": "corpus/pages.parquet", "pages": "corpus/pages"}}


def name_of(stage: str, instance: str) -> str:
    """Name the folder of an instance under its run: `sft/instruct`, or `report` of a stage with one."""
    return stage if instance == stage else f"{stage}/{instance}"


class Entry:
    """The place of one result in a run's store."""

    def __init__(self, run: Path, name: str, key: str) -> None:
        self.run, self.name, self.key = run, name, key
        self.folder = run / STORE / name / key
        self.data = self.folder / "data"
        self.manifest = self.folder / "manifest.json"
        self.link = run / name

    @classmethod
    def at(cls, manifest: Path, stage: str, instance: str | None = None) -> "Entry":
        """Get the entry of a stage whose manifest is to stand at this path. Raises InputError if the path is
        another's, or that of another `instance`.
        """
        parts = manifest.parts
        stores = [place for place in range(len(parts) - 3) if parts[place : place + 2] == (STORE, stage)]
        start = stores[-1] if stores else 0
        entry = cls(Path(*parts[:start]), "/".join(parts[start + 1 : -2]), manifest.parent.name)
        name = entry.name if instance is None else name_of(stage, instance)
        if entry.manifest != manifest or entry.name != name or name.partition("/")[0] != stage:
            expected = f"RUN/{STORE}/{name_of(stage, instance or 'INSTANCE')}/KEY/manifest.json"
            raise InputError(f"--result {manifest}: expected {expected}")
        return entry

    @classmethod
    def of(cls, path: Path) -> "Entry | None":
        """Return the entry in whose data `path` lies; None for a path in no store."""
        parts = path.parts
        for end in reversed(range(len(parts))):  # a folder above the run may have either name too
            if parts[end] == DATA and KEY.fullmatch(parts[end - 1]) and STORE in parts[: end - 2]:
                start = end - 3 - parts[: end - 2][::-1].index(STORE)
                return cls(Path(*parts[:start]), "/".join(parts[start + 1 : end - 1]), parts[end - 1])
        return None

    def mark(self, part: str) -> str:
        """Name a part of the result, "" for all of it, as keys that cover it do."""
        return f"{self.name}@{self.key}/{part}"

    def before(self, name: str) -> "Entry":
        """Return the result of instance `name` from which this one was made, directly or not. Raises
        InputError.
        """
        pending, seen = [self], {self.name}
        while pending:
            one = pending.pop(0)
            upstream = read_manifest(one.manifest)["upstream"] if one.manifest.is_file() else {}
            if name in upstream:
                return Entry(self.run, name, upstream[name])
            pending += [Entry(self.run, each, key) for each, key in upstream.items() if each not in seen]
            seen |= upstream.keys()
        raise InputError(f"{self.folder}: was not made from {name}; make it again")

    @property
    def made(self) -> bool:
        """Whether the result is there: its manifest can be read, and its data lies beside it."""
        try:
            return bool(read_manifest(self.manifest)) and self.data.exists()
        except (InputError, OSError):
            return False

    @property
    def removed(self) -> bool:
        """Whether the result was made under this key and its manifest removed since: run.json stays."""
        return self.manifest.with_name("run.json").exists() and not self.made

    def made_since(self, moment: float) -> bool:
        """Whether the result is there and was made after `moment`, in seconds since 1970."""
        return self.made and self.manifest.stat().st_mtime > moment

    def others(self) -> list["Entry"]:
        """Return the instance's finished results under other keys, the newest first."""
        found = [
            Entry(self.run, self.name, path.parent.name)
            for path in self.folder.parent.glob("*/manifest.json")
        ]
        return sorted(
            (entry for entry in found if entry.key != self.key and entry.made),
            key=lambda entry: entry.manifest.stat().st_mtime_ns,
            reverse=True,
        )

    def same(self, fingerprint: str, digests: Digests) -> "Entry | None":
        """Find a whole result of this content under another key. None for a result that was made under this
        key and removed (its run.json stays): whoever removes a manifest wants it made again.
        """
        if self.removed:
            return None
        for entry in self.others():
            manifest = read_manifest(entry.manifest)
            if manifest["fingerprint"] == fingerprint and damage(entry.data, entry.manifest, digests) is None:
                return Entry(self.run, self.name, manifest.get("made_as", entry.key))
        return None

    def step_aside(self, again: bool) -> None:
        """Free the key for a job. A result that stays if its inputs come out the same gets another key, under
        which the job finds it; so does data that other results are linked to. `again`: it is to be made again
        in any case; run.json stays to say so.
        """
        links = [one for one in self.others() if read_manifest(one.manifest).get("made_as") == self.key]
        if not self.folder.is_dir() or (again and not links):
            return
        if self.data.is_symlink():
            shutil.rmtree(self.folder)
            return
        aside = Entry(self.run, self.name, secrets.token_hex(8))
        self.folder.rename(aside.folder)
        for one in links:
            one.data.unlink()
            one.data.symlink_to(f"../{aside.key}/data", target_is_directory=True)
            write_json(one.manifest, read_manifest(one.manifest) | {"made_as": aside.key})
        if again:
            self.folder.mkdir()
            shutil.copyfile(aside.folder / "run.json", self.folder / "run.json")

    def link_to(self, made: "Entry", upstream: dict[str, str]) -> None:
        """Let this be the result that was made under another key; `upstream`: the keys of its inputs now."""
        manifest = read_manifest(made.manifest) | {"key": self.key, "made_as": made.key, "upstream": upstream}
        partial = self.folder.with_name(f".{self.key}.{os.getpid()}")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        (partial / "data").symlink_to(f"../{made.key}/data", target_is_directory=True)
        shutil.copyfile(made.folder / "run.json", partial / "run.json")
        write_json(partial / "manifest.json", manifest)
        put_in_place(partial, self.folder)
        self.make_current()

    @property
    def linked(self) -> bool:
        """Whether the instance's link leads here."""
        return self.link.is_symlink() and os.readlink(self.link) == self._target()

    @property
    def current(self) -> "Entry | None":
        """The result that the instance's link leads to; None without a link."""
        if not self.link.is_symlink():
            return None
        place = Path(os.readlink(self.link))
        return Entry(self.run, self.name, (place.parent if self.name in FLAT else place).name)

    def _target(self) -> str:
        return os.path.relpath(self.data if self.name in FLAT else self.folder, self.link.parent)

    def make_current(self) -> None:
        """Point the instance's links here. A folder of another program in their place is renamed."""
        self.link.parent.mkdir(parents=True, exist_ok=True)
        if self.link.is_dir() and not self.link.is_symlink():
            self.link.rename(self.link.with_name(f"{self.link.name}.before-store"))
        _point(self.link, self._target())
        for file, name in PAGES.get(self.name, {}).items():
            link = self.run / name
            if (self.data / file).exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                _point(link, os.path.relpath(self.link / "data" / file, link.parent))
            else:
                link.unlink(missing_ok=True)
        if (self.data / CURVES).is_dir():
            self.show_curves(self.data / CURVES)

    def leave_others(self) -> None:
        """Remove the instance's link if it leads to another result: that is not today's any more."""
        if self.link.is_symlink() and not self.linked:
            self.link.unlink()

    def show_curves(self, folder: Path) -> None:
        """Point the model's link among the run's curves to `folder`, which TensorBoard reads."""
        link = self.run / CURVES / Path(self.name).name
        link.parent.mkdir(parents=True, exist_ok=True)
        _point(link, os.path.relpath(folder.resolve(), link.parent.resolve()))


def named(path: Path) -> Path:
    """Write a path in a store's data without the key, as if the instance's link were its place: what a result
    says of other results is then the same under all keys.
    """
    entry = Entry.of(path)
    return entry.run / entry.name / path.relative_to(entry.folder) if entry else path


def _point(link: Path, target: str) -> None:
    """Repoint the symlink `link` to `target` atomically."""
    beside = link.with_name(f".{link.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    beside.symlink_to(target)
    beside.replace(link)


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
        shutil.copytree(new, beside, symlinks=True)  # they are on different file systems
    if final.exists():
        shutil.rmtree(old, ignore_errors=True)
        final.rename(old)  # removing it takes time, and a kill would leave a part of it
    beside.rename(final)
    shutil.rmtree(old, ignore_errors=True)
