"""`make bench-corpus`: extraction beside its peers, on real pages of `DATA=`, else on generated ones.

The same pages for all, CPU seconds of the process and its children, the best of alternating runs. The stock
path is datatrove's WarcReader, Trafilatura and FastTextClassifierFilter with their defaults and a longer time
limit, so that a busy machine loses no page.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from crawl_warcs import FILLER
from fastwarc.warc import ArchiveIterator, WarcRecordType
from given.formulas import DISPLAY, INLINE, KINDS
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import bytes_to_str, detect_encoding
from resiliparse.parse.html import HTMLTree
from table import ROOT, Row, data_folder, larger_set, publish, row_of, use_one_core
from webformulas.signs import Source, formula_words, has_formula_markup

from pipeline.config.crawl import CrawlSection
from pipeline.corpus.classifier import MATH, OTHER, ZEROED_MEMORY, PageScorer
from pipeline.corpus.normalise import normalise
from pipeline.crawl.extract import extract_file
from pipeline.crawl.text import extract
from pipeline.crawl.warc import ReadCounts

PAGES = "web/pages-00.warc.gz"
RUNS = 2
MODEL = {"lr": 0.1, "minCount": 3, "dim": 64, "wordNgrams": 3, "bucket": 200_000, "epoch": 3, "thread": 1}
TRAIN = """
import fasttext, json, sys
fasttext.train_supervised(sys.argv[1], verbose=0, **json.loads(sys.argv[2])).save_model(sys.argv[3])
"""


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of this process and its ended children."""
    before = sum(os.times()[:4])
    work()
    return sum(os.times()[:4]) - before


def fastest(works: list[Callable[[], object]]) -> list[float]:
    """CPU seconds of each, the best of alternating runs."""
    runs = [[seconds(work) for work in works] for _ in range(RUNS)]
    return [min(times) for times in zip(*runs, strict=True)]


def html_pages(path: Path) -> list[bytes]:
    with path.open("rb") as stream:
        records = ArchiveIterator(stream, record_types=WarcRecordType.response)
        return [record.reader.read() for record in records if "html" in (record.http_content_type or "")]


def decode(page: bytes) -> str:
    return bytes_to_str(page, detect_encoding(page))


def resiliparse_alone(page: str) -> str:
    return extract_plain_text(HTMLTree.parse(page), main_content=True)


def trafilatura_alone(page: str) -> str:
    import trafilatura

    return trafilatura.extract(page) or ""


def our_path(path: Path, scorer: PageScorer) -> None:
    """Read, extract, tell the language, score."""
    for _, document in extract_file(str(path), CrawlSection(), ReadCounts()):
        if document is not None:
            scorer(normalise(document.text))


def stock_path(path: Path, model: Path) -> None:
    from datatrove.pipeline.extractors import Trafilatura
    from datatrove.pipeline.filters import FastTextClassifierFilter
    from datatrove.pipeline.readers import WarcReader
    from fasttext.FastText import _FastText

    documents = WarcReader(str(path.parent), glob_pattern=path.name).run()
    documents = Trafilatura(timeout=30).run(documents)
    FastTextClassifierFilter._requires_dependencies = []  # `fasteners` guards downloads; this model is a file
    keep = [(MATH.removeprefix("__label__"), 0.5)]
    block = FastTextClassifierFilter(str(model), keep, newline_replacement=" ")
    block._model = _FastText(str(model))
    for _ in block.run(documents):
        pass


def train_model(path: Path, folder: Path) -> Path:
    """A small classifier of these pages, the same for both paths.

    fastText learns in a process of its own, because it needs zeroed memory for that.
    """
    lines = []
    for _, document in extract_file(str(path), CrawlSection(), ReadCounts()):
        if document is not None:
            lines.append(f"{MATH if '$' in document.text else OTHER} {normalise(document.text)}\n")
    (folder / "lines").write_text("".join(lines))
    arguments = [folder / "lines", json.dumps(MODEL), folder / "model.bin"]
    subprocess.run(
        [sys.executable, "-c", TRAIN, *map(str, arguments)], check=True, env=os.environ | ZEROED_MEMORY
    )
    return folder / "model.bin"


def generated_pages(folder: Path) -> Path:
    """Return a WARC file of the demo's web."""
    places = ["--work", folder / "work", "--output", folder / "web", "--manifest", folder / "manifest.json"]
    command = [sys.executable, "-m", "pipeline.examples.miniweb", *map(str, places)]
    subprocess.run(command, check=True, cwd=ROOT)
    return min(folder.glob("web/warc/*.warc.gz"))


def speed_rows(path: Path, name: str, folder: Path) -> list[Row]:
    """Pages a second of one core; `name` is that of the pages."""
    import fasttext

    pages = [decode(page) for page in html_pages(path)]
    model = train_model(path, folder)
    scorer = PageScorer(fasttext.load_model(str(model)))
    math = [page for page in pages if has_formula_markup(formula_words(Source(page)))]
    ours, alone, tier_2, alone_math = fastest(
        [
            lambda: our_path(path, scorer),
            lambda: [resiliparse_alone(page) for page in pages],
            lambda: [extract(Source(page), 100) for page in math],
            lambda: [resiliparse_alone(page) for page in math],
        ]
    )
    stock = seconds(lambda: stock_path(path, model))
    path_name, alone_name = "read + extract + language + score", "Resiliparse extraction alone"
    rows = [
        speed(path_name, len(pages), ours, stock, "datatrove WarcReader + Trafilatura + fastText"),
        speed(path_name, len(pages), ours, alone, alone_name),
        speed("extraction of pages with formulas", len(math), tier_2, alone_math, alone_name),
    ]
    return [row | {"data": name} for row in rows]


def speed(what: str, pages: int, ours: float, peer: float, name: str) -> Row:
    """A row of speeds from CPU seconds."""
    return row_of(what, "pages/s of CPU", pages / ours, pages / peer, name, rate=True)


def formula_pages() -> list[tuple[str, list[str]]]:
    """(page, what its text should hold) for each kind of markup, formulas in an order that differs."""
    generator, pages = random.Random(0), []
    for build, head in KINDS.values():
        formulas = [(tex, False) for tex in INLINE] + [(tex, True) for tex in DISPLAY]
        generator.shuffle(formulas)
        body = "".join(f"<p>Here {build(tex, shown)} is said. {FILLER}</p>" for tex, shown in formulas)
        html = (
            f"<html><head><title>Formulas</title>{head}</head><body><article>{body}</article></body></html>"
        )
        pages.append((html, [f"$${tex}$$" if shown else f"${tex}$" for tex, shown in formulas]))
    return pages


def kept(extractor: Callable[[str], str]) -> float:
    """Share of formulas whose TeX is in the text with the right delimiters (dollars or brackets), in %."""
    found = total = 0
    for html, expected in formula_pages():
        text = " ".join((extractor(html) or "").split())
        for before, after in ((r"\(", "$"), (r"\)", "$"), (r"\[", "$$"), (r"\]", "$$")):
            text = text.replace(f"{before} ", after).replace(f" {before}", after).replace(before, after)
        total += len(expected)
        found += sum(" ".join(formula.split()) in text for formula in expected)
    return 100 * found / total


def formula_rows() -> list[Row]:
    """How much TeX survives, over all kinds of markup of the golden tests."""
    from trafilatura import extract as trafilatura

    peers = {
        "Resiliparse": resiliparse_alone,
        "trafilatura 1.11": lambda page: trafilatura(page, favor_precision=True),
    }
    ours = kept(lambda page: extract(Source(page), 50)[1])
    what, data = (
        f"TeX kept with the right delimiters, {len(KINDS)} kinds of markup",
        "tests/given/formulas.py",
    )
    return [
        row_of(what, "%", ours, kept(extractor), name, f"golden formulas of {data}", rate=True)
        for name, extractor in peers.items()
    ]


def main() -> None:
    data = data_folder(__doc__)
    use_one_core()
    with tempfile.TemporaryDirectory() as folder:
        real = larger_set(data, PAGES, "generated pages")
        path = real or generated_pages(Path(folder))
        name = f"real pages ({PAGES})" if real else "generated pages"
        rows = [*formula_rows(), *speed_rows(path, name, Path(folder))]
    publish("corpus", rows, "one used")


if __name__ == "__main__":
    main()
