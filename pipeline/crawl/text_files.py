"""Read files of texts as pages: Parquet or JSON lines whose rows have a text and mostly a URL (ours: FineWeb,
OpenWebMath or an extraction of one's own enters the corpus without WARC files).

A row is to such a file what a record is to a WARC file: it becomes a page or a rejection with a reason, and
its number, from 0, is its place.

`hub:<owner>/<name>[:<folder>]@<revision>` stands for the files of a data set of the hub below a folder of
that name, at a revision. They are read one by one, and none stays on this disk.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple, Self

from pipeline.config.crawl import CrawlSection
from pipeline.core.data.rows import FORMATS, HUB, read_rows_and_flaws
from pipeline.core.errors import InputError, Passing
from pipeline.core.manifest import fingerprint, write_json
from pipeline.crawl.sources import file_name
from pipeline.crawl.urls import NO_HOST
from pipeline.crawl.warc import Page, ReadCounts, digest_of

SOURCE = re.compile(r"hub:([\w.-]+/[\w.-]+)(?::([\w./-]+))?@([\w./-]+)")
COMMIT = re.compile(r"[0-9a-f]{40}")
LISTINGS = Path("work/hub")
COLUMNS = {"text": "text", "url": "url"}  # unless they are given
# Reasons for rejected rows.
NO_TEXT, BAD_TYPE, REPEATED_ID, BAD_ROW = "no_text", "bad_type", "repeated_id", "bad_row"


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


@dataclass(frozen=True)
class TextFile:
    """A file of texts: where it lies, what lineage calls it, its columns, the licence of its texts."""

    path: str
    name: str
    fields: Mapping[str, str]
    licence: str | None = None

    @classmethod
    def of(cls, path: str, config: CrawlSection) -> Self:
        """Describe a file of the one named source of a section, before whose name lineage has the source's,
        or of one that has no name.
        """
        for name, source in config.text_sources.items() if isinstance(config.texts, dict) else ():
            return cls(path, f"{name}/{lineage_name(path)}", source.fields or config.fields, source.licence)
        return cls(path, file_name(path), config.fields)


def lineage_name(path: str) -> str:
    """Name a file as lineage does, but for its source: by its path in a data set, where names repeat."""
    return HubFile.read(path).path.replace("/", "_") if path.startswith(HUB) else file_name(path)


def read_text_pages(file: TextFile, max_bytes: int, counts: ReadCounts) -> Iterator[Page]:
    """Yield the rows of a file in order, and count them; a text of more than `max_bytes` is rejected.

    Raises InputError that names the file and the column where the first row lacks a column; warns of a file
    without any URL.
    """
    columns, seen = COLUMNS | dict(file.fields), set[str | int]()
    has_urls, found = False, list[str]()
    for number, (place, row) in enumerate(read_rows_and_flaws(file.path)):
        counts.records += 1
        if isinstance(row, InputError):
            url = f"https://{number}.{fingerprint({'file': file.name})}{NO_HOST}/".encode()
            yield Page(url, file.name, number, 0, "", b"", is_text=True, flaw=BAD_ROW, licence=file.licence)
            continue
        if not found:
            found = list(row)
            _check_columns(place, row, columns, file.fields)
        values = {key: row.get(column) for key, column in columns.items()}
        has_urls |= columns["url"] in row
        if values["url"] in (None, ""):  # a host for each such row: it is no page of a known site
            values["url"] = f"https://{number}.{fingerprint({'file': file.name})}{NO_HOST}/"
        url, flaw = str(values["url"]).encode(), _flaw(values, seen)
        page = Page(url, file.name, number, 0, "", b"", is_text=True, flaw=flaw, licence=file.licence)
        if page.flaw is None:
            page.payload = values["text"].encode()
            page.digest = digest_of(page.payload)
            page.language = values.get("language")
            page.flaw = "too_large" if len(page.payload) > max_bytes else None
        yield page
    if found and not has_urls:
        told = f"no column {columns['url']}: its pages have no domain; it has {', '.join(found)}"[:500]
        print(f"warning: {file.path}: {told}", file=sys.stderr)


def _check_columns(
    place: str, row: dict[str, Any], columns: dict[str, str], given: Mapping[str, str]
) -> None:
    for key, column in columns.items():
        if column not in row and (key != "url" or key in given):
            found = ", ".join(row)
            raise InputError(f"{place}: no column {column!r} (crawl.fields.{key}); it has {found}"[:500])


def _flaw(values: dict[str, Any], seen: set[str | int]) -> str | None:
    """Say why a row is no page, if it is none; `seen`: the ids before it, to which its own is added."""
    if values["text"] is None:
        return NO_TEXT
    identity, language = values.get("id"), values.get("language")
    if not isinstance(values["text"], str) or not isinstance(language, str | None):
        return BAD_TYPE
    if not isinstance(identity, str | int | None):
        return BAD_TYPE
    if identity in seen:
        return REPEATED_ID
    if identity is not None:
        seen.add(identity)
    return None
