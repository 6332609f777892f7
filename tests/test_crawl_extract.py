"""Extraction: pages and rejections, text, character sets, both command-line forms."""

import gzip
import json
import sys
import zlib

import brotli
import pytest
from crawl_warcs import FILLER, RECORDS, URLS, WEB, extract_into, html, program, record, write_warc
from killing import survives_kills

from pipeline.core.data.shards import read_documents, read_table
from pipeline.crawl import http_decoding, text_decoding
from pipeline.crawl.language import detect_language


def extract(folder, *records, **config):
    """Run the stage on records; returns its documents by URL, its rows and its counts."""
    write_warc(folder / "a.warc.gz", records)
    out = extract_into(folder / "out", folder / "a.warc.gz", **config)
    documents = {page.metadata["url"]: page for page in read_documents(out / "pages.jsonl.zst")}
    rows = read_table(out / "records.parquet").to_pylist()
    return documents, rows, json.loads((out / "manifest.json").read_text())["counts"]


def of_type(value):
    return {"http": f"HTTP/1.1 200 OK\r\nContent-Type: {value}\r\n"}


PACKED = {"http": "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n"}
GONE = {"http": "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n"}
IDENTIFIED = of_type("application/octet-stream") | {"headers": "WARC-Identified-Payload-Type: text/html\r\n"}
TEXT = FILLER.encode() * 2
RESPONSES = [  # URL, body, how it is sent, why it is rejected
    (b"http://good.org/", html("fine"), {}, None),
    (b"<http://angle.org/>", html("wget"), {}, None),
    (b"http://gzip.org/", gzip.compress(html("packed")), PACKED, None),
    (b"http://unpacked.org/", html("the header lies"), PACKED, None),
    (b"http://untyped.org/", html("no type"), {"http": "HTTP/1.1 200 OK\r\n"}, None),
    (b"http://shouted.org/", html("fine"), of_type("TEXT/HTML"), None),
    (b"http://no-semicolon.org/", html("fine"), of_type("text/html charset=utf-8"), None),
    (b"http://doubled.org/", html("fine"), of_type("text/html, text/html"), None),
    (b"http://xhtml.org/", html("fine"), of_type("text/xml"), None),
    (b"http://feed.org/", b"<?xml version='1.0'?><rss>" + TEXT + b"</rss>", of_type("text/xml"), "not_html"),
    (b"http://identified.org/", html("fine"), IDENTIFIED, None),
    (b"http://null.org/", html("a\0b"), {}, None),
    (b"http://gone.org/", html("x"), GONE, "http_status"),
    (b"http://pdf.org/", b"%PDF", of_type("application/pdf"), "not_html"),
    (b"http://pdf-as-html.org/", b"%PDF-1.4 " + bytes(range(256)) * 9, {}, "not_html"),
    (
        b"http://noise.org/",
        html("") + bytes(range(128, 256)) * 20,
        of_type("text/html; charset=utf-8"),
        "undecodable",
    ),
    (b"http://bomb.org/", gzip.compress(bytes(3_000_000)), PACKED, "too_large"),
    (b"http://big.org/", html("x" * 2_000_000), {}, "too_large"),
    (b"http://empty.org/", b"", {}, "empty"),
    (b"http://short.org/", b"<p>Hello</p>", {}, "too_short"),
    (b"http://deep.org/", b"<div>" * 100_000 + b"deep down \\(x^2\\) " + TEXT, {}, None),
    (b"http://nested.org/", b"<div>\n" * 10_000 + TEXT + b"</div>\n" * 10_000, {}, None),
    (b"http://mrow.org/", TEXT + b"<math>" + b"<mrow>" * 10_000, {}, "too_deep"),
    (
        b"http://charset.org/",
        html("fine") + b" \xff\xfe",
        of_type("text/html; charset=no-such-charset"),
        None,
    ),
    (b"http://nulls.org/", b"\0" * 50_000 + html("after nulls"), {}, None),
    (b"http://bytes.org/caf\xe9?q=\xa8\xbd", TEXT, {}, None),
    (b"http://\xff.org/", html("x"), {}, "bad_url"),
    (b"dns:a.org", html("x"), {}, "not_http_url"),
    (b"http://[bad/", html("x"), {}, "bad_url"),
    (b"http://nohttp.org/", html("x"), {"http": "no status line\r\n"}, "no_http_header"),
]


def test_every_response_becomes_a_page_or_a_rejection_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.crawl.extract.MAX_PAGE_BYTES", 1_000_000)
    records = [record(url, body, **sent) for url, body, sent, _ in RESPONSES]
    documents, rows, counts = extract(tmp_path, *records, record(URLS[0], b"GET", kind="request"))
    shown = [url.decode(errors="backslashreplace").strip("<>") for url, *_ in RESPONSES]
    percent = "http://bytes.org/caf%E9?q=%A8%BD"
    shown = [percent if url.startswith("http://bytes.org") else url for url in shown]
    found = {row["url"]: row["reason"] for row in rows}
    assert found == dict(zip(shown, (reason for *_, reason in RESPONSES), strict=True))
    assert set(documents) == {url for url, reason in found.items() if reason is None}
    assert "deep down $x^2$" in documents["http://deep.org/"].text
    assert "ab" in documents["http://null.org/"].text and "packed" in documents["http://gzip.org/"].text
    assert counts["responses"] == len(RESPONSES) and counts["records"] == len(RESPONSES) + 1
    rejected = sum(count for name, count in counts.items() if "rejected" in name)
    assert counts["pages"] + rejected == len(RESPONSES)
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["counters"] == {"fastwarc.records": len(RESPONSES) + 1, "resiliparse.pages": 16}
    assert run["cpu_seconds"] > 0 and run["peak_rss_mb"] > 0


def test_one_page_costs_no_more_than_its_time_and_memory_and_the_next_ones_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.crawl.extract.PAGE_SECONDS", 1.0)
    monkeypatch.setattr("pipeline.crawl.extract.PAGE_MEMORY", 200_000_000)
    slow = html("<math><mi>x</mi></math>" * 100_000)
    big = html("<b>x</b>" * 1_000_000)
    records = [
        RECORDS[0],
        record("http://slow.org/", slow),
        RECORDS[1],
        record("http://big.org/", big),
        *RECORDS[2:],
    ]
    documents, rows, counts = extract(tmp_path, *records)
    assert {row["url"]: row["reason"] for row in rows if row["reason"]} == {
        "http://slow.org/": "too_slow",
        "http://big.org/": "out_of_memory",
    }
    assert set(documents) == set(URLS) and counts["responses"] == 7 and counts["lost_bytes"] == 0
    assert counts["records"] == 7, "each once, however often the file was read again"
    assert all(row["offset"] is not None and row["length"] > 0 for row in rows)


def test_bodies_are_decoded_as_far_as_they_can_be():
    page = html("A body of text. " * 200)
    chunked = (
        b"".join(b"%x;ext\r\n%s\r\n" % (len(part), part) for part in (page[:100], page[100:])) + b"0\r\n\r\n"
    )
    raw = zlib.compressobj(wbits=-15)
    bare = raw.compress(page) + raw.flush()
    packed = gzip.compress(page)
    whole = [
        (page, "", ""), (page, "gzip", "chunked"), (page, "br", ""), (page, "deflate", ""),
        (page, "zstd", ""),
        (chunked, "", "chunked"), (packed, "gzip", ""), (packed, "x-gzip", ""), (packed, "", ""),
        (packed, "gzip", "gzip"), (gzip.compress(packed), "gzip", ""), (bare, "deflate", ""),
        (zlib.compress(page), "deflate", ""), (brotli.compress(page), "br", ""),
        (gzip.compress(brotli.compress(page)), "br, gzip", ""), (packed, "", "gzip, chunked"),
    ]  # fmt: skip
    for body, content, transfer in whole:
        assert http_decoding.decode_body(body, content, transfer, 100_000) == page, (content, transfer)
    for body, content in ((packed[:-30], "gzip"), (zlib.compress(page)[:-9], "deflate")):
        assert page.startswith(http_decoding.decode_body(body, content, "", 100_000)[:50])
    words = " ".join(f"word{number * number}" for number in range(3000)).encode()
    found = http_decoding.decode_body(brotli.compress(words)[:-100], "br", "", 100_000)
    assert words.startswith(found) and len(found) > 0.9 * len(words)
    assert len(http_decoding.decode_body(chunked[:150], "", "chunked", 100_000)) == 150 - len(
        b"64;ext\r\n\r\nabc;ext\r\n"
    )
    assert http_decoding.decode_body(chunked[:110] + b"no chunk", "", "chunked", 1000).startswith(page[:50])
    bomb = gzip.compress(gzip.compress(bytes(30_000_000)))
    for body, content in ((bomb, "gzip"), (bomb, ""), (brotli.compress(bytes(3_000_000)), "br")):
        with pytest.raises(http_decoding.Unusable, match="too_large"):
            http_decoding.decode_body(body, content, "", 1_000_000)
    for body, content in ((b"\x1f\x8b\x08" + bytes(range(50)), "gzip"), (bytes(range(200)), "br")):
        with pytest.raises(http_decoding.Unusable, match="bad_encoding"):
            http_decoding.decode_body(body, content, "", 1_000_000)


def test_a_wet_file_is_read_as_text(tmp_path):
    wet = record("http://a.org/", ("数学 " + FILLER * 2).encode(), kind="conversion")
    documents, rows, _ = extract(tmp_path, wet)
    assert documents["http://a.org/"].text.startswith("数学 The rest") and rows[0]["status"] == "extracted"


def test_runs_repeat_byte_for_byte_in_both_forms(tmp_path):
    write_warc(tmp_path / "a.warc.gz", RECORDS)
    places = {"work": "w", "output": "stage/data", "manifest": "stage/manifest.json"}
    folders = [f"--{name}={tmp_path / place}" for name, place in places.items()]
    assert program("extract", "--input", f"warc={tmp_path}/*.warc.gz", *folders).returncode == 0
    for name in ("one", "two"):
        extract_into(tmp_path / name, tmp_path / "a.warc.gz")
    for file in ("pages.jsonl.zst", "records.parquet"):
        assert len({(tmp_path / name / file).read_bytes() for name in ("one", "two", "stage/data")}) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.warc.gz", "one", "stage", "two", "w"]


def test_missing_files_and_bad_keys_are_one_line(tmp_path, capsys):
    done = program("extract", "--warc", tmp_path / "none.warc.gz", "--output", tmp_path / "out")
    assert (done.returncode, done.stderr.strip().splitlines()[-1]) == (
        2,
        f"error: {tmp_path}/none.warc.gz: no such WARC file",
    )
    write_warc(tmp_path / "a.warc.gz", RECORDS)
    with pytest.raises(SystemExit, match="2"):
        extract_into(tmp_path / "out", tmp_path / "a.warc.gz", nme=1)
    assert "crawl.nme" in capsys.readouterr().err and not (tmp_path / "out").exists()
    shown = program("extract", "--help").stdout
    assert "--warc" in shown and "files_per_shard" in shown


def test_character_sets_are_found_where_headers_lie_or_lack():
    chinese, german = "设函数在闭区间上连续，则它有界。" * 20, "Für große Übungen: Größe, Maß, Lösung. " * 20
    meta = '<meta charset="{}">'
    cases = [
        (chinese.encode("gbk"), "gb2312", chinese),
        ((meta.format("gb2312") + chinese).encode("gbk"), None, chinese),
        (chinese.encode("gb18030"), None, chinese),
        ((meta.format("iso-8859-1") + german).encode(), None, german),
        (german.encode("iso-8859-1"), "iso-8859-1", german),
        (german.encode("cp1252"), "utf-8", german),
        (german.encode("utf-16"), None, german),
        (german.encode("utf-8-sig"), "iso-8859-1", german),
        (german.encode(), "no-such-charset", german),
        (chinese.encode()[:-1], "utf-8", chinese[:-1]),
    ]
    for body, declared, expected in cases:
        assert text_decoding.decode_text(body, declared)[0].endswith(expected), (declared, body[:30])
    traditional, japanese, french = (
        "設函數在閉區間上連續，則它有界。" * 20,
        "関数が閉区間で連続ならば有界である。" * 20,
        "L’été où « nous » étions là… déjà vu. " * 20,
    )
    russian, greek, polish, quoted = (
        "Теорема говорит о сумме углов треугольника. " * 20,
        "Το θεώρημα λέει ότι το τετράγωνο της υποτείνουσας είναι ίσο. " * 20,
        "Źródło: suma kątów każdego trójkąta jest równa stu osiemdziesięciu stopniom, żółw łąkę. " * 20,
        "He said “so it’s proved” – and “it’s clear”. " * 20,
    )
    twice = "".join(bytes([b]).decode("cp1252", "ignore") or chr(b) for b in french.encode()).encode()
    mislabelled = [
        (traditional.encode("big5"), "gb2312", traditional),
        (traditional.encode("big5"), "iso-8859-1", traditional),
        (japanese.encode("shift_jis"), "gbk", japanese),
        (japanese.encode("euc-jp"), "iso-8859-1", japanese),
        (chinese.encode("gbk"), "euc-kr", chinese),
        (twice, "utf-8", french),
        *((russian.encode(name), "iso-8859-1", russian) for name in ("cp1251", "koi8-r", "iso8859-5")),
        (greek.encode("iso8859-7"), "iso-8859-1", greek),
        (polish.encode("iso8859-2"), "windows-1252", polish),
        (quoted.encode("cp1252"), "iso-8859-1", quoted),
        (japanese.encode("iso2022-jp"), None, japanese),
    ]
    for body, declared, expected in mislabelled:
        assert text_decoding.decode_text(body, declared)[0] == expected, (declared, expected[:10])
    broken, _ = text_decoding.decode_text(b"abc \xff\xfe\x81 def" * 20, "utf-8")
    assert "abc" in broken and "def" in broken


def test_language_of_chinese_pages_full_of_formulas_is_chinese():
    page = r"证明：设 $f(x) = \sum_{n=0}^{\infty} a_n x^n$，则 $\lim_{x \to 0} f(x) = a_0$。" * 5
    assert detect_language(page) == "zh"
    assert detect_language("これは数学の本です。" * 10) == "ja"
    assert detect_language("이것은 수학 책입니다. " * 10) == "ko"
    assert detect_language(FILLER * 3 + "数学") == "en"


def test_a_run_killed_while_it_writes_and_repeated_gives_the_same_bytes(tmp_path):
    formulas = "".join(f"<p>Case {n}: <math><mi>x</mi><mo>=</mo><mn>{n}</mn></math></p>" for n in range(40))
    pages = [record(f"http://a.org/{n}", html(f"Page {n}. {FILLER}{formulas}")) for n in range(200)]
    for number, some in enumerate((pages[:20], pages[20:])):
        write_warc(tmp_path / f"{number}.warc.gz", some)
    files = [f"--warc={tmp_path / name}" for name in ("0.warc.gz", "1.warc.gz")]
    command = [sys.executable, "-m", "pipeline.crawl.extract", *files, f"--output={tmp_path / 'out'}"]
    moments = [f"files/.00000{file}/.pages.jsonl.zst.*.partial" for file in (0, 1, 1)]
    survives_kills(command, tmp_path / "out", tmp_path / ".out.work", moments)
    assert {path.name for path in tmp_path.iterdir()} == {"0.warc.gz", "1.warc.gz", "out", "undisturbed"}


@pytest.mark.skipif(not WEB.exists(), reason="the real test pages are not here")
def test_real_pages_keep_lineage_charset_and_language(tmp_path):
    labels = {label["url"]: label for label in map(json.loads, (WEB / "labels.jsonl").open())}
    out = extract_into(tmp_path / "out", WEB / "pages-03.warc.gz")
    rows = read_table(out / "records.parquet").to_pylist()
    assert len(rows) == 272
    for row in rows:
        label = labels[row["url"]]
        lineage = (label["warc_offset"], label["warc_length"], label["payload_digest"])
        assert (row["offset"], row["length"], row["digest"]) == lineage
    chinese = [
        row["language"] == "zh" for row in rows if labels[row["url"]]["language"] == "zh" and row["language"]
    ]
    english = [
        row["language"] == "en" for row in rows if labels[row["url"]]["language"] == "en" and row["language"]
    ]
    assert sum(chinese) == len(chinese) > 20 and sum(english) >= 0.96 * len(english)
