"""Deduplication: which URLs are one page, which texts are one text, who survives, and that runs repeat."""

import errno
import hashlib
import json
import os
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from crawl_warcs import WEB, extract_into
from deduplication import deduplicate_into, run_program, write_pages
from given.cases import cases
from killing import survives_loss_and_kills

from pipeline.config.crawl import CrawlSection
from pipeline.core.data.shards import read_documents, read_table, tables
from pipeline.core.identity import Digests, damage
from pipeline.core.stage import run_stage
from pipeline.crawl import buckets, exact, sign, survivors
from pipeline.crawl import dedup as dedup_program
from pipeline.crawl.signatures import ABSENT, MinHasher
from pipeline.crawl.urls import normalise_url

TABLES = cases("urls")
WORDS = [f"word{number}" for number in range(5000)]


def text(start, words=200, changed=0):
    """`words` words, the last `changed` of them different from those of any other text."""
    return " ".join(WORDS[start : start + words - changed] + [f"other{start}x{n}" for n in range(changed)])


def dedup(folder, *inputs, threads=1, **config):
    """Deduplicate; returns pool URLs by shard, and (url, url of original, kind) of the duplicates."""
    output = deduplicate_into(folder, list(inputs), threads, **config)
    pool = sorted((output / "pool").iterdir())
    parts = tables(output, "duplicates")
    names = [path.name.removesuffix(".jsonl.zst") for path in pool] if len(pool) > 1 else ["duplicates"]
    assert [part.stem for part in parts] == names
    rows = [row for part in parts for row in read_table(part).to_pylist()]
    return (
        [[page.metadata["url"] for page in read_documents(path)] for path in pool],
        [(row["url"], row["duplicate_of_url"], row["kind"]) for row in rows],
    )


def test_of_a_template_that_only_numbers_fill_a_host_keeps_so_many_pages(tmp_path, monkeypatch):
    monkeypatch.setattr(exact, "RULES", exact.RULES | {exact.TEMPLATE: (exact.SAME_TEMPLATE, 3)})

    def calculator(number, root="square root"):
        divisors = ", ".join(str(one) for one in range(1, number + 1) if number % one == 0)
        return f"The {root} of {number} is {number**0.5:.4f}. Its divisors are {divisors}. {text(4000, 9)}"

    def host(name, numbers):
        return [(f"http://{name}/{number}", calculator(number)) for number in numbers]

    pages = [*host("a.org", range(40, 45)), ("http://a.org/w", calculator(7, "third root"))]
    pages += [*host("b.org", range(50, 53)), *host("www.a.org", range(60, 65))]
    kept = {f"http://a.org/{n}" for n in (40, 41, 42, "w")} | {f"http://b.org/{n}" for n in (50, 51, 52)}
    for parts, jobs in ((1, 1), (2, 2)):
        names = [f"{parts}-{part}" for part in range(parts)]
        given = zip(names, (pages[:7], pages[7:]) if parts == 2 else (pages,), strict=True)
        shards = [write_pages(tmp_path / f"in-{name}", some, name) for name, some in given]
        options = {"min_similarity": 1.0, "pool_shards": parts, "bucket_jobs": jobs}
        pool, gone = dedup(tmp_path / f"out-{parts}", *shards, **options)
        assert {url for part in pool for url in part} == kept
        assert len(gone) == 7 and {(target, kind) for _, target, kind in gone} == {
            ("http://a.org/40", "template")
        }
        manifest = json.loads((tmp_path / f"out-{parts}/dedup/manifest.json").read_text())
        assert manifest["counts"]["duplicates_template"] == 7


@pytest.mark.parametrize("variant", TABLES["variants"])
def test_url_variants_of_a_page_are_one(variant):
    assert normalise_url(variant) == normalise_url("http://a.org/math/limits")


@pytest.mark.parametrize("one, other", TABLES["different"])
def test_urls_of_different_pages_stay_apart(one, other):
    assert normalise_url(one) != normalise_url(other)


def test_each_rule_finds_its_duplicates_and_the_first_page_in_input_order_survives(tmp_path):
    chinese = (
        "设函数在闭区间上连续，则它在该区间上有界，并且可以取到最大值和最小值。这是微积分中的基本定理之一。"
    )
    write_pages(
        tmp_path / "one",
        [
            ("http://a.org/1", text(0)),
            ("http://b.org/near", text(0, changed=8)),
            ("http://c.org/1", text(1000)),
            ("http://zh.org/1", chinese * 3),
            ("http://d.org/short", "too short"),
        ],
    )
    write_pages(
        tmp_path / "two",
        [
            ("https://www.a.org/1/", text(2000)),
            ("http://e.org/exact", text(1000)),
            ("http://zh.org/2", chinese * 3 + "完"),
            ("http://b.org/near?utm_source=x", text(3000)),
            ("http://f.org/half", text(1000, changed=120)),
            ("http://g.org/short", "too short"),
        ],
        name="b",
    )
    pool, duplicates = dedup(tmp_path / "out", tmp_path / "one", tmp_path / "two", pool_shards=4)
    kept = ["http://a.org/1", "http://c.org/1", "http://zh.org/1", "http://d.org/short", "http://f.org/half"]
    assert pool == [kept[:-1], kept[-1:]]
    assert duplicates == [
        ("http://b.org/near", "http://a.org/1", "near"),
        ("https://www.a.org/1/", "http://a.org/1", "url"),
        ("http://e.org/exact", "http://c.org/1", "exact"),
        ("http://zh.org/2", "http://zh.org/1", "near"),
        ("http://b.org/near?utm_source=x", "http://a.org/1", "url"),
        ("http://g.org/short", "http://d.org/short", "exact"),
    ]
    counters = Counter()
    for path in (tmp_path / "out").glob("*/run.json"):
        counters.update(json.loads(path.read_text())["counters"])
    assert counters["minhash.documents"] == 6 and counters["pool.pages"] == 5
    assert counters["minhash.pairs"] >= 2


def test_runs_repeat_byte_for_byte_and_do_not_depend_on_how_pages_were_grouped(tmp_path):
    pages = [(f"http://a.org/{n}", text(n % 7 * 300, changed=n % 3)) for n in range(40)]
    write_pages(tmp_path / "all", pages)
    for part, where in enumerate((slice(0, 15), slice(15, 15), slice(15, 40))):
        write_pages(tmp_path / f"part{part}", pages[where], name=f"{part}")
    parts = [tmp_path / f"part{part}" for part in range(3)]
    (tmp_path / "two/sign-0000").mkdir(parents=True)
    (tmp_path / "two/sign-0000/signatures").write_bytes(b"left by a killed run")
    one, two = (dedup(tmp_path / name, tmp_path / "all", pool_shards=2) for name in ("one", "two"))
    assert one == two
    pool, duplicates = dedup(tmp_path / "three", *parts, threads=2, pool_shards=2, bucket_jobs=50)
    assert (sum(pool, []), duplicates) == (sum(one[0], []), one[1]) and len(pool) == 2
    for file in ("pool/0000.jsonl.zst", "duplicates.parquet"):
        assert (tmp_path / "one/dedup" / file).read_bytes() == (tmp_path / "two/dedup" / file).read_bytes()


def on_another_file_system(*_):
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


def test_shards_that_are_linked_are_not_read_and_damage_to_them_is_still_noticed(tmp_path, monkeypatch):
    for part in range(2):
        pages = [(f"http://{part}.org/{n}", text(n % 5 * 300)) for n in range(10)]
        write_pages(tmp_path / f"part{part}", pages, name=f"{part}")
    dedup(tmp_path / "read", tmp_path / "part0", tmp_path / "part1", pool_shards=2)
    filters = [tmp_path / "read" / f"filter-{number:04d}" for number in range(2)]
    read, file_digest, output = [], hashlib.file_digest, tmp_path / "out"

    def noted(file, name):
        read.append(file.name)
        return file_digest(file, name)

    def files():
        words = [f"--input=filter={folder}" for folder in filters]
        run_stage("crawl", CrawlSection, dedup_program.run, [*words, "--output", str(output)])
        return json.loads((output / "manifest.json").read_text())["files"]

    monkeypatch.setattr(hashlib, "file_digest", noted)
    expected = json.loads((tmp_path / "read/dedup/manifest.json").read_text())["files"]
    assert files() == expected and len(expected) == 4 and not read
    monkeypatch.setattr(os, "link", on_another_file_system)
    assert files() == expected and len(read) == 4, "copies are read"
    monkeypatch.undo()
    assert files() == expected
    path = output / "duplicates/0001.parquet"
    os.truncate(path, path.stat().st_size - 1)
    path.open("ab").write(b"!")
    os.utime(path, (2e9, 2e9))
    for folder, name in ((output, path.name), (filters[1], "removed.parquet")):
        assert f"{name} was changed" in damage(folder, folder / "manifest.json", Digests())
    with pytest.raises(SystemExit):
        files()


def test_an_empty_crawl_and_one_without_duplicates_pass_through(tmp_path):
    write_pages(tmp_path / "none", [])
    assert dedup(tmp_path / "out", tmp_path / "none", pool_shards=2) == ([[]], [])
    write_pages(tmp_path / "two", [("http://a.org/1", text(0)), ("http://a.org/2", text(1000))])
    assert dedup(tmp_path / "out", tmp_path / "two") == ([["http://a.org/1", "http://a.org/2"]], [])


def test_the_same_file_given_twice_is_an_error(tmp_path, capsys):
    for name in ("one", "two"):
        write_pages(tmp_path / name, [("http://a.org/1", text(0))])
    with pytest.raises(SystemExit, match="2"):
        dedup(tmp_path / "out", tmp_path / "one", tmp_path / "two")
    assert "a.warc.gz are in another shard" in capsys.readouterr().err


def test_pages_are_near_duplicates_from_the_configured_similarity_on(tmp_path):
    pages, truth = [], {}
    for place in range(24):
        changed = (30, 76)[place % 2]  # a similarity of 0.65 or 0.35
        copy = f"http://copy.org/{place}"
        pages += [(f"http://a.org/{place}", text(place * 200)), (copy, text(place * 200, changed=changed))]
        truth[copy] = (396 - 2 * changed) / (
            396 + 4 * changed
        )  # shingles: `word1` is two grams, `other0x1` four
    write_pages(tmp_path / "pages", pages)
    for least in (0.5, 0.8, 0.2):
        _, duplicates = dedup(tmp_path / f"out{least}", tmp_path / "pages", min_similarity=least)
        found = {url for url, original, kind in duplicates if kind == "near" and original[-3:] == url[-3:]}
        alike = {url for url, similarity in truth.items() if similarity >= least}
        assert len(duplicates) == len(found) and found <= alike
        close = {url for url in alike if truth[url] > 0.6}  # 40 bands make candidates of nearly all of these
        assert found >= close and (len(found) > len(close)) == (least < 0.3)
    for row in read_table(tmp_path / "out0.2/dedup/duplicates.parquet").to_pylist():
        assert row["similarity"] == pytest.approx(truth[row["url"]], abs=0.12)


def shingle_set(hasher: MinHasher, content: str) -> set[int]:
    hashes, ((first, last),) = hasher.shingles([content])
    return set(hashes[first:last].tolist())


def test_signatures_are_the_smallest_values_of_the_permutations():
    hasher = MinHasher(ngram=2, hashes=7, seed=3)
    contents = ["a b c d a b", "one", "", "x y"]
    for content, signature in zip(contents, hasher.signatures(contents), strict=True):
        expected = [
            min(
                ((shingle * factor + offset) % 2**32 for shingle in shingle_set(hasher, content)),
                default=ABSENT,
            )
            for factor, offset in zip(hasher.factors.tolist(), hasher.offsets.tolist(), strict=True)
        ]
        assert signature.tolist() == expected


def test_vllm_finds_no_fault_with_modules_that_compile():
    """It asks `vars(value).get("kernel")` of all values in all modules before its first sample."""
    modules = [module for name, module in sys.modules.items() if name.startswith(("numba", "llvmlite"))]
    values = [value for module in modules for value in vars(module).values() if hasattr(value, "__dict__")]
    assert len(values) > 1000 and {type(vars(value).get) for value in values}


def test_signatures_estimate_the_jaccard_similarity_of_shingles():
    hasher = MinHasher(ngram=5, hashes=1000, seed=1)
    for changed in (0, 10, 40, 100, 200):
        one, other = text(0, 300), text(0, 300, changed=changed)
        sets = [shingle_set(hasher, content) for content in (one, other)]
        exact = len(sets[0] & sets[1]) / len(sets[0] | sets[1])
        assert np.mean(hasher.signature(one) == hasher.signature(other)) == pytest.approx(exact, abs=0.06)
    assert (hasher.signature("one two three four") == ABSENT).all()
    assert (hasher.signature("a 1 b 2 c") != hasher.signature("a 1 b 3 c")).all(), "digits count"
    texts = [
        "a b c d e \\",
        "f g h i j k",
        "",
        "one",
        "\u0301x y z \\alpha ﬁve",
        "设函数在闭区间",
        "a b c d e f",
    ]
    for together, alone in zip(hasher.signatures(texts), map(hasher.signature, texts), strict=True):
        assert np.array_equal(together, alone), "texts that are read together do not touch each other"


@pytest.mark.skipif(not WEB.exists(), reason="the real test pages are not here")
def test_known_duplicates_among_real_pages_are_grouped(tmp_path):
    pages = extract_into(tmp_path / "pages", WEB / "*.warc.gz")
    _, found = dedup(tmp_path / "out", pages, min_similarity=0.5)
    original = {url: survivor for url, survivor, _ in found}
    labels = {label["url"]: label for label in map(json.loads, (WEB / "labels.jsonl").open())}
    known = [
        (label["duplicate_kind"], original.get(url, url) == original.get(twin, twin))
        for url, label in labels.items()
        if (twin := label["duplicate_of"])
    ]
    exact = [grouped for kind, grouped in known if kind == "exact"]
    near = [grouped for kind, grouped in known if kind == "near"]
    assert sum(exact) == len(exact) == 53 and sum(near) >= 0.95 * len(near) > 30
    unknown = [
        url
        for url, survivor in original.items()
        if not labels[url]["duplicate_of"] and not labels[survivor]["duplicate_of"]
    ]
    assert len(unknown) <= 0.01 * len(labels)


def test_a_job_lost_or_killed_is_made_again_to_the_same_bytes(tmp_path):
    for part in range(2):
        pages = [(f"http://{part}.org/{n}", text(n % 50 * 60, changed=n % 3)) for n in range(200)]
        write_pages(tmp_path / f"part{part}", pages, name=f"{part}")
    folder, pages = tmp_path / "out", [tmp_path / "part0", tmp_path / "part1"]
    dedup(folder, *pages)
    inputs = {
        "sign-0001": (sign, {"extract": pages[1:]}),
        "exact": (exact, {"sign": [folder / "sign-0000", folder / "sign-0001"]}),
        "buckets-0000": (buckets, {"exact": [folder / "exact"]}),
        "survivors": (survivors, {"exact": [folder / "exact"], "buckets": [folder / "buckets-0000"]}),
    }
    for name, (made, given) in inputs.items():
        calls = [(Path, "open"), (os, "replace"), (os, "rename")]
        survives_loss_and_kills(partial(run_program, made.run, folder / name, **given), folder / name, calls)
