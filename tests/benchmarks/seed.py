"""`make bench-seed`: how much of what a classifier learns from another extractor's texts is the extractor.

The paper's positives are OpenWebMath's texts; its negatives and all pages to be found come from the crawl.
Here labelled pages are extracted by this project and by others. Classifiers learn positives of one extractor
and negatives of ours, and are tested on our text of pages of hosts that they have not seen. Intervals draw
whole hosts. `told apart`: how often a classifier that learned to tell the extractors apart is right about the
two texts of one page.
"""

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from extraction import resiliparse_alone, trafilatura_alone
from numpy.typing import NDArray
from sources import generated_web
from table import Row, data_folder, larger_set, publish, row_of, start_with

from pipeline.config.corpus import CorpusSection
from pipeline.config.crawl import CrawlSection
from pipeline.corpus.classifier import NAMES, ZEROED_MEMORY, PageScorer, scaled, train
from pipeline.corpus.held_out import divide
from pipeline.corpus.measures import PRECISION, measures
from pipeline.corpus.normalise import normalise
from pipeline.corpus.training_set import LabelledPage, like_a_page
from pipeline.crawl.extract import make_document
from pipeline.crawl.http_decoding import Unusable, decode_body
from pipeline.crawl.page_limits import MAX_PAGE_BYTES
from pipeline.crawl.text_decoding import decode_text
from pipeline.crawl.warc import ReadCounts, read_pages
from pipeline.data.rows import read_rows
from pipeline.intervals import ranking_draws

FOLDS = 2
CRAWL = CrawlSection()
SECTION = CorpusSection(**(dict.fromkeys(NAMES, "auto") | {"subwords": (0, 0)}))  # none, as in the paper
Pages = list[LabelledPage]
Measured = tuple[list[float], NDArray[np.float64]]


OTHERS = {"Resiliparse": resiliparse_alone, "trafilatura": trafilatura_alone}


def read(folder: Path) -> tuple[Pages, dict[str, list[str]]]:
    """The labelled pages of a folder of WARC files and `labels.jsonl`, copies left out, as a pool has them;
    and each other extractor's texts of the mathematical ones, as a seed has them, in the same order.
    """
    labels = {row["url"]: row for _, row in read_rows(str(folder / "labels.jsonl"))}
    pages, texts = [], {name: [] for name in OTHERS}
    for path in sorted(folder.rglob("*.warc.gz")):
        for page in read_pages(str(path), MAX_PAGE_BYTES, ReadCounts()):
            row = labels.get((page.url or b"").decode())
            if row is None or row.get("duplicate_of") or row["label"] == "unsure":
                continue
            try:
                found = make_document("", page, CRAWL, Counter())
            except Unusable:
                continue
            body = decode_body(page.payload, page.content_encoding, page.transfer_encoding, MAX_PAGE_BYTES)
            html = decode_text(body, page.charset)[0]
            of_page = row["url"], found.metadata["host"], normalise(found.text), row["label"] == "math"
            pages.append(LabelledPage(*of_page, found.metadata["language"]))
            for name, extract in OTHERS.items():
                texts[name].append(like_a_page(extract(html)) if row["label"] == "math" else "")
    return pages, texts


def scored(learn: Pages, folds: list[int], work: Path, *tests: Pages) -> list[list[float]]:
    """The score of each page of each test by a classifier of the other folds' pages of `learn` (N,) that have
    a text. `folds` (N,) are also those of the first pages, in the order of a test.
    """
    scores = [[0.0] * len(test) for test in tests]
    for fold in sorted(set(folds)):
        others = [page for page, own in zip(learn, folds, strict=True) if own != fold and page.text]
        score = PageScorer(train(others, scaled(SECTION, len(others)), work / "labelled.txt"))
        for test, found in zip(tests, scores, strict=True):
            for place, page in enumerate(test):
                if folds[place] == fold:
                    found[place] = score(page.text)
    return scores


def told_apart(pages: Pages, texts: list[str], folds: list[int], work: Path) -> float:
    """The share of mathematical pages (N,) whose other text is taken for the other extractor, not ours."""
    chosen = [place for place, page in enumerate(pages) if page.math and texts[place]]
    own = [replace(pages[place], math=False) for place in chosen]
    other = [replace(pages[place], content=texts[place], url=f"{pages[place].url}#") for place in chosen]
    first, second = scored([*own, *other], [folds[place] for place in chosen] * 2, work, own, other)
    more = np.array(second) - np.array(first)
    return float(np.mean((more > 0) + (more == 0) / 2))


def judged(pages: Pages, scores: list[float]) -> tuple[list[float], NDArray[np.float64]]:
    """Average precision and recall at `PRECISION` in %, and their draws (D, 2)."""
    found = measures(pages, scores)
    values = [100 * found["average_precision"], 100 * found[f"recall_at_precision_{PRECISION}"]]
    columns = [page.math for page in pages], scores, [page.host for page in pages]
    return values, 100 * ranking_draws(*columns, PRECISION, [])


def span(draws: NDArray[np.float64]) -> str:
    return "[{:.1f}, {:.1f}]".format(*np.quantile(draws, (0.025, 0.975)))


def compared(name: str, ours: Measured, theirs: Measured, data: str) -> list[Row]:
    """The rows of an extractor; the intervals are ours, its, and that of the difference."""
    found = []
    for place, what in enumerate(("average precision", f"recall at precision {PRECISION}")):
        value, other = (values[place] for values, _ in (ours, theirs))
        draws, drawn = (draws[:, place] for _, draws in (ours, theirs))
        note = f"{span(draws)}, {span(drawn)}, {span(draws - drawn)}; {data}"
        found.append(row_of(f"{what}, positives of our text", "%", value, other, name, note, rate=True))
    return found


def rows(folder: Path, work: Path, data: str) -> list[Row]:
    """Positives of our text beside those of others, on the pages of which every extractor has a text."""
    pages, texts = read(folder)
    folds = divide(pages, FOLDS).of
    learn = [
        page if not page.math or all(given[place] for given in texts.values()) else replace(page, content="")
        for place, page in enumerate(pages)
    ]
    ours = judged(pages, *scored(learn, folds, work, pages))
    found: list[Row] = []
    for name, given in texts.items():
        other = [
            replace(page, content=text) if page.math and page.text else page
            for page, text in zip(learn, given, strict=True)
        ]
        found += compared(name, ours, judged(pages, *scored(other, folds, work, pages)), data)
        apart = 100 * told_apart(pages, given, folds, work)
        found.append(row_of(f"{name}: told apart from our text", "% (50: chance)", apart, data=data))
    return found


def main() -> None:
    start_with(ZEROED_MEMORY)
    data = data_folder(__doc__)
    with tempfile.TemporaryDirectory() as work:
        labels = larger_set(data, "web/labels.jsonl", "generated pages")
        folder = labels.parent if labels else generated_web(Path(work))
        publish("seed", rows(folder, Path(work), "real pages" if labels else "generated pages"), "one used")


if __name__ == "__main__":
    main()
