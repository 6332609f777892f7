"""Tokenizer, token files and mixtures: what training reads is exactly what the configuration says."""

import gzip
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from given.instances import graph_of, open_stage
from given.lines import write_lines
from tiny_model import save_mixture

from pipeline.config.tokens import MixtureNode, TokensSection
from pipeline.core.data.rows import read_rows
from pipeline.core.stage import InputError, Stage
from pipeline.tokens.__main__ import run as tokenise
from pipeline.tokens.files import TokenFile, write_tokens
from pipeline.tokens.mixture import Mixture, permute, schedule
from pipeline.tokens.texts import read_texts
from pipeline.tokens.tokenizer import run as train_tokenizer
from pipeline.training.chat import encode, encode_chat, encode_documents
from pipeline.training.packing import IGNORE

PAPER_SHARES = [56, 4, 10, 20, 10]
TEXTS = [
    f"Tom has {n} apples and buys {3 * n} more. He has {n} + {3 * n} = {4 * n} apples. 答案是 {4 * n}。"
    for n in range(1, 60)
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_lines(tmp_path_factory.mktemp("corpus") / "pages.jsonl", [{"text": text} for text in TEXTS])


@pytest.fixture(scope="module")
def tokenizer(corpus, tmp_path_factory):
    from transformers import AutoTokenizer

    made = open_stage(tmp_path_factory.mktemp("tokenizer"), TokensSection(vocabulary=400), {"text": corpus})
    train_tokenizer(made)
    return AutoTokenizer.from_pretrained(made.partial)


def test_numbers_split_into_digits_and_any_text_decodes_to_itself(tokenizer):
    text = "12345 apples, naïve façade 你好 \N{SNOWMAN}\n\ttab"
    (ids,) = encode(tokenizer, [text])
    assert tokenizer.decode(ids) == text
    assert [tokenizer.decode([token]) for token in ids[:5]] == list("12345")


def test_the_same_texts_give_the_same_tokenizer_bytes(corpus, tmp_path):
    made = [open_stage(tmp_path / name, TokensSection(vocabulary=400), {"text": corpus}) for name in "ab"]
    for one in made:
        train_tokenizer(one)
    first, second = ((one.partial / "tokenizer.json").read_bytes() for one in made)
    assert first == second


def test_a_special_tokens_name_inside_a_text_is_ordinary_text(tokenizer):
    (ids,) = encode_documents(tokenizer, ["an <eos> inside"])
    assert ids[0] == tokenizer.bos_token_id and ids.count(tokenizer.eos_token_id) == 1


def test_chat_ids_are_those_of_the_template_and_only_answers_are_learnt(tokenizer):
    messages = [
        {"role": "user", "content": "What is 2 + 3?"},
        {"role": "assistant", "content": "2 + 3 = 5"},
        {"role": "user", "content": "And 4?"},
        {"role": "assistant", "content": "4"},
    ]
    ids, own = encode_chat(tokenizer, messages)
    prompt = tokenizer.apply_chat_template(messages[:1], add_generation_prompt=True, return_dict=False)
    assert tokenizer.decode(prompt) == "<bos>User: What is 2 + 3?\n\nAssistant:"
    assert ids[: len(prompt)] == prompt and not any(own[: len(prompt)])
    assert tokenizer.decode(ids) == tokenizer.apply_chat_template(messages, tokenize=False)
    learnt = [token for token, is_own in zip(ids, own, strict=True) if is_own]
    assert tokenizer.decode(learnt) == " 2 + 3 = 5<eos> 4<eos>"


def test_tool_output_is_context(tokenizer):
    answer = (
        "```python\nprint(7)\n```\n```output\n7\n```\nIt is 7."  # it opens the fence: that asks for a run
    )
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": answer}]
    ids, own = encode_chat(tokenizer, messages)
    learnt = [token for token, is_own in zip(ids, own, strict=True) if is_own]
    assert tokenizer.decode(learnt) == " ```python\nprint(7)\n```\n```output\nIt is 7.<eos>"


@pytest.mark.parametrize(
    ("roles", "words"), [(["robot"], "unknown role 'robot'"), (["user", "user"], "turns alternate")]
)
def test_wrong_turns_are_named(tokenizer, roles, words):
    with pytest.raises(InputError, match=words):
        encode_chat(tokenizer, [{"role": role, "content": "x"} for role in roles])


def test_documents_come_back_from_the_token_file(tmp_path):
    documents = [[1, 2, 3], [4], [70_000 % 60_000, 6]]
    assert write_tokens(tmp_path / "a", [documents[:2], documents[2:]], "<u2") == (3, 6)
    file = TokenFile(tmp_path / "a", "<u2")
    assert np.split(file.tokens, file.ends[:-1].astype(int))[2].tolist() == documents[2]


def sparse_tokens(base: Path, documents: int, length: int) -> None:
    """A token file of so many documents of `length` zeros, of which the disk holds next to nothing."""
    with base.with_suffix(".bin").open("wb") as data, base.with_suffix(".idx").open("wb") as index:
        data.truncate(2 * documents * length)
        index.truncate(8 * documents - 8)
        index.seek(8 * documents - 8)
        index.write((documents * length).to_bytes(8, "little"))


def mapping(path: Path) -> dict[str, str]:
    """What Linux says of the memory map of a file in this process."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.endswith(str(path))]
    facts = itertools.takewhile(lambda line: line.split()[0].endswith(":"), lines[at + 1 :])
    return {name: value.strip() for name, _, value in (line.partition(":") for line in facts)}


def test_a_window_of_50_million_documents_touches_a_hundredth_of_their_index(tmp_path):
    sparse_tokens(tmp_path / "web", 50_000_000, 1000)
    file = TokenFile(tmp_path / "web", "<u2")
    for start in (0, 10**9, 49_999_995_000):
        assert len(file.piece(start, start + 4097)[0]) == 4097
    kilobytes = int(mapping(tmp_path / "web.idx")["Rss"].removesuffix(" kB"))
    assert 0 < kilobytes < 8 * 50_000_000 / 1000 / 100


def test_a_cold_read_fetches_no_more_than_what_is_asked_for(tmp_path):
    sparse_tokens(tmp_path / "web", 1000, 1000)
    file = TokenFile(tmp_path / "web", "<u2")
    assert len(file.tokens)
    for name in ("web.bin", "web.idx"):
        assert "rr" in mapping(tmp_path / name)["VmFlags"].split()  # MADV_RANDOM


@pytest.mark.parametrize(
    "shares", [PAPER_SHARES, [1], [1, 1, 1], [0.9997, 0.0001, 0.0002], [3, 5, 7, 11, 13, 17]]
)
def test_every_prefix_has_each_sources_share_within_one_sequence(shares):
    order = schedule(shares)
    length = 3 * len(order)
    prefix = np.arange(1, length + 1)
    for source, share in enumerate(shares):
        count = (np.resize(order, length) == source).cumsum()
        assert np.abs(count - share / sum(shares) * prefix).max() < 1


@pytest.mark.parametrize("size", [1, 2, 3, 64, 1000])
def test_the_permutation_visits_every_index_once_and_depends_on_its_key(size):
    orders = [[permute(index, size, key) for index in range(size)] for key in (1, 2)]
    assert sorted(orders[0]) == list(range(size))
    assert size < 64 or orders[0] != orders[1]


@pytest.fixture
def mixture_folder(corpus, tokenizer, tmp_path) -> Path:
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    sources = {name: {"data": "x", "share": share} for name, share in (("web", 3), ("code", 1))}
    inputs = {"tokenizer": tmp_path / "tokenizer", "source.web": corpus, "source.code": corpus}
    made = open_stage(tmp_path / "work", MixtureNode(sources=sources), inputs)
    tokenise(made)
    return made.partial


def many_files(folder: Path, tokenizer: object, name: str, processes: int = 2) -> Stage:
    """A mixture of one source of nine files: JSON lines, gzip, Parquet, an empty and a blank one."""
    files, saved = folder / "files", folder / "tokenizer"
    if not files.exists():
        files.mkdir()
        tokenizer.save_pretrained(saved)
        for n in range(5):
            write_lines(files / f"{n}.jsonl", [{"text": text} for text in TEXTS[n::5] * 40])
        with gzip.open(files / "5.jsonl.gz", "wt") as file:
            file.write(json.dumps({"messages": [{"role": "user", "content": "2 + 3?"}]}) + "\n")
        pq.write_table(pa.table({"text": TEXTS[:7]}), files / "6.parquet")
        (files / "7.jsonl").write_text("")
        (files / "8.jsonl").write_text(json.dumps({"text": " "}) + "\n")
    inputs, section = {"tokenizer": saved, "source.web": files}, MixtureNode(sources={"web": {"data": "x"}})
    return open_stage(folder / name, section, inputs, threads=processes)


def test_files_tokenised_side_by_side_or_after_a_kill_give_the_same_bytes(tokenizer, tmp_path):
    alone, killed = many_files(tmp_path, tokenizer, "one", 1), many_files(tmp_path, tokenizer, "two")
    counts = tokenise(alone)
    assert counts["documents.web"] == 40 * len(TEXTS) + 8 and counts["empty.web"] == 1
    process = multiprocessing.get_context("fork").Process(target=tokenise, args=(killed,))
    process.start()
    while not (done := list(killed.work.glob("parts/web/*.json"))) and process.is_alive():
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL and done
    written = {path.with_suffix(".bin"): path.with_suffix(".bin").stat().st_mtime_ns for path in done}
    again(killed, counts)
    assert all(path.stat().st_mtime_ns == time_ns for path, time_ns in written.items())  # not done again
    assert contents(killed.partial) == contents(alone.partial)


def again(made: Stage, counts: dict) -> None:
    """Tokenise in the work folder of a killed run, which loses only what was to be published."""
    shutil.rmtree(made.partial)
    made.partial.mkdir()
    assert tokenise(made) == counts


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and "tokenizer" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_joining_the_files_of_a_source_copies_no_token(tokenizer, tmp_path):
    made = many_files(tmp_path, tokenizer, "one", 1)
    counts = tokenise(made)
    parts = json.loads((made.partial / "tokens.json").read_text())["sources"]["web"]["parts"]
    assert [part["documents"] for part in parts] == [480, 480, 480, 480, 440, 1, 7]  # no empty file
    assert sum(part["tokens"] for part in parts) == counts["tokens.web"]
    tokenised = {path.stat().st_ino for path in made.work.glob("parts/web/*") if path.stat().st_nlink > 1}
    published = {path.stat().st_ino for path in made.partial.glob("parts/web/*")}
    assert tokenised == published and len(published) == 2 * len(parts)
    again(made, counts)  # killed before it was published: the files are the same, nothing is tokenised again
    assert {path.stat().st_ino for path in made.partial.glob("parts/web/*")} == published


@pytest.mark.parametrize("names", [("code.py", "code.js"), ("tokenizer", "parts")])
def test_sources_of_any_names_keep_their_own_tokens(corpus, tokenizer, tmp_path, names):
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    inputs = {"tokenizer": tmp_path / "tokenizer"}
    for name in names:
        inputs[f"source.{name}"] = write_lines(tmp_path / f"{name}.jsonl", [{"text": f"from {name} " * 9}])
    made = open_stage(tmp_path / "work", MixtureNode(sources={name: {"data": "x"} for name in names}), inputs)
    tokenise(made)
    mixture = Mixture(made.partial, context=8, seed=0)
    for number, name in enumerate(mixture.names):
        tokens, _ = mixture.files[number].window(0, 8)
        assert tokenizer.decode(tokens[1:]) in f"from {name} " * 9


def test_a_source_is_decontaminated_where_it_asks_for_that_and_its_removals_are_listed(tokenizer, tmp_path):
    question = (
        "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May."
    )
    rows = [{"text": text} for text in (TEXTS[0], f"Homework: {question} How many?", " ", TEXTS[1])]
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    inputs = {"tokenizer": tmp_path / "tokenizer"}
    inputs |= {f"source.{name}": write_lines(tmp_path / f"{name}.jsonl", rows) for name in ("web", "own")}
    inputs["benchmark.test"] = write_lines(tmp_path / "test.jsonl", [{"id": "7", "question": question}])
    section = MixtureNode(sources={"web": {"data": "x", "decontaminate": True}, "own": {"data": "x"}})
    made = open_stage(tmp_path / "work", section, inputs)
    counts = tokenise(made)
    assert (counts["documents.web"], counts["removed.web"], counts["empty.web"]) == (2, 1, 1)
    assert counts["documents.own"] == 3 and "removed.own" not in counts
    (row,) = map(json.loads, (made.partial / "removals.jsonl").read_text().splitlines())
    assert (row["source"], row["file"], row["document"], row["benchmark"], row["item"]) == (
        "web", "web.jsonl", 1, "test", "7",
    )  # fmt: skip
    assert row["gram"].startswith("natalia sold clips")
    del inputs["benchmark.test"]
    with pytest.raises(InputError, match="no benchmark to leave out"):
        tokenise(open_stage(tmp_path / "none", section, inputs))


def test_the_benchmarks_of_a_run_are_inputs_of_a_mixture_that_is_decontaminated(corpus):
    for clean in (False, True):
        sources = {"web": {"data": str(corpus), "decontaminate": clean}}
        given = {"benchmarks": {"held": {"source": str(corpus)}}, "mixtures": {"m": {"sources": sources}}}
        given["mixtures"]["m"]["tokenizer"] = "a/b"
        read = dict(graph_of(**given).nodes["tokens/m"].inputs)
        assert read.get("benchmark.held") == (str(corpus) if clean else None)


def test_a_source_reads_the_same_however_it_is_cut_into_parts(tmp_path):
    generator = np.random.default_rng(0)
    documents = [generator.integers(0, 60_000, length) for length in generator.integers(1, 12, 40)]
    cuts = {"one": [], "two": [17], "many": sorted(generator.choice(range(1, 40), 15, replace=False))}
    for name, at in cuts.items():
        bounds = [0, *map(int, at), 40]
        parts = [documents[first:last] for first, last in itertools.pairwise(bounds)]
        save_mixture(tmp_path / name, {"web": (1.0, parts)})
    one, *others = (Mixture(tmp_path / name, context=10, seed=0) for name in cuts)
    flat = np.concatenate(documents)
    for start in range(len(flat) - 10):
        tokens, ends = one.files[0].window(start, 10)
        assert (tokens == flat[start : start + 11]).all()
        expected = np.cumsum([len(document) for document in documents]) - start
        assert (ends == expected[(expected > 0) & (expected <= 10)]).all()
        for other in others:
            same = other.files[0].window(start, 10)
            assert (tokens == same[0]).all() and (ends == same[1]).all()
    for n in range(2 * one.windows[0]):
        rows = [(row.tokens, row.positions, row.targets) for row in (m.row(n) for m in (one, *others))]
        assert all((a == b).all() for row in rows[1:] for a, b in zip(rows[0], row, strict=True))


def test_a_mixture_of_a_thousand_parts_keeps_few_files_open(tmp_path):
    save_mixture(tmp_path, {"web": (1.0, [[[n, n, n]] for n in range(1000)])})
    before = len(os.listdir("/proc/self/fd"))
    mixture = Mixture(tmp_path, context=4, seed=0)
    assert len({tuple(mixture.row(n).tokens) for n in range(700)}) == 700
    assert len(os.listdir("/proc/self/fd")) - before <= 256


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), "000001.bin: No such file or directory; rerun tokens"),
        (lambda path: path.write_bytes(path.read_bytes()[:-2]), "000001.bin: 4 bytes, tokens.json says 6"),
        (lambda path: path.with_suffix(".idx").write_bytes(b""), "000001.idx: 0 bytes, tokens.json says 8"),
    ],
)
def test_a_missing_or_cut_part_is_named_before_training_starts(tmp_path, damage, words):
    save_mixture(tmp_path, {"web": (1.0, [[[1, 2, 3]], [[4, 5, 6]]])})
    damage(tmp_path / "parts/web/000001.bin")
    with pytest.raises(InputError, match=words):
        Mixture(tmp_path, context=2, seed=0)


def test_a_source_without_documents_is_named(tokenizer, tmp_path):
    made = many_files(tmp_path, tokenizer, "one", 1)
    made.inputs["source.web"] = [str(tmp_path / "files/7.jsonl"), str(tmp_path / "files/8.jsonl")]
    with pytest.raises(InputError, match="source 'web' has no document .*7.jsonl, .*8.jsonl"):
        tokenise(made)


def test_tokens_of_each_source_are_within_a_window_of_its_share_at_every_prefix(tokenizer, tmp_path):
    """The paper's 56/4/10/20/10, counted in tokens of the rows that training reads."""
    shares = {f"s{n}": share for n, share in enumerate(PAPER_SHARES)}
    documents = [[[number] * 50 for _ in range(3 + number)] for number in range(5)]
    save_mixture(tmp_path, {name: (share, [documents[n]]) for n, (name, share) in enumerate(shares.items())})
    mixture, counts = Mixture(tmp_path, context=16, seed=1), np.zeros(5)
    for n in range(300):
        row = mixture.row(n)
        counts += np.bincount(row.tokens, minlength=5)
        expected = np.array(PAPER_SHARES) / 100 * 16 * (n + 1)
        assert np.abs(counts - expected).max() < 16
    assert mixture.counts(300) == (counts / 16).tolist()


def test_a_pass_reads_each_window_once_and_the_next_in_another_order(mixture_folder):
    mixture = Mixture(mixture_folder, context=32, seed=0)
    windows = mixture.windows[0]
    places = [place for place in map(mixture.place, range(8 * windows)) if place.source == 0]
    first, second = ([p.window for p in places if p.epoch == epoch] for epoch in (0, 1))
    assert sorted(first) == sorted(second) == list(range(windows)) and first != second
    assert mixture.counts(101) == [sum(mixture.place(n).source == s for n in range(101)) for s in (0, 1)]


def test_targets_are_the_next_tokens_and_never_cross_documents(mixture_folder, tokenizer):
    mixture = Mixture(mixture_folder, context=64, seed=0)
    starts = 0
    for n in range(40):
        row = mixture.row(n)
        last = row.tokens == tokenizer.eos_token_id
        assert (row.targets[last] == IGNORE).all()
        assert (row.targets[:-1][~last[:-1]] == row.tokens[1:][~last[:-1]]).all()
        begins = row.tokens == tokenizer.bos_token_id
        assert (row.positions[begins] == 0).all() and row.positions[0] == 0
        assert ((np.diff(row.positions) == 1) | begins[1:]).all()
        starts += begins.sum()
    assert starts > 20


def test_shares_too_fine_to_repeat_are_refused():
    with pytest.raises(InputError, match="fewer decimals"):
        schedule([0.123456789, 0.876543211])


def test_bad_sources_are_named(corpus, tokenizer, mixture_folder, tmp_path):
    with pytest.raises(InputError, match="missing.jsonl: no such file"):
        list(read_rows(str(tmp_path / "missing.jsonl")))
    (tmp_path / "cut.jsonl").write_text('{"text": "a"}\n{"text": ')
    with pytest.raises(InputError, match="cut.jsonl: line 2: not JSON"):
        list(read_rows(str(tmp_path / "cut.jsonl")))
    compressed = zstandard.compress(corpus.read_bytes())
    (tmp_path / "cut.jsonl.zst").write_bytes(compressed[:-20])
    with pytest.raises(InputError, match="cut.jsonl.zst: cannot be read after line"):
        list(read_rows(str(tmp_path / "cut.jsonl.zst")))
    (tmp_path / "two.jsonl.zst").write_bytes(compressed + compressed)
    assert len(list(read_rows(str(tmp_path / "two.jsonl.zst")))) == 2 * len(TEXTS)
    with pytest.raises(InputError, match="line 1: no text in field 'body'"):
        list(read_texts(str(corpus), "body"))
    with pytest.raises(InputError, match="do not fill one sequence"):
        Mixture(mixture_folder, context=100_000, seed=0)
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(InputError, match="no text to learn from"):
        train_tokenizer(open_stage(tmp_path / "t", TokensSection(), {"text": tmp_path / "empty.jsonl"}))
