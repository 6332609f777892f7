"""`make bench-mathematics DATA=<folder>`: the filter of `crawl.order: math_first` on labelled real pages.

Shares of pages that the filter keeps: of mathematical pages, of pages of general collections (news, shops,
blogs: what a dump is like) and of other pages without mathematics, most of them on programming; and of texts
of five word problems of schools. Words and thresholds were chosen on the pages of half of the hosts and on
half of the word problems; `chosen on` marks their rows, the others count. The peer is the rule of a formula
in TeX alone. Copies and pages labelled `unsure` are left out.
"""

import json
import sys
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

from table import Row, data_folder, publish, row_of, use_one_core

from pipeline.config.crawl import CrawlSection
from pipeline.crawl.extract import extract_file
from pipeline.crawl.mathematics import TEX, has_mathematics
from pipeline.crawl.warc import ReadCounts
from pipeline.data.rows import read_rows
from pipeline.formulas.delimiters import FORMULA
from pipeline.intervals import share_interval

GENERAL = ("trafilatura", "magic-html", "article-extraction-benchmark", "postlight-parser", "readability")
GENERAL += ("warc-fixtures",)
PROBLEMS = ("gsm8k_train", "gsm8k_test", "mawps_asdiv_train", "svamp_test", "cmath_test", "mgsm")
WHOLE = {"gsm8k_train": False, "gsm8k_test": True, "svamp_test": True}  # files of which no half was held back
OTHER_LANGUAGES = ("de", "fr", "es", "ru", "ja")
SPOKEN = {"en": "English", "zh": "Chinese"} | dict.fromkeys(OTHER_LANGUAGES, "five more languages")
SCHOOL = 5  # problems of a text
Page = tuple[dict[str, Any], str]  # label; title and text
KINDS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "mathematical pages": lambda label: label["label"] == "math",
    "mathematical pages, English": lambda label: label["label"] == "math" and label["language"] == "en",
    "mathematical pages, Chinese": lambda label: label["label"] == "math" and label["language"] == "zh",
    "general pages": lambda label: label["label"] == "not_math" and label["source"] in GENERAL,
    "other pages": lambda label: label["label"] == "not_math" and label["source"] not in GENERAL,
}
KINDS |= {
    name: lambda label, name=name: label["label"] == name
    for name in (f"word problems, {spoken}" for spoken in dict.fromkeys(SPOKEN.values()))
}


def site(host: str) -> str:
    """What hosts of one owner have in common, such as gh.cp-algorithms.com and cp-algorithms.com."""
    return ".".join(host.removesuffix(".github.io").split(".")[-2:])


def counts(host: str) -> bool:
    """Whether a host is in the half that nothing was chosen on."""
    return blake2b(site(host).encode()).digest()[0] % 2 == 1


def labelled_pages(web: Path) -> list[Page]:
    """The labelled pages that extraction keeps, without copies."""
    labels = {row["url"]: row for row in map(json.loads, (web / "labels.jsonl").read_text().splitlines())}
    found = []
    for path in sorted(web.glob("*.warc.gz")):
        for _, document in extract_file(str(path), CrawlSection(), ReadCounts()):
            if document is not None and not labels[document.metadata["url"]]["duplicate_of"]:
                text = f"{document.metadata['title']}\n{document.text}"
                label = labels[document.metadata["url"]]
                found.append((label | {"counts": counts(label["host"])}, text))
    return found


def word_problems(bench: Path) -> list[Page]:
    """Texts of word problems; each is a host of its own, and counts if its file or its half was not read."""
    found = []
    for name in PROBLEMS:
        rows = [row for _, row in read_rows(str(bench / f"{name}.jsonl.gz"))]
        for language, spoken in SPOKEN.items():
            questions = [row["question"] for row in rows if row["lang"] == language]
            for first in range(0, len(questions) - SCHOOL + 1, SCHOOL):
                text = "\n\n".join(questions[first : first + SCHOOL])
                label = {"label": f"word problems, {spoken}", "language": language, "host": text}
                found.append((label | {"counts": WHOLE.get(name, counts(text))}, text))
    return found


def has_formula(text: str) -> bool:
    return any(TEX.search(formula[0]) for formula in FORMULA.finditer(text))


def rows(pages: list[Page]) -> list[Row]:
    """Shares kept, with 95 % intervals over hosts, and speed."""
    found = []
    for counted in (True, False):
        for kind, of_kind in KINDS.items():
            some = [page for page in pages if of_kind(page[0]) and page[0]["counts"] == counted]
            kept = [has_mathematics(text) for _, text in some]
            interval = share_interval(kept, [label["host"] for label, _ in some])
            low, high = (f"{100 * bound:.1f}" for bound in interval or (0, 1))
            plain = sum(has_formula(text) for _, text in some)
            data = f"{sum(kept)} of {len(some)} [{low}, {high}]" + ("" if counted else ", chosen on")
            shares = (100 * count / len(some) for count in (sum(kept), plain))
            found.append(row_of(f"kept of {kind}", "%", *shares, "a formula in TeX alone", data))
    started = time.process_time()
    texts = [text for label, text in pages if "url" in label]
    for text in texts:
        has_mathematics(text)
    spent = time.process_time() - started
    length = sum(map(len, texts)) / len(texts)
    data = f"{length:,.0f} characters"
    return [*found, row_of("speed", "pages/s of CPU", len(texts) / spent, data=data)]


def main() -> None:
    data = data_folder(__doc__)
    if data is None or not (data / "web/labels.jsonl").exists():
        sys.exit("usage: make bench-mathematics DATA=<folder with web/ and bench/> (docs/measured.md)")
    use_one_core()
    pages = [*labelled_pages(data / "web"), *word_problems(data / "bench")]
    publish("mathematics", rows(pages), "one used")


if __name__ == "__main__":
    main()
