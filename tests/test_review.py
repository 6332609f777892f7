"""The review of URL prefixes: the annotation file, the server's guard, and the page in a real browser; there,
too, the pages of a crawl in the report.
"""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from browser import Browser, browser
from datatrove.data import Document

from pipeline.cli.local_page import LocalServer
from pipeline.cli.review.__main__ import last_iteration, main, next_round, open_review
from pipeline.cli.review.server import serve
from pipeline.cli.review.verdicts import Verdicts, agreement, decided
from pipeline.core.data.database import database
from pipeline.core.data.shards import DocumentWriter
from pipeline.core.errors import InputError
from pipeline.core.manifest import SCHEMA
from pipeline.corpus.review_queue import QUEUE
from pipeline.report.collect import Finished, Run
from pipeline.report.pages import BECAME, write_pages

ROUNDS = [f"notes/{number}.tsv" for number in (1, 2, 3)]
MANIFEST = {"schema": SCHEMA, "config": {"reviewed": "uncollected"}, "files": {}}
HOSTILE = "<script>document.title = 'broken'</script><img src=x onerror=\"document.title = 'broken'\">"
TEXTS = {"mix.org/b/": f"A text {HOSTILE} with $x^2$ and $$\\frac12$$.", "mix.org/c/": "Prices & news."}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Results of a run with a queue of a dozen hosts and one that is split."""
    run, rows = tmp_path / "results/mine", []
    pool = run / "crawl/dedup/data/pool/0000.jsonl.zst"
    prefixes = [(f"h{number:02d}.org/", 6) for number in range(11)] + [("mix.org/b/", 12), ("mix.org/c/", 8)]
    with DocumentWriter(pool) as writer:
        for prefix, count in prefixes:
            for page in range(count):
                path = "deep/" if page % 2 else ""
                url, kept = f"https://{prefix}{path}{page}", page < count // 2
                writer.write(Document(TEXTS.get(prefix, f"Page {page} of {prefix}"), url, [], {"url": url}))
                rows.append((prefix, url, url, 3.0 - page, pool.name, kept))
    select = run / "corpus/iteration-3/select"
    (select / "data").mkdir(parents=True)
    table = [dict(zip(QUEUE.names, row, strict=True)) for row in rows]
    pq.write_table(pa.Table.from_pylist(table, QUEUE), select / "data/queue.parquet")
    (select / "manifest.json").write_text(json.dumps(MANIFEST))
    (select / "run.json").write_text(json.dumps({"inputs": {"annotations": ROUNDS}}))
    return run


@pytest.fixture
def served(run: Path, tmp_path: Path) -> Iterator[LocalServer]:
    """The review as `ann`, on `notes/4.tsv`, which `bob` has begun."""
    (tmp_path / "notes").mkdir()
    notes = tmp_path / "notes/4.tsv"
    notes.write_text("prefix\tverdict\tannotator\tdate\tmine\nh00.org\tmath\tbob\t\tx\nh01.org/\t\t\t\t\n")
    with database(tmp_path / "join", {}) as joins:
        server = serve(open_review(run, last_iteration(run), joins, Verdicts(notes, "ann")), 0)
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def request(server: LocalServer, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
    """Status and body of a request with the page's own headers, but for those given; "" leaves one out."""
    given = {"Host": f"127.0.0.1:{server.server_port}"} | headers
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    connection.putrequest(method, path, skip_host=True)
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    given |= {} if body is None or "Content_Length" in headers else {"Content_Length": str(len(content))}
    for name, value in given.items():
        if value:
            connection.putheader(name.replace("_", "-"), value)
    connection.endheaders(content if body is not None else None)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_only_the_page_itself_is_answered_and_no_file_is_served(served: LocalServer) -> None:
    path = served.place
    assert request(served, "GET", path)[0] == request(served, "GET", f"{path}start")[0] == 200
    for method, asked, headers in (
        ("GET", path, {"Host": "evil.example"}),
        ("GET", path, {"Host": ""}),
        ("GET", path, {"Sec_Fetch_Site": "cross-site"}),
        ("GET", f"{path}start", {"Origin": "https://evil.example"}),
        ("GET", f"{path}start", {"Origin": "null"}),
        ("POST", f"{path}verdict", {"Host": f"evil.example:{served.server_port}"}),
    ):
        assert request(served, method, asked, {} if method == "POST" else None, **headers)[0] == 403
    for asked in ("/", "/start", f"{path[:-2]}x/start", f"{path}verdict", f"{path}../4.tsv", "//etc/passwd"):
        assert request(served, "GET", asked)[0] == 404
    for asked in ("/verdict", f"{path}start", path):
        assert request(served, "POST", asked, {})[0] == 404
    good = {"prefix": "h02.org/", "path": "h02.org/", "verdict": "math"}
    changes = ({"prefix": "z.org/"}, {"path": "h03.org/"}, {"verdict": "x"}, {"path": 5})
    changes += ({"path": "h02.org/a\tb"}, {"evidence": "a\nb"})
    for body in ([], b"{", {"prefix": 1}, *(good | change for change in changes)):
        assert request(served, "POST", f"{path}verdict", body)[0] == 400
    assert request(served, "POST", f"{path}verdict", b"{}", Content_Length="99999999")[0] == 400
    assert request(served, "GET", f"{path}page?prefix=h02.org/&id=../../4.tsv")[0] == 400
    assert "\tann\t" not in Path(json.loads(request(served, "GET", f"{path}start")[1])["output"]).read_text()


def test_each_verdict_is_in_the_file_at_once_and_others_lines_stay(tmp_path: Path) -> None:
    path = tmp_path / "new/2.tsv"
    ann, bob = Verdicts(path, "ann"), Verdicts(path, "bob")
    ann.give("a.org/", "math", "3 of 9 pages read")
    bob.give("a.org/", "not_math", "")
    bob.give("b.org/x/", "unsure", "")
    ann.give("A.org", "unsure", "")
    assert [(row["prefix"], row["verdict"], row["annotator"]) for row in ann.rows()] == [
        ("a.org/", "not_math", "bob"),
        ("b.org/x/", "unsure", "bob"),
        ("A.org", "unsure", "ann"),
    ]
    bob.give("b.org/x/", "", "")
    assert ann.by_prefix() == {"a.org": {"bob": "not_math", "ann": "unsure"}}
    assert decided(ann.by_prefix()) == {"a.org": "unsure"} and len(list(path.parent.iterdir())) == 2
    for annotator in ("", "a\tb"):
        with pytest.raises(InputError, match="--annotator"):
            Verdicts(path, annotator)
    path.write_text("nothing\n")
    with pytest.raises(InputError, match="must name the columns"):
        Verdicts(path, "ann")


def test_agreement_is_told_apart_from_chance() -> None:
    both = ["math math"] * 4 + ["not_math not_math"] * 3 + ["math not_math"] * 2 + ["unsure math"]
    found = {str(n): dict(zip(("ann", "bob"), pair.split(), strict=True)) for n, pair in enumerate(both)}
    (row,) = agreement(found | {"other": {"ann": "math"}})
    assert (row["annotators"], row["both"], row["same"]) == (("ann", "bob"), 10, 7)
    assert row["kappa"] == pytest.approx((0.7 - 0.45) / (1 - 0.45))  # chance: 6 x 5 + 3 x 5 of 100
    assert agreement({"a": {"ann": "math", "bob": "math"}})[0]["kappa"] is None and agreement({}) == []


def test_the_next_round_is_the_file_after_those_that_the_selection_has_read(run: Path) -> None:
    manifest = run / "corpus/iteration-3/select/manifest.json"
    assert next_round(manifest) == Path("notes/4.tsv")
    for names in ([], ["results/x/miniweb/data/annotations.tsv"], ["notes/all.tsv"], ROUNDS[1:]):
        manifest.with_name("run.json").write_text(json.dumps({"inputs": {"annotations": names}}))
        with pytest.raises(InputError, match="--output: name an annotation file"):
            next_round(manifest)


def test_a_run_without_a_selection_is_one_line(tmp_path: Path, run: Path) -> None:
    assert last_iteration(run) == 3
    with pytest.raises(SystemExit, match=f"error: {tmp_path}: no finished iteration"):
        main([str(tmp_path), "--output", str(tmp_path / "1.tsv"), "--annotator", "ann"])


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def test_ten_prefixes_are_reviewed_in_a_browser_by_keys_and_mouse(
    served: LocalServer, tmp_path: Path, page: Browser
) -> None:
    notes = tmp_path / "notes/4.tsv"
    page.open(served.address, "detail && document.querySelector('#text').textContent")
    here = "document.querySelector('#queue [aria-current=true]').textContent"
    assert page.js(here).startswith("mix.org/b/ 6 of 12")  # most uncertain pages
    assert "judged" in page.js("document.querySelector('#progress').textContent")
    page.wait("document.querySelectorAll('#text math').length === 2")  # formulas are drawn
    assert "<script>" in page.js("document.querySelector('#text').textContent")
    assert page.js("document.title") == "Review of URL prefixes" and not page.js("document.images.length")
    page.press("ArrowDown")
    page.wait("document.querySelector('#preview strong').textContent === 'mix.org/b/deep/'")
    assert "3 pages more for the seed" in page.js("document.querySelector('#preview').textContent")
    page.press("n")
    page.wait("document.querySelector('#paths .not_math')")
    page.click("#queue li:nth-child(2) button")
    page.wait(f"{here}.startsWith('mix.org/c/')")
    page.press("j")
    page.wait("document.querySelector('#samples li:nth-child(2) [aria-current=true]')")
    page.click("[data-verdict=math]")
    for key in "mnusmnumz":
        page.press(key)
    page.wait("busy.then(() => true)")
    effect = page.js("document.querySelector('#effect').textContent")
    page.js("$('which').value = 'second', $('which').dispatchEvent(new Event('change')), busy")
    assert page.js(here) == "h00.org/  bob3 of 6"  # nobody is told the other's verdict before giving his own
    page.press("n")
    page.wait("busy.then(() => true)")
    agreed = page.js("document.querySelector('#agreement').textContent")
    assert agreed == "ann and bob agree on 0 of 1, kappa 0.00"
    page.press("z")
    page.wait("busy.then(() => true)")
    assert page.js("document.querySelector('#message').textContent") == ""
    verdicts = {row["prefix"]: row for row in Verdicts(notes, "ann").rows() if row["annotator"] == "ann"}
    assert {prefix: row["verdict"] for prefix, row in verdicts.items()} == {
        "mix.org/b/deep/": "not_math", "mix.org/c/": "math", "h01.org/": "math",
        "h02.org/": "not_math", "h03.org/": "unsure", "h05.org/": "math",
        "h06.org/": "not_math", "h07.org/": "unsure",
    }  # fmt: skip
    assert verdicts["mix.org/c/"]["evidence"] == "2 of 8 pages read, 4 kept"
    assert effect == "In effect: 13 pages for the seed, 9 kept pages to go"
    assert "bob\t" in notes.read_text() and "\tx" in notes.read_text()


def finished(folder: Path, name: str, **tables: list[dict[str, Any]]) -> Finished:
    data = folder / name / "data"
    data.mkdir(parents=True)
    for table, rows in tables.items():
        pq.write_table(pa.Table.from_pylist(rows), data / f"{table}.parquet")
    return Finished(name, data, {}, {})


def crawl(folder: Path) -> Run:
    """Two iterations over two shards: four pages in the pool, one duplicate and one rejected page."""
    texts = [f"Groups and $x^2$ {HOSTILE}", "News of the day", "A shop", "Rings"]
    urls = [f"https://a.org/{'<b>' if number == 1 else number}" for number in range(4)]
    results = [finished(folder, "crawl/dedup")]
    for shard in range(2):
        with DocumentWriter(results[0].data / f"pool/{shard:04d}.jsonl.zst") as writer:
            for number in (2 * shard, 2 * shard + 1):
                writer.write(Document(texts[number], f"id{number}", [], {}))
    for iteration, scores in ((1, (3.0, -2.0, -1.0, 0.5)), (2, (4.0, -3.0, 2.5, 1.5))):
        name = f"corpus/iteration-{iteration}"
        rows = [
            dict(id=f"id{number}", url=urls[number], shard=f"{number // 2:04d}.jsonl.zst", score=score)
            for number, score in enumerate(scores)
        ]
        results += [finished(folder, f"{name}/score-{n:04d}", scores=rows[2 * n : 2 * n + 2]) for n in (0, 1)]
        kept = [row for row in rows if row["score"] > 1 and row["id"] != "id2"]
        excluded = [{"id": "id2", "reason": ("blocklist", "not_math")[iteration - 1]}]
        results.append(finished(folder, f"{name}/select", kept=kept, excluded=excluded))
        (results[-1].data / "metrics.json").write_text(json.dumps({"iteration": iteration}))
    names = ("url", "status", "reason", "contaminated_by")
    fates = [
        (urls[0], "kept", None, None),
        (urls[1], "below_cut", "score", None),
        (urls[2], "excluded", "not_math", None),
        (urls[3], "contaminated", "words", "gsm8k/7"),
        ("https://b.org/copy", "duplicate", "near", None),
        (urls[0], "rejected", "too_short", None),
    ]
    more = {"language": "en", "duplicate_of": urls[0]}
    rows = [dict(zip(names, fate, strict=True)) | more for fate in fates]
    results.append(finished(folder, BECAME, pages=rows))
    return Run("mine", {result.name: result for result in results})


def test_tables_of_parts_of_the_pool_give_the_page_of_one_table(tmp_path: Path) -> None:
    run, found = crawl(tmp_path / "results"), []
    data = run.finished[BECAME].data
    for _ in range(2):
        write_pages(run, tmp_path, tmp_path / "work", {})
        found.append((tmp_path / "pages/index.js").read_bytes())
        if (data / "pages.parquet").exists():
            rows = pq.read_table(data / "pages.parquet")
            (data / "pages").mkdir()
            for part, own in enumerate(([0, 1], [2, 3, 4, 5])):
                pq.write_table(rows.take(own), data / f"pages/{part:04d}.parquet")
            (data / "pages.parquet").unlink()
    assert found[0] == found[1]


def test_any_page_of_the_crawl_is_found_with_its_scores_and_its_fate(tmp_path: Path, page: Browser) -> None:
    write_pages(crawl(tmp_path / "results"), tmp_path, tmp_path / "work", {})
    shown = "[...document.querySelectorAll('#page td')].map(cell => cell.textContent).join(' ')"
    fate, text = (f"document.querySelector('{name}').textContent" for name in ("#fate", "#text"))
    listed = "document.querySelectorAll('#list li').length"

    def search(field: str, value: str, found: int) -> None:
        page.js(f"document.querySelector('[name={field}]').select()")
        page.do("Input.insertText", text=value)
        page.js("document.activeElement.blur()")  # as the Enter key does: the words of the text count now
        page.wait(f"{listed} === {found} && ({found} === 0 || {text} !== '')")

    page.open(
        (tmp_path / "pages.html").as_uri() + "#https%3A%2F%2Fa.org%2F3",
        f"{listed} === 1 && {text} === 'Rings'",
    )
    assert page.js(shown) == "0.50 3.00 below the cut 1.50 1.50 kept"
    assert page.js(fate).startswith(
        "Not in the corpus: it shares text with the benchmark item gsm8k/7 (words)"
    )
    search("url", "A.org", 5)
    assert page.js(fate).startswith("Not in the corpus: it shares")  # the chosen page stays
    search("url", "<b>", 1)
    assert (
        page.js(fate) == "Not in the corpus: its score is below the cut of the last iteration. Language: en."
    )
    search("url", "org/2", 1)
    assert "never kept: a reviewer found its prefix not mathematical" in page.js(shown)
    assert "never kept: a blocklist names its domain" in page.js(shown)
    search("url", "copy", 1)
    assert page.js(fate).startswith("A duplicate (near) of https://a.org/0, which") and not page.js(
        "document.querySelector('#page table').offsetHeight"
    )
    search("url", "", 6)
    search("words", "GROUPS", 1)
    assert page.js(shown).startswith("3.00 3.00 kept") and page.js(fate).startswith("In the corpus.")
    assert page.js("document.querySelectorAll('#text math').length") == 1  # the formula is drawn
    assert "<script>" in page.js(text) and page.js("document.title").startswith("Pages of mine")
    search("words", "nowhere", 0)
    (tmp_path / "pages/text-0.js").unlink()
    page.open("about:blank", "true")
    page.open(
        (tmp_path / "pages.html").as_uri(), f"{text}.startsWith('pages/text-0.js is not beside this page')"
    )
