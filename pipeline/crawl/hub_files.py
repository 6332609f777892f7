"""Files of data sets of the hub as sources of texts: `hub:<owner>/<name>[:<folder>]@<revision>` stands for
those below a folder of that name, at a revision. They are read one by one, and none stays on this disk.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from pipeline.data.rows import FORMATS, HUB
from pipeline.protocol.errors import InputError, Passing
from pipeline.protocol.manifest import write_json

SOURCE = re.compile(r"hub:([\w.-]+/[\w.-]+)(?::([\w./-]+))?@([\w./-]+)")
COMMIT = re.compile(r"[0-9a-f]{40}")
LISTINGS = Path("work/hub")


class HubFile(NamedTuple):
    """A file of a data set, at a revision."""

    dataset: str
    revision: str
    path: str

    @classmethod
    def read(cls, source: str) -> "HubFile":
        """Read what `str` wrote."""
        dataset, _, rest = source.removeprefix(HUB).partition("@")
        revision, _, path = rest.partition(":")
        return cls(dataset, revision, path)

    def __str__(self) -> str:
        return f"{HUB}{self.dataset}@{self.revision}:{self.path}"


def is_pinned(source: str) -> bool:
    """Whether a source of the hub, or a file of one, names a commit, whose files never change."""
    return re.search(r"@[0-9a-f]{40}(?::|$)", source) is not None


def hub_files(source: str, pattern: str) -> list[str]:
    """List the files of texts of a source whose path in the data set matches a pattern. Raises InputError."""
    found = SOURCE.fullmatch(source)
    if found is None:
        raise InputError(f"{source}: expected hub:<owner>/<name>[:<folder>]@<revision>")
    dataset, folder, revision = found.groups()
    inside = f"/{folder}/" if folder else "/"
    paths = [path for path in _listed(dataset, revision) if path.endswith(FORMATS)]
    chosen = [path for path in paths if inside in f"/{path}" and fnmatch(path, pattern)]
    if not chosen:
        some = ", ".join(sorted({path.rpartition("/")[0] or path for path in paths})[:10])
        raise InputError(
            f"{source}: no {', '.join(FORMATS)} file there like {pattern}; there are: {some}"[:500]
        )
    return [str(HubFile(dataset, revision, path)) for path in chosen]


def _listed(dataset: str, revision: str) -> list[str]:
    """List the paths of a data set, in order; those of a commit are asked for once."""
    note = LISTINGS / f"{dataset.replace('/', '--')}@{revision}.json"
    if COMMIT.fullmatch(revision) and note.exists():
        return json.loads(note.read_text())
    from huggingface_hub import HfApi  # a second to import

    try:
        paths = sorted(HfApi().list_repo_files(dataset, repo_type="dataset", revision=revision))
    except Exception as error:  # the library raises many kinds; all mean that the list is not available
        raise InputError(
            f"hub:{dataset}@{revision}: cannot be listed ({type(error).__name__}: {error})"
        ) from error
    if COMMIT.fullmatch(revision):
        write_json(note, paths)
    return paths


@contextmanager
def brought(source: str, folder: Path) -> Iterator[Path]:
    """Bring a file of the hub into a folder while the block runs; what a killed download left goes on.
    Raises InputError, or Passing where another try may help.
    """
    from huggingface_hub import errors, hf_hub_download

    refused = (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.EntryNotFoundError)
    dataset, revision, path = HubFile.read(source)
    try:
        found = hf_hub_download(dataset, path, repo_type="dataset", revision=revision, local_dir=folder)
    except Exception as error:
        gone = isinstance(error, refused) and not isinstance(error, errors.LocalEntryNotFoundError)  # offline
        kind = InputError if gone else Passing
        raise kind(f"{source}: cannot be downloaded ({type(error).__name__}: {error})") from error
    yield Path(found)
    Path(found).unlink()
