"""The study that decides which loop is shipped: its second labelled set, and what its loops learn."""

import json
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from conftest import ROOT

from pipeline.data.rows import read_rows
from pipeline.miniweb.warc import Response, write_warc

sys.path[:0] = [str(ROOT / "bench")]
import second_set  # noqa: E402
import study  # noqa: E402

SHARED = ROOT.parent / "shared/data/web/labels.jsonl"
MATH = "theorem proof lemma integral let x be prime number equation group matrix".split()  # noqa: SIM905
NEWS = "minister said market rain goal team price police city music film summer".split()  # noqa: SIM905


def packages() -> list[dict]:
    return [row for _, row in read_rows(str(second_set.LABELS))]


def hosts(label: str) -> Counter[str]:
    """Labelled pages by host."""
    found: Counter[str] = Counter()
    for row in packages():
        found[urlsplit(row["address"]).netloc] += sum(map(len, row["pages"].get(label, {}).values()))
    return +found


def test_the_second_set_has_enough_pages_of_both_classes_on_enough_hosts() -> None:
    math, other = hosts("math"), hosts("not_math")
    assert (math.total() >= 150, len(math) >= 15) == (True, True)
    assert (math.total() + other.total() >= 400, len(other) >= 20) == (True, True)


@pytest.mark.skipif(not SHARED.exists(), reason="the shared pages are not here")
def test_the_second_set_has_no_host_of_the_first() -> None:
    first = {json.loads(line)["host"] for line in SHARED.read_text().splitlines()}
    assert first.isdisjoint(urlsplit(row["address"]).netloc for row in packages())


def write_pages(folder: Path) -> None:
    """Six mathematical hosts and six others, of six pages each, as `make real` reads them; the first of
    either are the lists, and all others are reviewed.
    """
    lists: dict[str, list[str]] = {"math": [], "not_math": []}
    responses, labels, reviews = [], [], ["prefix\tverdict"]
    for number in range(12):
        label, words = (("math", MATH), ("not_math", NEWS))[number % 2]
        host = f"host{number}.example"
        for page in range(6):
            text = " ".join(words[(page + place * (number + 1)) % len(words)] for place in range(90))
            html = f"<html><body><article><p>{text}</p></article></body></html>".encode()
            url = f"https://{host}/{page}"
            responses.append(
                Response(
                    url, 200, (("Content-Type", "text/html"),), html, "2025-06-01T00:00:00Z", "192.0.2.1"
                )
            )
            labels.append(json.dumps({"url": url, "label": label}))
            if number < 2:
                lists[label].append(url)
        if number >= 2:
            reviews.append(f"{host}/\t{label}")
    write_warc(folder / "pages.warc.gz", responses, "2025-06-01T00:00:00Z", neighbours=False)
    for name, lines in (
        ("labels.jsonl", labels),
        ("annotations.tsv", reviews),
        ("seed_urls.txt", lists["math"]),
        ("background_urls.txt", lists["not_math"]),
    ):
        (folder / name).write_text("".join(f"{line}\n" for line in lines))


def test_a_page_whose_copy_is_in_the_seed_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    write_pages(tmp_path)
    copy = {"url": "https://copy.example/", "label": "math", "duplicate_of": "https://host2.example/0"}
    for name, line in (("labels.jsonl", json.dumps(copy)), ("seed_urls.txt", copy["url"])):
        with (tmp_path / name).open("a") as file:
            file.write(f"{line}\n")
    counted = {page.url for page in study.Loops(tmp_path, tmp_path / "work").pages}
    assert len(counted) == 59 and copy["duplicate_of"] not in counted


@pytest.mark.slow
def test_a_fold_is_measured_by_a_loop_that_learned_no_page_of_its_hosts(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    write_pages(tmp_path)
    loops = study.Loops(tmp_path, tmp_path / "work")
    found = loops.loop(study.PAPER, 0)
    own = {page.host for page in loops.of(0)}
    learned = {urlsplit(url).netloc for url in found.trained}
    assert own and own.isdisjoint(learned)
    assert len(learned) > 2, "reviews of the other hosts are learned"
    assert {page.url for page in loops.of(0) if page.is_math} <= found.kept
