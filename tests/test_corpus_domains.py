"""Mathematical domains, what reviewed prefixes teach, and what is asked of a reviewer."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.common.database import Database, database
from pipeline.common.stage import InputError
from pipeline.config.corpus import CorpusSection
from pipeline.corpus.candidates import add_pages
from pipeline.corpus.convergence import keep
from pipeline.corpus.domains import judge, learn, lower_bound, review_queue
from pipeline.corpus.score import SCORES
from pipeline.crawl.annotations import add_annotations, covered
from pipeline.crawl.urls import normalise_url

Page = tuple[str, bool]  # URL, and whether it is kept
HEADER = "prefix\tverdict\n"
Pool = Callable[..., Database]


def pages_of(host: str, count: int, kept: int) -> list[Page]:
    urls = (f"https://{host}/{'q' if number % 2 else 'x'}/{number}" for number in range(count))
    return [(url, number < kept) for number, url in enumerate(urls)]


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    """Opens a pool of pages, those kept first in their order, then the others, with its tables."""
    with ExitStack() as stack:

        def opened(pages: list[Page], annotations: str = "", opted_out: tuple[str, ...] = ()) -> Database:
            columns: dict[str, list[Any]] = {name: [""] * len(pages) for name in SCORES.names}
            columns["id"] = [f"{number:04d}" for number in range(len(pages))]
            columns["url"] = [url for url, _ in pages]
            columns["key"] = [normalise_url(url) for url, _ in pages]
            columns["score"] = [float(kept) for _, kept in pages]
            columns["tie"] = columns["tokens"] = list(range(len(pages)))
            pq.write_table(pa.table(columns, SCORES), tmp_path / "scores.parquet")
            (tmp_path / "notes.tsv").write_text(HEADER + annotations)
            joins = stack.enter_context(database(tmp_path / "join", {}))
            add_pages(joins, [tmp_path / "scores.parquet"], [tmp_path / "notes.tsv"], opted_out)
            keep(joins, sum(kept for _, kept in pages))
            return joins

        yield opened


def test_a_domain_needs_a_share_that_is_surely_above_the_limit_and_enough_pages(pool: Pool) -> None:
    joins = pool([*pages_of("a", 20, 6), *pages_of("b", 20, 3), *pages_of("c", 2, 2), *pages_of("d", 20, 0)])
    math = {domain.domain: domain.math for domain in judge(joins, CorpusSection())}
    assert math == {"a": True, "b": False, "c": False}
    plain = {domain.domain: domain.math for domain in judge(joins, CorpusSection(domain_confidence=0.5))}
    assert plain == {"a": True, "b": True, "c": False}
    assert lower_bound(3, 20, 0.5) == 0.15 and lower_bound(3, 20, 0.95) < 0.1
    deep = {domain.domain for domain in judge(joins, CorpusSection(domain_depth=1)) if domain.math}
    assert deep == {"a", "a/q", "a/x"}


REVIEWED = "a/\tmath\na/x/\tnot_math\nb/\tmath\n"


def test_reviewed_prefixes_of_mathematical_domains_teach_what_is_asked_for(pool: Pool) -> None:
    pages = [*pages_of("a", 10, 4), *pages_of("b", 10, 0), *pages_of("ab", 10, 10)]
    joins, known = pool([(url, kept and "/x/" not in url) for url, kept in pages], REVIEWED), {"a/q/5"}
    judge(joins, CorpusSection(domain_share=0.05))
    growth = learn(joins, known, CorpusSection())
    assert growth.seed == ["https://a/q/7", "https://a/q/9"] and not growth.not_math
    growth = learn(joins, known, CorpusSection(reviewed="all"))
    assert growth.seed == [f"https://a/q/{number}" for number in (1, 3, 7, 9)]
    assert growth.not_math == [f"https://a/x/{number}" for number in (0, 2, 4, 6, 8)]
    assert growth.prefixes == {"a": 4, "a/x": 5}


def test_the_review_queue_asks_about_what_may_add_most_and_shows_pages_not_kept(pool: Pool) -> None:
    pages = [*pages_of("a", 10, 4), *pages_of("big", 40, 20), *pages_of("small", 6, 3)]
    joins = pool(pages, REVIEWED)
    judge(joins, CorpusSection())
    queue = review_queue(joins, CorpusSection())
    assert [(row["prefix"], row["expected"], row["kept"]) for row in queue] == [
        ("big/", 10, 20),
        ("small/", 2, 3),
    ]
    assert queue[0]["samples"] == "https://big/x/20 https://big/q/21 https://big/x/22"


def test_a_bad_annotation_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "notes.tsv"
    for text, message in (
        ("a/\tmath\n", "must name the columns"),
        (HEADER + "a/\tmaths\n", "line 2: expected a prefix"),
        (HEADER + "a/\tmath\nhttp://A\tnot_math\n", "line 3: http://A has another verdict"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message), database(tmp_path / "join", {}) as joins:
            add_annotations(joins, "annotations", path)


def test_rejected_pages_teach_and_say_nothing_about_the_rest_of_their_domain(pool: Pool) -> None:
    places = [place for place in ("mix.org/bad", "bad.org") for _ in range(40)]
    rejected = [(f"https://{place}/{number}", False) for number, place in enumerate(places)]
    good = [(f"https://mix.org/good/{number}", number < 4) for number in range(6)]
    notes = "mix.org/bad\tnot_math\nmix.org/good\tmath\nbad.org\tnot_math\n"
    joins, config = pool([*rejected, *good], notes), CorpusSection(reviewed="all")
    domains = judge(joins, config)
    assert [(domain.domain, domain.pages, domain.math) for domain in domains] == [("mix.org", 6, True)]
    growth = learn(joins, set(), config)
    assert len(growth.seed) == 6 and len(growth.not_math) == 80


def test_a_prefix_covers_whole_parts_of_the_path_and_the_longest_one_decides(pool: Pool) -> None:
    notes = "a.org/b\tmath\nhttp://A.org/b/c/\tnot_math\nwww.q.org\tmath\n"
    urls = {
        "https://a.org/b": "a.org/b",
        "https://a.org/b/": "a.org/b",
        "HTTP://A.ORG/b?x=1#top": "a.org/b",
        "a.org/b/d": "a.org/b",
        "https://a.org/b/c/d": "a.org/b/c",
        "https://a.org/bc": None,
        "https://a.org/B": None,
        "https://www.q.org?x=1": "www.q.org",
        "https://q.org/": None,
        "https://": None,
    }
    joins = pool([(url, False) for url in urls], notes)
    found = "SELECT url, prefix FROM pages LEFT JOIN reviewed USING (id)"
    assert dict(joins.execute(found).fetchall()) == urls
    assert covered("pages", "opt_out") and not joins.execute(covered("pages", "opt_out")).fetchall()


def test_pages_that_opted_out_are_no_candidates_and_teach_nothing(pool: Pool) -> None:
    joins = pool(pages_of("a", 10, 4), "a/\tmath\n", opted_out=("https://a/q", "a/x/2"))
    domains = judge(joins, CorpusSection())
    assert [(domain.pages, domain.kept) for domain in domains] == [(4, 4)]
    growth = learn(joins, set(), CorpusSection(reviewed="all"))
    assert growth.seed == [f"https://a/x/{number}" for number in (0, 4, 6, 8)]


@pytest.mark.parametrize(
    ("key", "depth", "domains"),
    [
        ("a.org", 3, ["a.org"]),
        ("a.org?x=/1", 0, ["a.org"]),
        ("a.org/b", 3, ["a.org"]),
        ("a.org/b/c/d", 0, ["a.org"]),
        ("a.org/b/c/d", 1, ["a.org", "a.org/b"]),
        ("a.org/b/c/d", 5, ["a.org", "a.org/b", "a.org/b/c"]),
    ],
)
def test_domains_of_a_page_are_its_host_and_directories(
    key: str, depth: int, domains: list[str], pool: Pool
) -> None:
    joins = pool([])
    judge(joins, CorpusSection())
    assert joins.execute("SELECT domains_of(?, ?)", [key, depth]).fetchall() == [(domains,)]
