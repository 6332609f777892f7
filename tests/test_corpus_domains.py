"""Mathematical domains, what reviewed prefixes teach, and what is asked of a reviewer."""

from pathlib import Path

import pytest

from pipeline.common.stage import InputError
from pipeline.config.corpus import CorpusSection
from pipeline.corpus.annotations import read_annotations
from pipeline.corpus.domains import PoolPage, judge, learn, lower_bound, review_queue


def pages_of(host: str, count: int, kept: int) -> list[PoolPage]:
    keys = [f"{host}/{'q' if number % 2 else 'x'}/{number}" for number in range(count)]
    return [PoolPage(f"https://{key}", key, number < kept) for number, key in enumerate(keys)]


def test_a_domain_needs_a_share_that_is_surely_above_the_limit_and_enough_pages() -> None:
    pages = [*pages_of("a", 20, 6), *pages_of("b", 20, 3), *pages_of("c", 2, 2), *pages_of("d", 20, 0)]
    math = {domain.domain: domain.math for domain in judge(pages, CorpusSection())}
    assert math == {"a": True, "b": False, "c": False}
    plain = {domain.domain: domain.math for domain in judge(pages, CorpusSection(domain_confidence=0.5))}
    assert plain == {"a": True, "b": True, "c": False}
    assert lower_bound(3, 20, 0.5) == 0.15 and lower_bound(3, 20, 0.95) < 0.1
    deep = {domain.domain for domain in judge(pages, CorpusSection(domain_depth=1)) if domain.math}
    assert deep == {"a", "a/q", "a/x"}


@pytest.fixture
def reviewed(tmp_path: Path) -> Path:
    (tmp_path / "notes.tsv").write_text("prefix\tverdict\na/\tmath\na/x/\tnot_math\nb/\tmath\n")
    return tmp_path / "notes.tsv"


def test_reviewed_prefixes_of_mathematical_domains_teach_what_is_asked_for(reviewed: Path) -> None:
    pages = [*pages_of("a", 10, 4), *pages_of("b", 10, 0), *pages_of("ab", 10, 10)]
    domains, notes = judge(pages, CorpusSection()), read_annotations(reviewed)
    known = {"a/q/5"}
    growth = learn(pages, domains, notes, known, CorpusSection())
    assert growth.seed == ["https://a/q/7", "https://a/q/9"] and not growth.not_math
    growth = learn(pages, domains, notes, known, CorpusSection(reviewed="all"))
    assert growth.seed == [f"https://a/q/{number}" for number in (1, 3, 7, 9)]
    assert growth.not_math == [f"https://a/x/{number}" for number in (0, 2, 4, 6, 8)]


def test_the_review_queue_asks_about_what_may_add_most_and_shows_pages_not_kept(reviewed: Path) -> None:
    pages = [*pages_of("a", 10, 4), *pages_of("big", 40, 20), *pages_of("small", 6, 3)]
    queue = review_queue(pages, judge(pages, CorpusSection()), read_annotations(reviewed), 0)
    assert [(row["prefix"], row["expected"], row["kept"]) for row in queue] == [
        ("big/", 10, 20),
        ("small/", 2, 3),
    ]
    assert str(queue[0]["samples"]).startswith("https://big/x/20 ")


def test_a_bad_annotation_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "notes.tsv"
    for text, message in (
        ("a/\tmath\n", "must name the columns"),
        ("prefix\tverdict\na/\tmaths\n", "line 2: expected a prefix"),
        ("prefix\tverdict\na/\tmath\na/\tnot_math\n", "line 3: a/ has another verdict"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_annotations(path)


def test_rejected_pages_teach_and_say_nothing_about_the_rest_of_their_domain(tmp_path: Path) -> None:
    path = tmp_path / "annotations.tsv"
    path.write_text("prefix\tverdict\nmix.org/bad\tnot_math\nmix.org/good\tmath\nbad.org\tnot_math\n")
    rejected = [
        PoolPage(f"https://{place}/{n}", f"{place}/{n}", False, rejected=True)
        for place in ("mix.org/bad", "bad.org")
        for n in range(40)
    ]
    good = [PoolPage(f"https://mix.org/good/{n}", f"mix.org/good/{n}", n < 4) for n in range(6)]
    config = CorpusSection(reviewed="all")
    domains = judge([*rejected, *good], config)
    assert [(domain.domain, domain.pages, domain.math) for domain in domains] == [("mix.org", 6, True)]
    growth = learn([*rejected, *good], domains, read_annotations(path), set(), config)
    assert len(growth.seed) == 6 and len(growth.not_math) == 80
