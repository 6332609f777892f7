"""Selection in parts: the plain sort of all pages, whatever parts, threads and memory; cuts by language."""

import json
from collections import Counter
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from killing import bytes_of, survives_loss_and_kills

from pipeline.config.corpus import CorpusSection
from pipeline.config.root import Config
from pipeline.corpus import rank, select
from pipeline.corpus.convergence import KEPT
from pipeline.corpus.cut import HISTOGRAM, LANGUAGE, Bin, Cut, is_kept, ranges_of, within_budget
from pipeline.corpus.out_of_distribution import recall_at
from pipeline.corpus.score import SCORES
from pipeline.corpus.train import HELD_OUT
from pipeline.crawl.filter import DUPLICATES
from pipeline.data.database import database, parquet
from pipeline.data.shards import read_table, tables, write_table
from pipeline.protocol.errors import InputError
from pipeline.protocol.overlays import DEFAULTS, read_config
from pipeline.protocol.stage import Stage, run_stage
from workflow.graph import Graph

KNOWN = "https://h1.example/1/0/29"  # a page of the seed, under a prefix that teaches
NAMES = [name for name in KEPT.names if name not in ("rank", "iteration")]


def write_scores(folder: Path, shards: int, pages: int, padding: int = 0) -> list[Path]:
    """Score tables of random pages, many with equal scores, both zeros among them; some share the hash."""
    rng, paths = np.random.default_rng(0), []
    for shard in range(shards):
        ties = rng.integers(2**64, size=pages, dtype=np.uint64)
        ties[::3] = 2**63
        hosts = [f"{'www.' * (page % 3 == 0)}h{page % 7}.example" for page in range(pages)]
        urls = [f"https://{host}/{page % 4}/{shard}/{page}{'x' * padding}" for page, host in enumerate(hosts)]
        columns = {
            "id": [f"{shard}:{page:05d}" for page in range(pages)],
            "url": urls,
            "host": hosts,
            "shard": [f"{shard:04d}.jsonl.zst"] * pages,
            "score": rng.choice([-0.0, 0.0, 1.5, -2.5, 1e300, *rng.normal(size=20)], pages),
            "tie": ties,
            "tokens": rng.integers(0, 50, pages),
            "key": [url.removeprefix("https://").removeprefix("www.") for url in urls],
        }
        paths.append(folder / f"score-{shard:04d}")
        paths[-1].mkdir()
        pq.write_table(pa.table(columns, SCORES), paths[-1] / "scores.parquet")
    return paths


@pytest.fixture
def scores(tmp_path: Path) -> list[Path]:
    """Five tables of scores beside a classifier's notes, and a copy of a page, which the seed names."""
    copy = {"url": "https://copy.example/29", "duplicate_of_url": KNOWN}
    write_table(tmp_path / "pool/duplicates.parquet", [dict.fromkeys(DUPLICATES.names) | copy], DUPLICATES)
    (tmp_path / "train").mkdir()
    (tmp_path / "train/train.json").write_text(json.dumps(dict.fromkeys(select.TRAINED)))
    held_out = {"math": [False] * 60, "score": np.linspace(-3, 2, 60), "host": list(map(str, range(60)))}
    pq.write_table(pa.table(held_out), tmp_path / "train/held_out.parquet")
    (tmp_path / "seed.txt").write_text(f"https://h1.example/1/0/1\n{copy['url']}\n")
    (tmp_path / "notes.tsv").write_text(
        "prefix\tverdict\nh1.example/1\tmath\nwww.h2.example\tnot_math\nh3.example/9\tmath\n"
    )
    (tmp_path / "out.txt").write_text("h4.example/2\n")
    return write_scores(tmp_path, 5, 400)


def selected(
    scores: list[Path], name: str, iteration: int = 1, launch: dict[str, float] | None = None, **config: Any
) -> Path:
    """Selection from score tables in this process; returns the folder of its results."""
    folder = scores[0].parent
    inputs = {"train": folder / "train", "pool": folder / "pool", "seed_urls": folder / "seed.txt"}
    inputs |= {"annotations": folder / "notes.tsv", "opt_out": folder / "out.txt"}
    if iteration > 1:
        inputs["previous"] = folder / f"{name}-{iteration - 1}/partial"
    given = {key: [str(path)] for key, path in inputs.items()} | {"score": list(map(str, scores))}
    work = folder / f"{name}-{iteration}"
    section = CorpusSection.model_validate(config)
    stage = Stage(
        "corpus", f"iteration-{iteration}/select", section, "", given, work, work, work, launch or {}
    )
    stage.partial.mkdir(parents=True)
    select.run(stage)
    return stage.partial


def rows_of(folder: Path, name: str, order: str) -> list[dict[str, Any]]:
    rows = pa.concat_tables(map(read_table, tables(folder, name))).to_pylist()
    return sorted(rows, key=lambda row: row[order])


def plain(scores: list[Path]) -> list[dict[str, Any]]:
    """The pages that may be kept, in rank order."""
    rows = pa.concat_tables(read_table(path / "scores.parquet") for path in scores).to_pylist()
    rows = [row for row in rows if row["host"] != "www.h2.example"]
    rows = [row for row in rows if not row["url"].startswith("https://h4.example/2/")]
    return sorted(rows, key=lambda row: (-row["score"], row["tie"], row["id"]))


def by_hand(scores: list[Path], iteration: int, config: dict[str, Any]) -> int:
    """How many pages the configuration keeps."""
    rows = plain(scores)
    match config["cut"]:
        case "tokens":
            used = np.cumsum([row["tokens"] for row in rows])
            return int((used <= config["budget_tokens"][min(iteration, 2) - 1]).sum())
        case "score":
            return sum(row["score"] >= config["threshold"] for row in rows)
    held_out, sizes, other = np.linspace(-3, 2, 60), [0], float(len(rows))
    values = np.array([row["score"] for row in rows])
    above = (held_out[None] >= values[:, None]).sum(1)
    ends = np.searchsorted(-values, -values, side="right")  # pages down to the last of an equal score
    while sizes[-1] not in sizes[:-1]:
        share = np.maximum(0, 1 - (above + 1) / 61 * other / np.arange(1, len(rows) + 1))
        good = np.flatnonzero(share >= config["precision"])
        assert ends[good[-1]] == good[-1] + 1
        sizes.append(int(good[-1]) + 1)
        other = len(rows) - sizes[-1] * float(share[good[-1]])
    return min(sizes[sizes.index(sizes[-1]) :])


def by_jobs(scores: list[Path], iteration: int, config: dict[str, Any]) -> Path:
    """Selection by jobs of their own, as the workflow starts them; returns the folder of its results. In the
    first iteration the last job of each program is lost, killed again and again, and made again alone.
    """
    folder = scores[0].parent
    given = {"train": [folder / "train"]}
    if iteration > 1:
        given["previous"] = [folder / f"jobs-{iteration - 1}/select"]
    lists = {"annotations": [folder / "notes.tsv"], "opt_out": [folder / "out.txt"]}

    def made(name: str, lost: bool = False, **inputs: list[Path]) -> Path:
        output = folder / f"jobs-{iteration}/{name}"
        words = [f"--input={key}={path}" for key, paths in inputs.items() for path in paths]
        words += [f"--instance=iteration-{iteration}/{name}", "--config", json.dumps(config)]
        program = import_module(f"pipeline.corpus.{name.partition('-')[0]}").run
        run = partial(run_stage, "corpus", CorpusSection, program, [*words, "--output", str(output)])
        run()
        if lost and iteration == 1:
            survives_loss_and_kills(run, output)
        return output

    def parts(program: str, **inputs: list[Path]) -> list[Path]:
        jobs = config["select_jobs"]
        return [made(f"{program}-{job:04d}", job == jobs - 1, **inputs) for job in range(jobs)]

    shards = CorpusSection(select_jobs=config["select_jobs"]).select_parts(len(scores))
    ranks = [
        made(f"rank-{job:04d}", job == 1, score=[scores[shard] for shard in part], **given, **lists)
        for job, part in enumerate(shards)
    ]
    found = {"cut": [made("cut", True, rank=ranks, **given)], "rank": ranks}
    orders = parts("order", **found, **given)
    found["keep"], found["hosts"] = parts("keep", order=orders, **given), parts("hosts", **found, **given)
    seed = {"seed_urls": [folder / "seed.txt"]}
    before = {key: given[key] for key in given if key == "previous"}
    asked = made("wanted", pool=[folder / "pool"], **seed, **before)
    return made("select", wanted=[asked], **found, **given, **lists, **seed)


def check(one: Path, some: Path, scores: list[Path], iteration: int, config: dict[str, Any]) -> None:
    """Assert that a selection in one part is the plain sort, and that one in several parts is the same."""
    size, kept = by_hand(scores, iteration, config), rows_of(one, "kept", "rank")
    assert [[row[name] for name in NAMES] for row in kept] == [
        [row[name] for name in NAMES] for row in plain(scores)[:size]
    ]
    assert [row["rank"] for row in kept] == list(range(1, size + 1))
    assert len(tables(one, "kept")) == 1 and len(tables(some, "kept")) == len(tables(some, "queue")) > 1
    for name, order in (("kept", "rank"), ("excluded", "id"), ("queue", "id")):
        assert rows_of(one, name, order) == rows_of(some, name, order)
    for name in ("metrics.json", "domains.parquet", "review.tsv", "seed_urls.txt", "not_math_urls.txt"):
        assert (one / name).read_bytes() == (some / name).read_bytes(), name
    found = json.loads((one / "metrics.json").read_text())
    hosts = Counter(row["key"].partition("/")[0] for row in plain(scores))
    domains = {row["domain"]: row["pages"] for row in found["domains"] if "/" not in row["domain"]}
    assert domains == {host: hosts[host] for host in domains} and found["kept_pages"] == size > 0
    assert found["pool_pages"] == 2000 and found["kept_tokens"] == sum(row["tokens"] for row in kept)


@pytest.mark.parametrize(
    "config",
    [
        {"cut": "score", "threshold": 0.0, "domain_depth": 1, "reviewed": "all"},
        {"cut": "precision", "precision": 0.5},
    ],
)
def test_selection_in_parts_is_the_plain_sort_and_that_in_one(
    scores: list[Path], config: dict[str, Any]
) -> None:
    one = selected(scores, "one", **config)
    some = selected(scores[::-1], "some", 1, {"threads": 2}, select_jobs=3, **config)
    check(one, some, scores, 1, config)
    parts: dict[str, set[int]] = {}
    for number in range(3):
        rows = read_table(some.parent / f"rank-{number:04d}/partial/pages.parquet").to_pylist()
        order = [(row["part"], -row["score"], row["tie"], row["id"]) for row in rows]
        assert order == sorted(order) and {row["source"] for row in rows} == {number}
        for row in rows:
            parts.setdefault(row["host"].removeprefix("www."), set()).add(row["part"])
    assert all(len(found) == 1 for found in parts.values()) and len(set.union(*parts.values())) > 1


def test_jobs_of_their_own_select_the_same_and_one_lost_or_killed_is_made_again_alone(
    scores: list[Path],
) -> None:
    config = {"cut": "tokens", "budget_tokens": [8000, 8700], "converged": 1.0}  # among pages of equal scores
    config |= {"reviewed": "all"}
    for iteration in (1, 2):
        one = selected(scores, "one", iteration, **config)
        check(one, by_jobs(scores, iteration, config | {"select_jobs": 2}), scores, iteration, config)
    seed = (one / "seed_urls.txt").read_text().split()
    assert KNOWN not in seed and KNOWN.replace("/0/", "/1/") in seed, "the first is meant by its copy's URL"
    found, kept = json.loads((one / "metrics.json").read_text()), rows_of(one, "kept", "id")
    before = {row["id"] for row in rows_of(scores[0].parent / "one-1/partial", "kept", "id")}
    assert found["marginal_pages"] == len(kept) - len(before) > 0
    assert all((row["iteration"] == 1) == (row["id"] in before) for row in kept)


def test_a_large_pool_is_selected_in_parts_and_put_together(tmp_path: Path) -> None:
    warc = [tmp_path / f"{name}.warc.gz" for name in "abcde"]
    for path in warc:
        path.write_bytes(b"")
    crawl = {"warc": list(map(str, warc)), "files_per_shard": 1, "pool_shards": 5}
    keys = {
        "crawl": crawl,
        "corpus": {"iterations": 2, "select_jobs": 2, "annotations": list(map(str, warc[:2]))},
    }
    nodes = Graph(Config(read_config([DEFAULTS]) | keys)).nodes

    def read(name: str) -> list[str]:
        sources = (str(getattr(source, "node", "")) for _, source in nodes[name].inputs)
        return sorted(source.rpartition("/")[2] for source in sources if source)

    start = "corpus/iteration-2/"
    scores = [f"score-{number:04d}" for number in range(5)]  # for the new round of review
    learnt, listed = ([f"{name}-{part:04d}" for part in range(2)] for name in ("learn", "listed"))
    assert read(f"{start}wanted") == ["dedup", *learnt, *listed, "select"]
    assert read(f"{start}learn-0001") == [*scores[3:], "select", "select"]
    assert read(f"{start}listed-0000") == ["dedup", "dedup", "dedup", *learnt, "select"]
    tables = [source.path for key, source in nodes[f"{start}listed-0001"].inputs if key == "duplicates"]
    assert tables == ["duplicates/0003.parquet", "duplicates/0004.parquet"]
    assert dict(nodes[f"{start}learn-0001"].inputs)["kept"].path == "kept/0001.parquet"
    others = ("wanted", "read-0001", "train", "rank-0001", "keep-0000", "select")
    for name in ("learn-0000", "listed-0001", *others):
        assert "new_round" in dict(nodes[start + name].inputs), name  # it goes on after convergence
    assert read(f"{start}read-0001") == ["dedup", "dedup", "select", "wanted"]
    assert read(f"{start}train") == ["dedup", "read-0000", "read-0001", "select", "wanted"]
    numbers = ("0000", "0001")
    ranks, keeps, hosts = ([f"{name}-{number}" for number in numbers] for name in ("rank", "keep", "hosts"))
    assert read(f"{start}rank-0001") == ["score-0003", "score-0004", "select", "train"]
    assert read(f"{start}cut") == [*ranks, "select", "train"]
    for name in ("order-0001", "hosts-0000"):
        assert read(start + name) == ["cut", *ranks, "select"]
    assert read(f"{start}keep-0001") == ["order-0000", "order-0001", "select"]
    assert read(f"{start}select") == ["cut", *hosts, *keeps, *ranks, "select", "train", "wanted"]
    assert "annotations" in dict(nodes[f"{start}rank-0000"].inputs)
    assert "select_jobs" not in nodes[f"{start}select"].section


def test_the_token_budget_cuts_before_it_is_passed_and_the_last_one_holds_on(scores: list[Path]) -> None:
    folder = selected(scores, "one", cut="score").parent
    rows = plain(scores)
    used = np.cumsum([row["tokens"] for row in rows])
    budgets = [0, 1, 20_000, int(used[-1]), 10**9]
    with database(folder / "join", {"threads": 2}) as joins:
        histogram = HISTOGRAM.format(histograms=parquet(folder / "rank-0000/partial/histogram.parquet"))
        bins = [Bin(*row) for row in joins.execute(histogram).fetchall()]
        pages = parquet(folder / "rank-0000/partial/pages.parquet")
        for iteration, budget in enumerate([*budgets, budgets[-1]], 1):
            joins.execute("DROP TABLE IF EXISTS within")
            config = CorpusSection(budget_tokens=budgets)
            found = within_budget(joins, bins, pages, config, iteration)
            assert found.kept == (used <= budget).sum() and (found.least is None) == (found.kept == 0)
            kept = joins.execute(f"SELECT id FROM {pages} WHERE {is_kept([asdict(found)])}").fetchall()
            assert {page for (page,) in kept} == {row["id"] for row in rows[: found.kept]}


def test_ranges_of_scores_hold_about_as_many_pages_each_and_all_that_are_kept() -> None:
    sizes = enumerate([1, 2, 90, 1, 1, 5, 7])
    bins = [Bin(None, -place, 0, pages, 0, -float(place)) for place, pages in sizes]

    def ranges(size: int, parts: int) -> list[tuple[float | None, float, int]]:
        return ranges_of(bins, [Cut(None, None, 107, size)], parts)

    assert ranges(0, 3) == []
    assert ranges(3, 1) == [(None, -1.0, 0)]
    assert ranges(100, 2) == [(None, -2.0, 0), (-2.0, -5.0, 93)]
    many = ranges(107, 50)
    assert [first for _, _, first in many] == [0, 3, 93, 94, 95, 100] and many[-1][1] == -6.0


def test_a_ranking_that_outgrows_its_memory_goes_on_on_disk_with_the_same_bytes(
    scores: list[Path], tmp_path: Path
) -> None:
    big = tmp_path / "big"
    big.mkdir()
    given = {"train": [str(tmp_path / "train")], "score": list(map(str, write_scores(big, 2, 40_000, 700)))}
    found = []
    for memory in (4.0, 0.2):  # 110 MB of addresses
        work, launch = tmp_path / f"{memory}", {"join_memory": memory}
        stage = Stage("corpus", "iteration-1/rank-0000", CorpusSection(), "", given, work, work, work, launch)
        stage.partial.mkdir(parents=True)
        rank.run(stage)
        found.append(bytes_of(stage.partial))
        assert not (work / "join").exists()
    assert found[0] == found[1] and len(read_table(stage.partial / "pages.parquet", ["id"])) == 80_000


def test_a_damaged_table_is_one_line_that_names_it(scores: list[Path]) -> None:
    path = scores[3] / "scores.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"score-0003/scores\.parquet.*\(DuckDB\)$"):
        selected(scores, "one", cut="score")


# Mathematical, other and held-out other pages of a language, and the mean score of the others.
POOL = {
    "en": (600, 2000, 3000, 0),
    "zh": (400, 2000, 3000, 1.5),
    "de": (50, 300, 30, 1.5),
    None: (0, 100, 10, -5),
}


def by_language(folder: Path, parts: int) -> tuple[list[Path], dict[str, bool]]:
    """Score tables of pages whose other pages score higher in Chinese and German, and held-out pages, few of
    them German; returns the folders of the tables and whether each page is mathematical.
    """
    rng, truth, rows, held_out = np.random.default_rng(0), {}, [], []
    for language, (math, other, size, shift) in POOL.items():
        scores = [*rng.normal(4, 1, math), *rng.normal(shift, 1, other)]
        for number, score in enumerate(scores):
            url = f"https://{language}.example/{number}"
            truth[url] = number < math
            row = {"id": url, "url": url, "host": f"{language}.example", "shard": "0000", "score": score}
            rows.append(row | {"tie": number, "tokens": 9, "key": url[8:], "language": language})
        own = {"math": False, "fold": 0, "language": language}
        held_out += [
            own | {"url": f"{language}{number}", "host": f"{language}{number % 90}", "score": score}
            for number, score in enumerate(rng.normal(shift, 1, size))
        ]
    folders = [folder / f"languages-{part}" for part in range(parts)]
    for part, path in enumerate(folders):
        path.mkdir()
        table = pa.Table.from_pylist(rows[part::parts], SCORES.append(LANGUAGE))
        pq.write_table(table, path / "scores.parquet")
    table = pa.Table.from_pylist(held_out, HELD_OUT.append(LANGUAGE))
    pq.write_table(table, folder / "train/held_out.parquet")
    return folders, truth


def test_each_language_with_enough_held_out_pages_is_cut_where_the_precision_holds_in_it(
    scores: list[Path],
) -> None:
    folder = scores[0].parent
    paths, truth = by_language(folder, 2)

    def precision(pages: list[dict], language: str) -> float:
        return float(np.mean([truth[row["url"]] for row in pages if row["host"] == f"{language}.example"]))

    found = {}
    for least in (0, 500):
        config = {"cut": "precision", "precision": 0.9, "cut_language_pages": least}
        one = selected(paths, f"one-{least}", **config)
        some = selected(paths[::-1], f"some-{least}", select_jobs=2, **config)
        assert (one / "metrics.json").read_bytes() == (some / "metrics.json").read_bytes()
        found[least] = rows_of(one, "kept", "rank")
        assert found[least] == rows_of(some, "kept", "rank")
        order = [(-row["score"], int(row["url"].rpartition("/")[2]), row["id"]) for row in found[least]]
        assert order == sorted(order)
        assert [row["rank"] for row in found[least]] == list(range(1, len(order) + 1))
    notes = json.loads((one.parent / "cut/partial/cut.json").read_text())
    promised, parts = notes["promise"], [Cut(**row) for row in notes["cuts"]]
    assert notes["size"] == len(order) == sum(part.kept for part in parts)
    assert precision(found[0], "zh") < 0.85 < 0.95 < precision(found[0], "en")
    assert all(0.87 < precision(found[500], language) < 0.93 for language in ("en", "zh"))
    assert [part.language for part in parts] == ["en", "zh", None] and parts[2].pages == 450
    first, second, rest = promised["languages"]
    assert first["threshold"] < second["threshold"] and first["pages"] == 3000 and first["hosts"] == 90
    assert rest == {"language": None, "kept": 0, "threshold": None}  # 40 held-out pages prove too little
    for row in (first, second):
        assert row["ci95"][0] < 0.9 <= row["precision"] < row["ci95"][1]
    assert promised["ci95"][0] < promised["precision"] < promised["ci95"][1]
    table = {"set": ["a"] * 3, "math": [True] * 3, "score": [second["threshold"] - 0.01] * 3}
    pq.write_table(
        pa.table(table | {"language": ["en", "zh", "ja"]}), folder / "train/out_of_distribution.parquet"
    )
    least = {part.language: part.least for part in parts}
    assert recall_at(folder / "train", 0.0, least) == {"a": round(1 / 3, 6)}
