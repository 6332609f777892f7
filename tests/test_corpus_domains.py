"""Mathematical domains, what reviewed prefixes teach, and what is asked of a reviewer."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config.corpus import CorpusSection
from pipeline.core.data.database import Database, database
from pipeline.core.stage import InputError
from pipeline.corpus.candidates import add_blocked, add_pages, unmatched
from pipeline.corpus.domains import Growth, add_mathematical, growth, judge, learn
from pipeline.corpus.review_queue import differs, review_queue
from pipeline.corpus.score import SCORES
from pipeline.crawl.annotations import add_annotations
from pipeline.crawl.opted_out import OptedOut, read_urls
from pipeline.crawl.urls import normalise_url

Page = tuple[str, bool]  # URL, and whether it is kept
HEADER = "prefix\tverdict\n"
Pool = Callable[..., Database]
SHARE = CorpusSection().domain_share


def pages_of(host: str, count: int, kept: int) -> list[Page]:
    urls = (f"https://{host}/{'q' if number % 2 else 'x'}/{number}" for number in range(count))
    return [(url, number < kept) for number, url in enumerate(urls)]


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    """Opens a pool of pages, those kept first in their order, then the others, with its tables."""
    with ExitStack() as stack:

        def opened(
            pages: list[Page],
            annotations: str = "",
            opted_out: tuple[str, ...] = (),
            blocklists: tuple[Path, ...] = (),
        ) -> Database:
            columns: dict[str, list[Any]] = {name: [""] * len(pages) for name in SCORES.names}
            columns["id"] = [f"{number:04d}" for number in range(len(pages))]
            columns["url"] = [url for url, _ in pages]
            columns["key"] = [normalise_url(url) for url, _ in pages]
            columns["score"] = [float(kept) for _, kept in pages]
            columns["tie"] = columns["tokens"] = list(range(len(pages)))
            pq.write_table(pa.table(columns, SCORES), tmp_path / "scores.parquet")
            (tmp_path / "notes.tsv").write_text(HEADER + annotations)
            joins = stack.enter_context(database(tmp_path / "join", {}))
            add_pages(joins, [tmp_path / "scores.parquet"], [tmp_path / "notes.tsv"], opted_out, blocklists)
            kept = sum(kept for _, kept in pages)
            joins.execute(
                f"CREATE TABLE kept AS SELECT * FROM candidates ORDER BY score DESC, tie LIMIT {kept}"
            )
            return joins

        yield opened


def test_a_domain_needs_enough_pages_and_a_share_above_the_limit(pool: Pool) -> None:
    joins = pool([*pages_of("a", 20, 6), *pages_of("b", 20, 3), *pages_of("c", 2, 2), *pages_of("d", 20, 0)])
    plain = {domain.domain: domain.math for domain in judge(joins, SHARE)}
    assert plain == {"a": True, "b": True, "c": False}


def taught(joins: Database, *, every: bool = True, known: set[str] = frozenset()) -> Growth:
    """What the reviewed prefixes of the domains judged before teach."""
    learn(joins, every)
    return growth(joins, set(known))


REVIEWED = "a/\tmath\na/x/\tnot_math\nb/\tmath\n"


def test_reviewed_prefixes_of_mathematical_domains_teach_what_is_asked_for(pool: Pool) -> None:
    pages = [*pages_of("a", 10, 4), *pages_of("b", 10, 0), *pages_of("ab", 10, 10)]
    joins, known = pool([(url, kept and "/x/" not in url) for url, kept in pages], REVIEWED), {"a/q/5"}
    judge(joins, 0.05)
    found = taught(joins, every=False, known=known)
    assert found.seed == ["https://a/q/7", "https://a/q/9"] and not found.not_math
    found = taught(joins, known=known)
    assert found.seed == [f"https://a/q/{number}" for number in (1, 3, 7, 9)]
    assert found.not_math == [f"https://a/x/{number}" for number in (0, 2, 4, 6, 8)]
    assert found.prefixes == {"a": 4, "a/x": 5}


def test_the_review_queue_asks_about_what_may_add_most_and_shows_pages_not_kept(pool: Pool) -> None:
    pages = [*pages_of("a", 10, 4), *pages_of("big", 40, 20), *pages_of("small", 6, 3)]
    joins = pool(pages, REVIEWED)
    judge(joins, SHARE)
    queue = review_queue(joins)
    assert [(row["prefix"], row["expected"], row["kept"]) for row in queue] == [
        ("big/", 10, 20),
        ("small/", 2, 3),
    ]
    assert queue[0]["samples"] == "https://big/x/20 https://big/q/21 https://big/x/22"


def under(path: str, count: int, kept: int) -> list[Page]:
    return [(f"https://{path}/{number}", number < kept) for number in range(count)]


def queued(joins: Database) -> list[tuple[Any, ...]]:
    """(prefix, kept, pages) of the queue."""
    judge(joins, SHARE)
    return [(row["prefix"], row["kept"], row["pages"]) for row in review_queue(joins)]


def test_a_mixed_host_is_asked_about_by_the_paths_that_differ(pool: Pool) -> None:
    good, bad, rest = (
        under("mix.org/wiki/math", 80, 78),
        under("mix.org/wiki/user", 16, 1),
        [("https://mix.org/x", True)],
    )
    joins = pool(
        sorted(
            [*good, *bad, *rest, *under("even.org/a", 30, 15), *under("even.org/b", 30, 14)],
            key=lambda page: not page[1],
        )
    )
    assert queued(joins) == [
        ("even.org/", 29, 60),
        ("mix.org/wiki/math/", 78, 80),
        ("mix.org/wiki/user/", 1, 16),
        ("mix.org/", 1, 1),
    ]


@pytest.mark.slow
def test_the_queue_asks_about_a_path_inside_another_and_about_what_is_left(pool: Pool) -> None:
    parts = under("a.org/notes", 40, 38), under("a.org/notes/old/diary", 30, 0), under("a.org/shop", 30, 0)
    pages = sorted((page for part in parts for page in part), key=lambda page: not page[1])
    assert dict((row[0], row[1:]) for row in queued(pool(pages))) == {
        "a.org/notes/": (38, 40),
        "a.org/notes/old/": (0, 30),
        "a.org/shop/": (0, 30),
    }
    assert not differs(5, 10, 6, 10) and not differs(3, 5, 0, 5) and not differs(9, 9, 0, 0)
    assert not differs(5_000_000, 10_000_000, 5_500_000, 10_000_000) and differs(10, 10, 0, 10)


def test_the_queue_puts_what_is_uncertain_before_what_is_merely_large(pool: Pool) -> None:
    parts = under("sure.org/a", 300, 300), under("unsure.org/a", 40, 20), under("few.org/a", 4, 2)
    pages = sorted((page for part in parts for page in part), key=lambda page: not page[1])
    assert [row[0] for row in queued(pool(pages))] == ["unsure.org/", "few.org/", "sure.org/"]


def test_each_prefix_of_the_queue_covers_the_pages_that_it_counts(pool: Pool) -> None:
    pages = [*under("www.w.org/a", 9, 9), *under("W.org/B", 9, 9), *under("w.org:8080/x?y=1/z", 9, 9)]
    pages += under("web.archive.org/web/http://old.org/a", 9, 9)
    rows = queued(pool(pages))
    joins = pool(pages, "".join(f"{prefix}\tmath\n" for prefix, _, _ in rows))
    found = joins.execute("SELECT prefix || '/', count(*) FROM reviewed GROUP BY prefix").fetchall()
    assert sorted(found) == sorted((prefix, count) for prefix, _, count in rows)
    assert len(rows) == 4 and sum(count for _, _, count in rows) == 36


def verdicts(folder: Path, *files: str | bytes) -> list[tuple[str, str]]:
    """(prefix, verdict) as annotation files of these contents give them."""
    paths = [folder / f"{number}.tsv" for number in range(1, len(files) + 1)]
    for path, content in zip(paths, files, strict=True):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with database(folder / "join", {}) as joins:
        add_annotations(joins, "annotations", *paths)
        return joins.execute("SELECT prefix, verdict FROM annotations ORDER BY prefix").fetchall()


def test_a_half_filled_file_counts_as_far_as_it_goes_and_the_rest_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = HEADER + "a/\tmath\nb/\t\nc\nd/\t \t\n\t\n \t\t\t\n"
    assert verdicts(tmp_path, text) == [("a", "math")]
    assert f"{tmp_path / '1.tsv'}: 3 of 4 prefixes have no verdict" in capsys.readouterr().err
    assert verdicts(tmp_path, HEADER) == [] and capsys.readouterr().err == ""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_what_a_spreadsheet_saves_is_read(tmp_path: Path, encoding: str) -> None:
    text = 'prefix\tverdict\tevidence\r\na.org/数学/\tmath \t"1 of 2, more"\r\n"a.org/x,y/"\tnot_math\t\r\n'
    assert verdicts(tmp_path, text.encode(encoding)) == [("a.org/x,y", "not_math"), ("a.org/数学", "math")]


def test_of_two_annotators_who_disagree_neither_counts_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = "prefix\tverdict\tannotator\n"
    first = header + "a/\tmath\tann\na/\tmath\tbob\nb/\tmath\tann\nc/\tunsure\tann\n"
    found = verdicts(tmp_path, first, header + "https://B\tnot_math\tbob\n")
    assert found == [("a", "math"), ("b", "unsure"), ("c", "unsure")]
    assert "annotators disagree on 1 prefix: b (ann: math, bob: not_math)" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"2\.tsv: line 2: a has another verdict further up"):
        verdicts(tmp_path, first, header + "a\tnot_math\tann\n")


def test_prefixes_without_a_page_are_named_with_the_spelling_that_has_some(
    pool: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = "a/\tmath\na/q\tmath\na/x\tmath\nz.org\tmath\nwww.a/q\tmath\nb.org/c\tnot_math\n"
    joins = pool([*pages_of("a", 4, 2), ("https://www.b.org/c/1", False)], notes)
    assert unmatched(joins) == {"b.org/c": "www.b.org/c", "www.a/q": "a/q", "z.org": None}
    said = capsys.readouterr().err
    assert "match no page, 3 prefixes: b.org/c (pages are under www.b.org/c), www.a/q (" in said


@pytest.mark.slow
def test_an_unsure_verdict_leaves_pages_to_the_classifier_and_out_of_the_queue(pool: Pool) -> None:
    joins = pool(pages_of("a", 10, 4), "a/x\tunsure\n")
    assert [(domain.pages, domain.kept) for domain in judge(joins, SHARE)] == [(10, 4)]
    found = taught(joins)
    assert found.seed == found.not_math == []
    assert [(row["prefix"], row["pages"]) for row in review_queue(joins)] == [("a/", 5)]


def test_a_bad_annotation_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "notes.tsv"
    for text, message in (
        ("a/\tmath\n", "must name the columns"),
        (HEADER + "\tmath\n", "line 2: expected a prefix"),
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
    joins = pool([*rejected, *good], notes)
    domains = judge(joins, SHARE)
    assert [(domain.domain, domain.pages, domain.math) for domain in domains] == [("mix.org", 6, True)]
    found = taught(joins)
    assert len(found.seed) == 6 and len(found.not_math) == 80


def test_a_prefix_covers_whole_parts_of_the_path_and_the_longest_one_decides(pool: Pool) -> None:
    notes = "a.org/b\tmath\nhttp://A.org/b/c/\tnot_math\nwww.q.org\tmath\nold.org/http://a.org\tnot_math\n"
    urls = {
        "https://a.org/b": "a.org/b",
        "https://a.org/b/": "a.org/b",
        "HTTP://A.ORG/b?x=1#top": "a.org/b",
        "a.org/b/d": "a.org/b",
        "https://a.org/b/c/d": "a.org/b/c",
        "https://a.org/bc": None,
        "https://a.org/B": None,
        "https://old.org/http://a.org/b": "old.org/http://a.org",
        "https://www.q.org?x=1": "www.q.org",
        "https://q.org/": None,
        "https://": None,
    }
    joins = pool([(url, False) for url in urls], notes)
    found = "SELECT url, prefix FROM pages LEFT JOIN reviewed USING (id)"
    assert dict(joins.execute(found).fetchall()) == urls
    assert not joins.execute("SELECT * FROM excluded WHERE reason = 'opt_out'").fetchall()


def test_an_owner_opts_out_of_all_spellings_of_a_host_alike(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "opt_out").write_bytes(
        b"\xef\xbb\xbfa.org\r\nhttp://WWW.b.org:8080/q/\r\nold.org/http://c.org\n"
    )
    opted_out = ["http://a.org", "http://www.a.org/", "http://WWW.A.org/1", "http://a.org:80/?x", "a.org:80"]
    opted_out += ["http://b.org/q", "http://www.b.org/q?x#y", "http://old.org:80/http://c.org/1"]
    others = [
        "http://my.a.org",
        "http://b.org/p",
        "http://c.org",
        "http://b.org/q1",
        "http://",
        "http://a.orgs",
    ]
    joins = pool([(url, False) for url in opted_out + others], "", read_urls(tmp_path / "opt_out"))
    found = "SELECT url FROM pages JOIN excluded USING (id) WHERE reason = 'opt_out' ORDER BY id"
    assert [url for (url,) in joins.execute(found).fetchall()] == opted_out
    lists = OptedOut.of({"opt_out": [str(tmp_path / "opt_out")]})
    assert [url for url in opted_out + others if lists.covers(url)] == opted_out


def test_pages_that_opted_out_are_no_candidates_and_teach_nothing(pool: Pool) -> None:
    joins = pool(pages_of("a", 10, 4), "a/\tmath\n", opted_out=("https://a/q", "a/x/2"))
    domains = judge(joins, SHARE)
    assert [(domain.pages, domain.kept) for domain in domains] == [(4, 4)]
    found = taught(joins)
    assert found.seed == [f"https://a/x/{number}" for number in (0, 4, 6, 8)]


def test_what_reviewed_pages_teach_takes_no_longer_with_more_mathematical_domains(tmp_path: Path) -> None:
    pages = """SELECT 'p' || i AS id, 'https://' || key AS url, key
        FROM (SELECT i, 'h' || i || '.example/a' AS key FROM range(30000) AS numbers(i))"""
    seconds = []
    for domains in (100, 30_000):
        with database(tmp_path, {}) as joins:
            joins.execute(f"CREATE TABLE pages AS {pages}; CREATE TABLE kept (id VARCHAR)")
            joins.execute("CREATE TABLE reviewed AS SELECT id, 'p' AS prefix, 'math' AS verdict FROM pages")
            joins.execute("CREATE TABLE excluded (id VARCHAR, reason VARCHAR)")
            add_mathematical(joins, ((f"h{number}.example", 1.0) for number in range(domains)))
            started = time.process_time()
            learn(joins, True)
            seconds.append(time.process_time() - started)
            assert len(growth(joins, set()).seed) == domains
    assert seconds[1] < 1 + 5 * seconds[0]


def test_pages_of_listed_domains_and_their_subdomains_are_never_kept_and_teach_nothing(
    pool: Pool, tmp_path: Path
) -> None:
    (tmp_path / "ut1").write_text("# category\nbad.example\nAlone.example \nco.uk.example\n")
    hosts = (
        "bad.example",
        "www.bad.example",
        "a.b.bad.example:8080",
        "notbad.example",
        "alone.example",
        "good.uk",
    )
    pages = [(f"https://{host}/q/{number}", True) for host in hosts for number in range(4)]
    joins = pool(
        pages, "good.uk\tnot_math\nbad.example/q\tmath\n", ("alone.example/q/1",), (tmp_path / "ut1",)
    )
    rows = joins.execute("SELECT reason, count(*) FROM excluded GROUP BY reason ORDER BY reason").fetchall()
    assert rows == [("blocklist", 15), ("not_math", 4), ("opt_out", 1)]
    left = {host for (host,) in joins.execute("SELECT DISTINCT root(place(url)) FROM candidates").fetchall()}
    assert left == {"notbad.example"}
    opted_out = OptedOut.of({"blocklists": [str(tmp_path / "ut1")]})
    allowed = [host for host in hosts if not opted_out.covers(f"https://{host}/q")]
    assert allowed == ["notbad.example", "good.uk"]
    judge(joins, SHARE)
    assert taught(joins).seed == []
    with pytest.raises(InputError, match="nowhere: cannot be read"):
        add_blocked(joins, [tmp_path / "nowhere"])
