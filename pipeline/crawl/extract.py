"""WARC or WET files to text pages: the first half of stage `crawl` (paper section 2.1).

Every response record becomes a page in `pages.jsonl.zst` or a rejection with a reason; `records.parquet` has
one row for each record, in the order of the files, and `ledger.jsonl` one line for each file. The paper names
no extraction method; this one keeps formulas as TeX (`text.py`) and all languages, since the paper's corpus
is multilingual.

Two forms: as a stage of the workflow (`--input warc=FILE`, may repeat), or alone (`--warc FILE --output
FOLDER`). Files of texts (`--input texts=FILE`, `text_files.py`) go the same way; nothing has to be extracted.
"""

import argparse
import errno
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from datatrove.data import Document
from webformulas.signs import Source

from pipeline.config.crawl import CrawlSection
from pipeline.core.addresses import public
from pipeline.core.data.rows import HUB, write_lines
from pipeline.core.data.shards import (
    ROWS,
    DocumentWriter,
    join_shards,
    read_batches,
    table_schema,
    write_table,
)
from pipeline.core.errors import Passing
from pipeline.core.manifest import write_json
from pipeline.core.progress import Progress
from pipeline.core.stage import Counts, InputError, Stage, run_stage
from pipeline.crawl.http_decoding import Unusable, decode_body
from pipeline.crawl.index import is_index, read_index, read_indexed_pages
from pipeline.crawl.language import detect_language
from pipeline.crawl.mathematics import has_mathematics
from pipeline.crawl.own_filters import load_filter, rejected_by
from pipeline.crawl.page_limits import MAX_PAGE_BYTES, PAGE_MEMORY, PAGE_SECONDS, run_guarded
from pipeline.crawl.rights import rights
from pipeline.crawl.sources import expand, file_name, open_source
from pipeline.crawl.text import MIN_CHARACTERS, clean, extract
from pipeline.crawl.text_decoding import decode_text, is_html
from pipeline.crawl.text_files import TextFile, brought, read_text_pages
from pipeline.crawl.warc import Page, ReadCounts, read_pages

RECORDS = table_schema(
    id=str,
    url=str,
    warc_file=str,
    offset=int,
    length=int,
    digest=str,
    http_status=pa.int32(),
    truncated=str,
    charset=str,
    language=str,
    status=str,
    reason=str,
)
PAGES_FILE, RECORDS_FILE, LEDGER = "pages.jsonl.zst", "records.parquet", "ledger.json"
BY_REASON = {"rejected": "rejected", "removed_lines": "removed_lines"}  # of the ledger, and names of counts
MAX_UNDECODED = 0.05  # share of replacement characters in the text of a page
PAGE_FIELDS = ("warc_file", "offset", "length", "digest", "http_status", "charset", "truncated")
Row = dict[str, Any]


def page_url(url: bytes | None) -> tuple[str, str]:
    """(URL, host) of a record, without the angle brackets that wget writes; bytes outside of UTF-8 are
    percent-encoded. Raises Unusable with a reason.
    """
    if not url:
        raise Unusable("no_url")
    url = url.strip().removeprefix(b"<").removesuffix(b">")
    try:
        text = url.decode()
    except UnicodeDecodeError:
        text = "".join(f"%{byte:02X}" if byte > 0x7F else chr(byte) for byte in url)
    try:
        parts = urlsplit(text)
        host = (parts.hostname or "").rstrip(".")
    except ValueError as error:
        raise Unusable("bad_url") from error
    if parts.scheme not in ("http", "https"):
        raise Unusable("not_http_url")
    if not host or "%" in host or any(character.isspace() or character < " " for character in text):
        raise Unusable("bad_url")
    return text, host


def page_text(
    page: Page, config: CrawlSection, removed: Counter[str]
) -> tuple[str, str, str, dict[str, str]]:
    """(title, text, charset, notes on rights) of a page; counts removed lines by reason. Raises Unusable."""
    if page.flaw:
        raise Unusable(page.flaw)
    if page.is_text:  # a WET file: extracted by the crawler, in UTF-8
        notes = {"licence": page.licence} if page.licence else {}
        return "", clean(page.payload.decode("utf-8", "replace")), "utf-8", notes
    if page.http_status != 200:
        raise Unusable("http_status")
    body = decode_body(page.payload, page.content_encoding, page.transfer_encoding, MAX_PAGE_BYTES)
    if not is_html(page.content_type, page.identified_type, body):
        raise Unusable("not_html")
    html, charset = decode_text(body, page.charset)
    source = Source(html, body if charset == "utf-8" else None)
    title, text = extract(source, MIN_CHARACTERS, removed)
    if text.count("\ufffd") > MAX_UNDECODED * len(text):
        raise Unusable("undecodable")
    return title, text, charset, rights(source)


def make_document(identity: str, page: Page, config: CrawlSection, removed: Counter[str]) -> Document:
    """Make the document of a page; counts removed lines by reason. Raises Unusable with a reason."""
    url, host = page_url(page.url)
    title, text, charset, notes = page_text(page, config, removed)
    (title + text).encode()  # a lone surrogate rejects this page here, instead of stopping the shard's writer
    if len(text) < MIN_CHARACTERS:
        raise Unusable("undecodable" if removed["undecodable"] else "too_short" if text else "empty")
    if config.order == "math_first" and not has_mathematics(f"{title}\n{text}"):
        raise Unusable("no_mathematics")
    metadata = {
        "url": url,
        "host": host,
        **{name: getattr(page, name) for name in PAGE_FIELDS},
        "charset": charset,
        "language": page.language or detect_language(text),
        "title": title,
        **notes,
    }
    document = Document(text, identity, metadata=metadata)
    if reason := rejected_by(document, config.filters):
        raise Unusable(reason)
    return document


def _identities(pages: Iterator[Page]) -> Iterator[tuple[str, Page]]:
    """Name each page by file and offset; records that share an offset (one gzip member) are numbered."""
    last, repeats = None, 0
    for page in pages:
        repeats = repeats + 1 if last == (page.warc_file, page.offset) else 0
        last = (page.warc_file, page.offset)
        yield f"{page.warc_file}:{page.offset}" + (f"+{repeats}" if repeats else ""), page


def _row(identity: str, page: Page, **values: Any) -> Row:
    """Make a page's row of `records.parquet`."""
    row: Row = dict.fromkeys(RECORDS.names)
    row |= {name: getattr(page, name) for name in PAGE_FIELDS}
    return row | {"id": identity, "url": (page.url or b"").decode("utf-8", "backslashreplace")} | values


def extract_page(identity: str, page: Page, config: CrawlSection) -> tuple[Row, Document | None]:
    """Make a page's row and, unless it is rejected, its document. Raises only InputError, for a filter of the
    user's, whatever the page holds.

    Beside the columns of `records.parquet` the row of a page has `removed_lines`, by reason.
    """
    removed: Counter[str] = Counter()
    try:
        document = make_document(identity, page, config, removed)
    except Unusable as error:
        reason = str(error)
    except RecursionError:
        reason = "too_deep"
    except MemoryError:
        reason = "out_of_memory"
    except InputError:  # a filter of the user's fails
        raise
    except Exception as error:
        print(f"warning: {identity}: extraction failed: {error!r}", file=sys.stderr)
        reason = "extraction_failed"
    else:
        values = {name: document.metadata[name] for name in ("url", "language", "charset")}
        return _row(identity, page, status="extracted", removed_lines=removed, **values), document
    return _row(identity, page, status="rejected", reason=reason), None


def extract_file(
    path: str, config: CrawlSection, read: ReadCounts, text: TextFile | None = None
) -> Iterator[tuple[Row, Document | None]]:
    """Yield (row, document or None) of each record of a WARC file or row of texts; adds to `read`."""
    index = read_index(path) if is_index(path) and not text else None  # it may need more memory than a page

    def pages(counts: ReadCounts) -> Iterator[tuple[str, Page]]:
        if text:
            return _identities(read_text_pages(text, MAX_PAGE_BYTES, counts))
        if index:
            return _identities(read_indexed_pages(index, config.base_url, MAX_PAGE_BYTES, counts))
        return _identities(read_pages(path, MAX_PAGE_BYTES, counts))

    def steps(skip: int) -> Iterator[Callable[[], tuple[Row, Document | None] | ReadCounts]]:
        counts = ReadCounts()
        for identity, page in islice(pages(counts), skip, None):
            yield partial(extract_page, identity, page, config)
        yield lambda: counts

    def rejected(number: int, reason: str) -> tuple[Row, None]:
        identity, page = next(islice(pages(ReadCounts()), number, None))
        return _row(identity, page, status="rejected", reason=reason), None

    for result in run_guarded(steps, rejected, PAGE_SECONDS, PAGE_MEMORY):
        if isinstance(result, ReadCounts):
            read.add(result)
        else:
            yield result


def kind_of(path: str) -> str:
    """Say what a source without any record is."""
    if is_index(path):
        return "an index that lists none"
    with open_source(path) as stream:
        start = stream.read(4)
    if not start:
        return "empty"
    return "a zip archive" if start == b"PK\x03\x04" else "another kind of file, or damaged throughout"


def extract_into(
    path: str, folder: Path, config: CrawlSection, bar: Progress, text: TextFile | None = None
) -> None:
    """Extract one file; `folder` appears when it is complete. Raises InputError that names the file."""
    if text and text.path.startswith(HUB):
        with brought(text.path, folder.parents[1] / "hub") as local:
            return extract_into(path, folder, config, bar, replace(text, path=str(local)))
    beside, read = folder.with_name(f".{folder.name}"), ReadCounts()
    shutil.rmtree(beside, ignore_errors=True)
    tally: Counter[str] = Counter()
    lines: Counter[str] = Counter()

    def rows() -> Iterator[Row]:
        for row, document in extract_file(path, config, read, text):
            if document is not None:
                writer.write(document)
            tally[row["reason"] or "extracted"] += 1
            lines.update(row.pop("removed_lines", ()))
            bar.update(1)
            yield row

    with DocumentWriter(beside / PAGES_FILE) as writer:
        responses = write_table(beside / RECORDS_FILE, rows(), RECORDS)
    if not read.records and not text:
        raise InputError(f"{public(path)}: no WARC record in it, it is {kind_of(path)}")
    if read.lost_bytes:
        lost = f"{read.lost_bytes:,} bytes unreadable, {read.breaks} breaks"
        print(f"warning: {public(path)}: {lost}", file=sys.stderr)
    line = {
        "file": text.name if text else file_name(path),
        **asdict(read),
        "responses": responses,
        "pages": tally.pop("extracted", 0),
    }
    line |= {"rejected": dict(sorted(tally.items())), "removed_lines": dict(sorted(lines.items()))}
    write_json(beside / LEDGER, line)
    beside.rename(folder)


def extract_all(
    paths: list[str], folders: list[Path], config: CrawlSection, bar: Progress, texts: Mapping[str, TextFile]
) -> list[Path]:
    """Extract the files whose folder is not there yet; returns these folders. `texts`: those that are files
    of texts, by path. A file that fails does not keep the others from being read. Raises InputError that
    names all that failed.
    """
    failed: list[str] = []
    kind: type[InputError] = InputError
    todo = [(path, folder) for path, folder in zip(paths, folders, strict=True) if not folder.exists()]
    for path, folder in todo:
        try:
            extract_into(path, folder, config, bar, texts.get(path))
            continue
        except InputError as error:
            failed.append(str(error))
            kind = Passing if isinstance(error, Passing) else kind
        except OSError as error:
            if error.errno not in (errno.EIO, errno.ESTALE):  # others are not about this file
                raise
            failed.append(f"{public(path)}: {error.strerror}")
            kind = Passing
        if len(paths) > 1:
            print(f"warning: {failed[-1]}", file=sys.stderr)
    if failed:
        kept = f"{len(failed)} of {len(paths)} files failed, the others are kept for the next run: "
        raise kind((kept if len(paths) > 1 else "") + "; ".join(failed))
    return [folder for _, folder in todo]


def run(stage: Stage[CrawlSection]) -> Counts:
    """Extract all pages of the input files; returns counts of records, pages and rejections by reason.

    Each file is extracted in a folder of its own in `stage.work`, so a job that ended early, or in which a
    file failed, goes on with the files that are missing.
    """
    texts = {path: TextFile.of(path, stage.config) for path in stage.inputs.get("texts", [])}
    paths = [*expand(stage.inputs.get("warc", []), stage.config.base_url), *texts]
    if not paths:
        raise InputError("no WARC file given: use --input warc=FILE or --warc FILE")
    for name in stage.config.filters:
        load_filter(name)
    folders = [stage.work / "files" / f"{number:06d}" for number in range(len(paths))]
    with Progress(f"crawl {stage.instance}", None, unit="page") as bar:
        read = extract_all(paths, folders, stage.config, bar, texts)
    ledger = [json.loads((folder / LEDGER).read_text()) for folder in folders]
    for path, folder, line in zip(paths, folders, ledger, strict=True):
        if path in texts:
            stage.counter("texts.rows", line["records"] * (folder in read))
        else:
            stage.counter("fastwarc.records", line["records"] * (folder in read))
            stage.counter("resiliparse.pages", line["pages"] * (folder in read))
    write_lines(stage.partial / f"{LEDGER}l", ledger)
    join_shards([folder / PAGES_FILE for folder in folders], stage.partial / PAGES_FILE)
    batches = (batch for folder in folders for batch in read_batches(folder / RECORDS_FILE, ROWS))
    rows = (row for batch in batches for row in batch.to_pylist())
    write_table(stage.partial / RECORDS_FILE, rows, RECORDS)
    sums = {key: sum(line[key] for line in ledger) for key in ledger[0] if key not in ("file", *BY_REASON)}
    for key, name in BY_REASON.items():
        found = sum((Counter(line[key]) for line in ledger), Counter[str]())
        sums |= {f"{name}_{reason.replace(' ', '_')}": count for reason, count in sorted(found.items())}
    return {"files": len(paths), **sums}


def main(argv: list[str]) -> None:
    """Run as a stage; `--warc FILE` is short for `--input warc=FILE`."""
    alone = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    alone.add_argument("--warc", action="append", default=[])
    given, words = alone.parse_known_args(argv)
    if given.warc:
        named = (f"warc={path}" for path in given.warc)
        words += ["--instance", "extract", *(word for path in named for word in ("--input", path))]
    run_stage("crawl", CrawlSection, run, words)


if __name__ == "__main__":
    main(sys.argv[1:])
