"""The generated web is repeatable, readable, complete in its kinds, and leaks only what was planted."""

import hashlib
import random
import re
from collections import Counter
from html import unescape
from pathlib import Path

import pytest
from fastwarc.warc import ArchiveIterator, WarcRecordType
from given.lines import read_lines
from given.webs import SMALL, generate

from pipeline.config.miniweb import WARC_FILES, MiniwebSection
from pipeline.core.stage import InputError
from pipeline.examples.miniweb import phrases
from pipeline.examples.miniweb.calculations import ADVANCED, SCHOOL
from pipeline.examples.miniweb.genres import is_mathematics, write_article
from pipeline.examples.miniweb.pages import article_text
from pipeline.examples.miniweb.phrases import REFERENCE, Writer, books
from pipeline.examples.miniweb.tex import parse, to_mathml, to_plain
from pipeline.examples.miniweb.world import sites

GENRES = {name for name in books() if not name.startswith(("shared", "layout"))}
GRAM = re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+")


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def web(tmp_path_factory) -> Path:
    return generate(tmp_path_factory.mktemp("web"))


@pytest.fixture(scope="module")
def labels(web) -> list[dict]:
    return read_lines(web / "labels.jsonl")


@pytest.fixture(scope="module")
def payloads(web) -> dict[str, bytes]:
    """URL -> payload, as FastWARC reads it."""
    found = {}
    for path in sorted((web / "warc").iterdir()):
        for record in ArchiveIterator(path.open("rb"), record_types=WarcRecordType.response):
            found[record.headers["WARC-Target-URI"]] = record.reader.read()
    return found


def text_of(payload: bytes, charset: str) -> list[str]:
    text = unescape(re.sub(r"<[^>]+>", " ", payload.decode(charset, "replace")))
    return GRAM.findall(text.lower())


@pytest.mark.slow
def test_equal_seeds_give_equal_bytes_and_others_do_not(web, tmp_path):
    """Also where there are texts beside the web: its pages and problems do not depend on them."""
    again = generate(tmp_path / "again", texts=2)
    texts = {"papers.jsonl", "code.jsonl", "prose.jsonl"}
    assert {name: digest for name, digest in digests(again).items() if name not in texts} == digests(web)
    assert all(len(read_lines(again / name)) == 2 for name in texts)
    other = digests(generate(tmp_path / "other", seed=1))
    assert all(
        other[name] != digest
        for name, digest in digests(web).items()
        if name.startswith(("warc/", "rl.", "test."))
    )


@pytest.mark.slow
def test_the_files_that_a_configuration_may_name_are_those_that_are_generated(web):
    made = {str(path.relative_to(web)) for path in web.rglob("*") if path.is_file()}
    assert set(MiniwebSection(**SMALL).files) == made - {"run.json", "manifest.json"}


def test_development_questions_are_like_the_tests_and_none_of_them(web):
    dev, test, rl = (
        {row["question"] for row in read_lines(web / f"{name}.jsonl")} for name in ("dev", "test", "rl")
    )
    assert len(dev) == 300 and not dev & (test | rl)
    assert {row["split"] for row in read_lines(web / "test.jsonl")} == {"test"}
    ids = [{row["id"] for row in read_lines(web / f"{name}.jsonl")} for name in ("dev", "test")]
    assert not ids[0] & ids[1]


def test_fastwarc_verifies_all_digests_and_finds_all_records(web, labels):
    kinds = Counter()
    for path in (web / "warc").iterdir():
        for record in ArchiveIterator(path.open("rb"), parse_http=False):
            kinds[record.headers["WARC-Type"]] += 1
            if record.record_type == WarcRecordType.response:
                assert record.verify_block_digest()
        for record in ArchiveIterator(path.open("rb"), record_types=WarcRecordType.response):
            assert record.verify_payload_digest()
    assert kinds == {"warcinfo": WARC_FILES, "response": len(labels)}


def test_every_kind_of_page_markup_charset_and_duplicate_occurs(labels):
    seen = {key: {label[key] for label in labels} for key in ("genre", "markup", "charset", "language")}
    assert seen["genre"] >= {*GENRES, "missing", "moved", "robots", "sitemap", "picture", "empty"}
    assert seen["markup"] == {"mathjax2", "mathjax3", "katex", "mathml", "img-latex", "plain", "none"}
    assert seen["charset"] >= {"utf-8", "gbk", "iso-8859-1"} and seen["language"] == {"en", "zh"}
    assert any(label["truncated"] for label in labels)
    pages = [
        label for label in labels if label["content_type"] == "text/html" and label["http_status"] == 200
    ]
    assert 0.2 < sum(label["http_charset"] is None for label in pages) / len(pages) < 0.8
    assert any(label["http_charset"] is None and label["meta_charset"] is None for label in pages)


def test_labels_have_the_same_fields_and_decode_with_the_charset_they_name(labels, payloads):
    assert len({tuple(sorted(label)) for label in labels}) == 1
    assert {label["label"] for label in labels} == {"math", "not_math"}
    for label in labels:
        assert label["payload_bytes"] == len(payloads[label["url"]])
        if not label["truncated"] and label["content_type"] == "text/html":
            payloads[label["url"]].decode(label["charset"])


def test_duplicates_are_what_their_labels_say(labels, payloads):
    by_url = {label["url"]: label for label in labels}
    copies = [label for label in labels if label["duplicate_of"]]
    assert {label["duplicate_kind"] for label in copies} == {"exact", "near"}
    for label in copies:
        original = by_url[label["duplicate_of"]]
        same = payloads[label["url"]] == payloads[original["url"]]
        if original["truncated"] or label["truncated"]:
            continue
        assert same == (label["duplicate_kind"] == "exact")
        assert label["label"] == original["label"]
        assert label["contaminated_by"] == original["contaminated_by"]


def test_hosts_with_few_with_many_and_with_math_under_one_path_exist(labels):
    shares = {}
    for label in labels:
        if label["http_status"] == 200 and label["content_type"] == "text/html":
            shares.setdefault(label["host"], []).append(label["label"] == "math")
    shares = [sum(found) / len(found) for found in shares.values() if len(found) > 9]
    assert any(0 < share < 0.1 for share in shares)
    assert any(0.2 < share < 0.8 for share in shares) and any(share > 0.9 for share in shares)


@pytest.mark.slow
def test_planted_items_are_verbatim_on_their_pages_and_nowhere_else(web, labels, payloads):
    items = {
        item["id"]: item
        for name in ("test", "heldout", "drill")
        for item in read_lines(web / f"{name}.jsonl")
    }
    grams, short = {}, {}
    for identity, item in items.items():
        words = GRAM.findall(item["question"].lower())
        assert len(words) >= 3
        if len(words) < 10:
            short[tuple(words)] = identity
        for start in range(len(words) - 9):
            grams.setdefault(tuple(words[start : start + 10]), set()).add(identity)
    planted, lengths = set(), {len(words) for words in short}
    for label in labels:
        words = text_of(payloads[label["url"]], label["charset"])
        runs = (tuple(words[i : i + 10]) for i in range(len(words) - 9))
        found = set().union(*(grams.get(run, ()) for run in runs))
        for n in lengths:
            found |= {
                short[run] for i in range(len(words) - n + 1) if (run := tuple(words[i : i + n])) in short
            }
        leak = label["contaminated_by"]
        assert bool(found) == bool(leak), label["url"]
        if leak:
            assert leak["id"] in found
            planted.add(leak["id"])
    kinds = Counter(identity.split("-")[1] for identity in planted)
    assert len(planted) == 30 and set(kinds) == {"test", "heldout", "drill"}
    assert {items[identity]["lang"] for identity in planted} == {"en", "zh"}


def test_no_test_item_shares_ten_words_with_training_data(web):
    grams = set()
    for name in ("test", "heldout"):
        for item in read_lines(web / f"{name}.jsonl"):
            words = GRAM.findall(item["question"].lower())
            grams |= {tuple(words[i : i + 10]) for i in range(len(words) - 9)}
    training = [example["messages"][0]["content"] for example in read_lines(web / "sft.jsonl")]
    training += [prompt["question"] for prompt in read_lines(web / "rl.jsonl")]
    for question in training:
        words = GRAM.findall(question.lower())
        assert not any(tuple(words[i : i + 10]) in grams for i in range(len(words) - 9)), question


def test_lists_name_existing_pages_and_the_seed_is_one_site(web, labels):
    by_url = {label["url"]: label for label in labels}
    seeds = (web / "seed_urls.txt").read_text().split()
    background = (web / "background_urls.txt").read_text().split()
    assert {by_url[url]["label"] for url in seeds} == {"math"}
    assert len({by_url[url]["host"] for url in seeds}) == 1
    assert len(background) > 100 and not set(seeds) & set(background)
    assert sum(by_url[url]["label"] == "math" for url in background) == round(0.01 * len(background))
    assert {by_url[url]["language"] for url in background} == {"en", "zh"}


def test_annotated_prefixes_tell_the_truth_and_reject_some(web, labels):
    header, *rows = (line.split("\t") for line in (web / "annotations.tsv").read_text().splitlines())
    assert header == ["prefix", "verdict", "annotator", "date", "evidence"]
    assert {row[1] for row in rows} == {"math", "not_math"}
    pages = [label for label in labels if label["http_status"] == 200 and label["genre"] in GENRES]
    for prefix, verdict, *_ in rows:
        under = [label for label in pages if label["url"].split("://")[1].startswith(prefix)]
        if verdict == "math":
            assert under and all(label["label"] == "math" for label in under), prefix


@pytest.mark.parametrize("make", [*ADVANCED, *SCHOOL], ids=lambda make: make.__name__)
def test_formulas_of_every_calculation_can_be_written_in_every_markup(make):
    for seed in range(20):
        calculation = make(random.Random(seed))
        for tex in (calculation.task, calculation.result, *(step[1] for step in calculation.steps)):
            tree = parse(tex)
            assert to_plain(tree) and to_mathml(tree).count("<m") > 0
            assert to_mathml(tree).count("<mrow>") == to_mathml(tree).count("</mrow>")


def test_whole_number_equations_in_solutions_are_true():
    checked = 0
    for make in (*ADVANCED, *SCHOOL):
        for seed in range(30):
            for step in make(random.Random(seed)).steps:
                text = to_plain(parse(step[1])).replace("·", "*")
                if re.fullmatch(r"[-+*()0-9/]+(=[-+*()0-9/]+)+", text):
                    values = {round(eval(side), 9) for side in text.split("=")}
                    assert len(values) == 1, text
                    checked += 1
    assert checked > 100


@pytest.mark.parametrize("genre", sorted(GENRES))
def test_no_page_shows_an_unfilled_place(genre):
    for seed in range(8):
        article = write_article(random.Random(seed), genre)
        text = article_text(article)
        assert not re.search(r"⟦|⟧|\{\w*\}", text), text
        assert not REFERENCE.search(text), text
        assert article.genre == genre and article.math == is_mathematics(genre)


def test_families_name_every_genre_and_no_other():
    families = (*sites().mathematics, *sites().elsewhere)
    assert {part.genre for family in families for part in family.parts} == GENRES
    assert sum(map(is_mathematics, GENRES)) == 11


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A package folder of its own for phrase books."""
    (tmp_path / "books").mkdir()
    (tmp_path / "books/names.yaml").write_text("shared: {town: [Saltby]}\n")
    monkeypatch.setattr(phrases, "FOLDER", tmp_path)
    books.cache_clear()
    yield tmp_path
    books.cache_clear()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("news: {title: [<@twon> today]}", r"books/press.yaml: news: symbol 'twon' is missing"),
        ("news: {title: [12]}", r"books/press.yaml: news.title.*valid string"),
        ("news: {title: [a}", r"books/press.yaml: while parsing"),
        ("news: {include: [sport], title: [a]}", r"books/press.yaml: news: there is no phrase book 'sport'"),
    ],
)
def test_a_fault_in_a_phrase_book_is_reported_with_file_and_symbol(folder, text, message):
    (folder / "books/press.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        Writer(random.Random(0), "news", {})("title")


def test_text_follows_its_references(folder):
    book = """news: {n: [<3..5>], x: [<0.5..2>], who: [a, b, c, d], same: [<@who><@who>], all: [<who*4>],
        list: ["<who^2:dash><?nobody>"], dash: "- "}"""
    (folder / "books/press.yaml").write_text(book)
    write = Writer(random.Random(0), "news", {})
    assert {write("n") for _ in range(50)} == {"3", "4", "5"}
    assert all(0.5 <= float(write("x")) <= 2 for _ in range(50))
    assert len({write("same") for _ in range(50)}) == 1
    assert sorted(write("all").split()) == ["A", "B", "C", "D"]
    assert re.fullmatch("- [a-d]\n\n- [a-d]", write("list"))
