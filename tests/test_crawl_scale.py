"""Deduplication in many jobs: pairs of brute force and of datatrove, few open files, lost and new shards."""

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import combinations, pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from deduplication import run_program, write_pages
from given.duplicates import deduplicate
from killing import bytes_of, survives_loss_and_kills
from stock_minhash import link_signatures, run_stages

from pipeline.config.crawl import CrawlSection
from pipeline.config.root import Config
from pipeline.core.data.shards import read_documents
from pipeline.core.overlays import DEFAULTS, read_config
from pipeline.crawl import exact, sign, signature_store
from pipeline.crawl import filter as filter_pages
from pipeline.crawl.buckets import bounds_of
from pipeline.crawl.pairs import PairSorter
from pipeline.crawl.signature_store import Bits, SignedShards, signed_pages
from pipeline.crawl.signatures import SHINGLE, MinHasher
from workflow.graph import Graph
from workflow.instances import Instance
from workflow.keys import Keys
from workflow.reasons import Reasons

ROOT = Path(__file__).parents[1]
positions = signature_store._positions
SHARDS = 5
IN_MEMORY = {  # at once
    "buckets.COMPARED": 50,
    "buckets.OF_SHARD": 1,
    "buckets.SORTED": 40,
    "survivors.PAGES": 30,
    "exact.OF_SHARD": 1,
    "exact.RECORDS": 30,
    "filter.ROWS": 3,
    "pairs.SPAN": 30,
    "sign.ROWS": 7,
}


def write_shard(folder: Path, name: str, texts: list[str], urls: list[str] | None = None) -> Path:
    """A shard as extraction writes it; URLs are the WARC file's name and the page's place if not given."""
    urls = urls or [f"http://{name}.org/{place}" for place in range(len(texts))]
    return write_pages(folder / name, zip(urls, texts, strict=True), name)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Shards of families of pages that share from none to nearly all of their words."""
    folder, draw = tmp_path_factory.mktemp("pages"), random.Random(1)
    texts = []
    for family in range(40):
        common = [f"f{family}w{number}" for number in range(150)]
        for member in range(5):
            changed = draw.randrange(0, 130)
            texts.append(" ".join([*common[changed:], *(f"f{family}m{member}w{n}" for n in range(changed))]))
    draw.shuffle(texts)
    return [write_shard(folder, f"s{rank}", texts[rank::SHARDS]) for rank in range(SHARDS)]


def signed(pages: list[Path]) -> list[tuple[str, np.ndarray, set[int]]]:
    """(id, bands, shingles) of all pages in input order."""
    section = CrawlSection()
    width = section.hashes_per_bucket
    hasher = MinHasher(SHINGLE, section.buckets * width, section.seed)
    documents = [page for folder in pages for page in read_documents(folder / "pages.jsonl.zst")]
    signatures, sketches = hasher.sketched([page.text for page in documents])
    bands = signatures.reshape(len(documents), -1, width)
    return list(
        zip((page.id for page in documents), bands, map(set, map(np.ndarray.tolist, sketches)), strict=True)
    )


def test_the_survivors_are_those_of_brute_force(pages: list[Path], tmp_path: Path) -> None:
    """A page goes for the first page that stays, shares a band and is like it."""
    found = deduplicate(tmp_path / "out", pages, min_similarity=0.5, bucket_jobs=3)
    expected, staying = dict[str, str](), list[tuple[str, np.ndarray, set[int]]]()
    for name, bands, shingles in signed(pages):
        for other, theirs, known in staying:
            shared = (bands == theirs).all(axis=1).any()
            if shared and len(shingles & known) >= 0.5 * len(shingles | known):
                expected[name] = other
                break
        else:
            staying.append((name, bands, shingles))
    assert found == expected and len(found) > 30
    given, width = SignedShards.of(tmp_path / "out/exact"), CrawlSection().hashes_per_bucket
    begins = given.begins(0, width, bounds_of(given, 0, 4, width))
    shares = np.diff(begins.sum(axis=1, dtype=int)).tolist()  # of four jobs that share a bucket
    assert sum(shares) == given.pages and min(shares) > given.pages / 10


def test_without_a_threshold_no_page_leaves_the_cluster_that_datatrove_finds(
    pages: list[Path], tmp_path: Path
) -> None:
    found = deduplicate(tmp_path / "out", pages, min_similarity=0.0, bucket_jobs=50)
    shards = [tmp_path / f"out/sign-{rank:04d}" for rank in range(SHARDS)]
    link_signatures(tmp_path / "stock", shards, CrawlSection())
    clusters = run_stages(tmp_path / "stock", CrawlSection(), clusters=True)
    theirs = dict[str, int]()
    for path in sorted(clusters.glob("*.clusters")):
        for place, cluster in np.fromfile(path, "<u4").reshape(-1, 2).tolist():
            theirs[f"s{int(path.stem)}:{place}"] = cluster
    firsts = set({cluster: page for page, cluster in reversed(theirs.items())}.values())
    assert len(found) > 30 and not firsts & found.keys()
    assert all(theirs[page] == theirs[survivor] for page, survivor in found.items())


def texts_of(shards: list[Path]) -> dict[str, set[tuple[str, ...]]]:
    """Shingles of all pages by id; the words of these texts are single grams."""
    pages = [page for folder in shards for page in read_documents(folder / "pages.jsonl.zst")]
    words = {page.id: page.text.split() for page in pages}
    return {name: set(zip(*(own[n:] for n in range(SHINGLE)), strict=False)) for name, own in words.items()}


def letters(number: int) -> str:
    """A word for each number, without digits, which are grams of their own."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


@pytest.mark.parametrize("step", [10, 40])
def test_overlapping_pages_go_only_for_one_that_stays(tmp_path: Path, step: int) -> None:
    """Each page begins `step` words after the one before: joined to clusters one of 500 would stay."""
    texts = [" ".join(letters(n) for n in range(at, at + 400)) for at in range(0, 500 * step, step)]
    shards = [write_shard(tmp_path, f"s{rank}", texts[rank * 250 : (rank + 1) * 250]) for rank in range(2)]
    found, shingles = deduplicate(tmp_path / "out", shards, bucket_jobs=3), texts_of(shards)
    one = write_shard(tmp_path, "s0s1", texts)
    whole = deduplicate(tmp_path / "one", [one])
    assert len(whole) == len(found) > 200

    def alike(one: str, other: str) -> bool:
        return len(shingles[one] & shingles[other]) >= 0.7 * len(shingles[one] | shingles[other])

    assert all(alike(page, survivor) and survivor not in found for page, survivor in found.items())
    staying = [name for name in shingles if name not in found]
    assert not any(alike(one, other) for one, other in combinations(staying, 2))


@pytest.mark.parametrize("number", [100, 300])
def test_pages_of_a_template_stay_and_edited_copies_go(tmp_path: Path, number: int) -> None:
    """Pages of a true similarity of 0.61, and a copy of each tenth with one word changed in twenty."""
    common = [letters(n) for n in range(190)]

    def page(name: int, changed: int = 0) -> str:
        own = [f"{letters(name)}x{letters(n)}" for n in range(59)]
        own[:changed] = [f"{letters(name)}y{letters(n)}" for n in range(changed)]
        return " ".join(common + own)

    texts = [page(name) for name in range(number)]
    shards = [write_shard(tmp_path, "s0", texts)]
    assert deduplicate(tmp_path / "template", shards) == {}
    copies = [page(name, 12) for name in range(0, number, 10)]
    shards.append(write_shard(tmp_path, "s1", copies))
    found = deduplicate(tmp_path / "copies", shards)
    assert found == {f"s1:{place}": f"s0:{10 * place}" for place in range(len(copies))}


def test_pages_that_are_not_as_many_as_were_signed_are_refused(
    pages: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deduplicate(tmp_path / "out", pages)
    (removed,) = (tmp_path / "out").glob("survivors/removed/*0.parquet")
    every = signed_pages(tmp_path / "out/sign-0000")
    for number in (every - 1, every + 1):
        other = write_shard(tmp_path, f"of-{number}", ["a page"] * number)
        with pytest.raises(SystemExit):
            run_program(filter_pages.run, tmp_path / "filter-0000", extract=[other], removed=[removed])
        assert f"{number:,} pages, but {every:,} were signed" in capsys.readouterr().err
        assert not (tmp_path / "filter-0000").exists()


def test_250_shards_need_no_more_than_64_open_files(tmp_path: Path) -> None:
    for shard in range(250):
        text = " ".join(f"w{shard % 125}x{number}" for number in range(60))
        write_shard(tmp_path, f"s{shard}", [f"{text} again" if shard >= 125 else text])
    script = f"""
import os, resource, sys
os.fsync = lambda file: None  # thousands of them take a minute on a busy disk
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
sys.path[:0] = {[str(ROOT), str(ROOT / "tests")]!r}
from pathlib import Path
from given.duplicates import deduplicate
folder = Path({str(tmp_path)!r})
shards = [folder / f"s{{n}}" for n in range(250)]
keys = {{"buckets": 4, "hashes_per_bucket": 1, "pool_shards": 3, "min_similarity": 0.5}}
found = deduplicate(folder / "out", shards, **keys)
assert {{f"s{{n}}:0": f"s{{n - 125}}:0" for n in range(125, 250)}} == found, found
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]


def test_what_is_in_memory_at_once_changes_nothing(
    pages: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = deduplicate(tmp_path / "whole", pages, min_similarity=0.5)
    for name, number in IN_MEMORY.items():
        monkeypatch.setattr(f"pipeline.crawl.{name}", number)
    assert deduplicate(tmp_path / "parts", pages, min_similarity=0.5) == found
    for name in ("pool/0000.jsonl.zst", "duplicates.parquet"):
        assert (tmp_path / "parts/dedup" / name).read_bytes() == (
            tmp_path / "whole/dedup" / name
        ).read_bytes()


@pytest.mark.parametrize("sizes", [(70, 0, 130), (3,), (0,)])
def test_exact_rules_give_the_same_bytes_for_any_ranges_and_threads_and_after_kills(
    sizes: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of four pages have the URL or the text of another one."""
    draw, signed = random.Random(1), []
    for rank, pages in enumerate(sizes):
        texts, urls = ([draw.choice("abcdefgh") * draw.randint(1, 20) for _ in range(pages)] for _ in "tu")
        shard = write_shard(tmp_path, f"s{rank}", texts, [f"http://a.org/{url}" for url in urls])
        signed.append(run_program(sign.run, tmp_path / f"sign-{rank}", {"buckets": 1}, extract=[shard]))
    one = bytes_of(run_program(exact.run, tmp_path / "one", sign=signed))
    counts = json.loads(one.pop("manifest.json"))["counts"]
    for name, number in {"exact.RECORDS": 10, "exact.OF_SHARD": 1, "pairs.SPAN": 30}.items():
        monkeypatch.setattr(f"pipeline.crawl.{name}", number)
    several = partial(run_program, exact.run, tmp_path / "several", threads=2, sign=signed)
    assert {name: found for name, found in bytes_of(several()).items() if name in one} == one
    if sum(sizes) > 100:
        assert min(counts["same_url"], counts["same_text"]) > 20
        survives_loss_and_kills(several, tmp_path / "several", [(PairSorter, "add")])


def test_where_ranges_begin_is_found_once_for_each_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more dumps, shards and ranges both grow in number."""
    draw, folders, sizes = np.random.default_rng(0), [], (1000, 0, 1, 37)
    for rank, size in enumerate(sizes):
        (folder := tmp_path / str(rank)).mkdir()
        rows = draw.integers(0, 50, (size, 5), dtype=np.uint32)
        rows[:, 0].sort()
        rows[:, 4] = range(size)
        rows.tofile(folder / "url.minhash.sig")
        folders.append(folder)
    asked = Counter[str]()
    monkeypatch.setattr(signature_store, "_positions", lambda *words: asked.update("a") or positions(*words))
    monkeypatch.setattr(signature_store, "check_shard", lambda *_: None)
    shards, limits = SignedShards(folders, [""] * len(folders)), [0, 1, 25, 25, 49, 50, 1 << 32]
    begins = shards.begins("url", 4, limits)
    assert asked["a"] == len(folders)
    for rank, place in enumerate(begins.T.tolist()):
        first = shards.records(rank, "url", 4)[0][:, 0]
        assert place == np.searchsorted(first, limits).tolist()
    nothing = Bits(tmp_path / "bits", shards.pages)
    read = [shards.records_left(nothing, "url", 4, begins[n : n + 2]) for n in range(len(limits) - 1)]
    for (low, high), (hashes, pages) in zip(pairwise(limits), read, strict=True):
        assert ((low <= hashes[:, 0]) & (hashes[:, 0] < high)).all() and len(pages) == len(hashes)
    assert sorted(np.concatenate([pages for _, pages in read]).tolist()) == list(range(shards.pages))


@contextmanager
def counted_events() -> Iterator[Counter[str]]:
    """Counts the lines of Python that run: their time depends on what else runs."""
    events, before = Counter[str](), sys.gettrace()

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        events[event] += 1
        return trace

    sys.settrace(trace)
    try:
        yield events
    finally:
        sys.settrace(before)


def test_planning_takes_linear_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = []
    for files in (1, 100, 400):  # the first one reads the code
        names = "".join(f"crawl/CC-MAIN-{number:05d}.warc.gz\n" for number in range(files))
        (tmp_path / "warc.paths").write_text(names)
        crawl = {"warc": [str(tmp_path / "warc.paths")], "pool_shards": files}
        values = read_config([DEFAULTS]) | {"run": "none", "crawl": crawl, "corpus": {"iterations": 2}}
        config = Config(values)
        with counted_events() as events:
            reasons = Reasons(Keys(Graph(config)))
            waiting = reasons.causes
            following = sum(map(len, reasons.followers.values()))
        reasons.keys.save()
        lines.append(events["line"])
        assert list(waiting.values()) == [["not made yet"]] * files and following > 5 * files
        assert len(waiting) + following == len(reasons.graph.nodes)
    assert lines[2] < 5 * lines[1], f"{lines} lines run: four times the files"


def test_a_job_waits_for_all_before_it_though_few_are_named(tmp_path: Path) -> None:
    (tmp_path / "shards.yaml").write_text(json.dumps({"crawl": {"files_per_shard": 1}}))
    config = Config(read_config([DEFAULTS, ROOT / "configs/demo.yaml", tmp_path / "shards.yaml"]))
    graph, waited = Graph(config), dict[str, set[str]]()

    def before(job: str) -> set[str]:
        if job not in waited:
            waited[job] = {name for one in graph.last(graph.before(job)) for name in (one, *before(one))}
        return waited[job]

    assert all(graph.before(job).keys() <= before(job) for job in graph.nodes)
    ends = graph.last(graph.nodes)
    assert {name for end in ends for name in (end, *before(end))} == set(graph.nodes) and ends == ["report"]


def test_a_file_given_up_changes_its_own_job_only(tmp_path: Path) -> None:
    files = [f"miniweb:warc/miniweb-{number:05d}.warc.gz" for number in range(4)]

    def nodes(*lost: str) -> dict[str, Instance]:
        crawl = {"warc": files, "files_per_shard": 2, "lost_files": lost}
        (tmp_path / "lost.yaml").write_text(json.dumps({"crawl": crawl}))
        return Graph(
            Config(read_config([DEFAULTS, ROOT / "configs/demo.yaml", tmp_path / "lost.yaml"]))
        ).nodes

    whole, less = nodes(), nodes("miniweb-00001.warc.gz")
    none = nodes("miniweb-00000.warc.gz", "miniweb-00001.warc.gz")
    one, two = (name for name in whole if name.startswith("crawl/extract"))
    assert whole.keys() == less.keys() and whole[two] == less[two] == none[two] and one not in none
    assert [source.path for _, source in less[one].inputs] == ["warc/miniweb-00000.warc.gz"]


def test_a_later_dump_changes_no_earlier_shard(pages: list[Path], tmp_path: Path) -> None:
    for count in (3, 5):
        deduplicate(tmp_path / f"{count}", pages[:count], pool_shards=1000, bucket_jobs=3)
    for file in (f"pool/{rank:04d}.jsonl.zst" for rank in range(3)):
        assert (tmp_path / "3/dedup" / file).read_bytes() == (tmp_path / "5/dedup" / file).read_bytes()
    for name in [f"{program}-{rank:04d}" for program in ("sign", "filter") for rank in range(3)]:
        before, after = (bytes_of(tmp_path / f"{count}" / name) for count in (3, 5))
        marks = [json.loads(found.pop("manifest.json"))["fingerprint"] for found in (before, after)]
        assert before == after and marks[0] == marks[1], f"{name} would run again"
