"""Tokens of pages by a measured ratio."""

from pathlib import Path

import pytest
from datatrove.data import Document
from given.instances import graph_of
from tokenizers import Tokenizer, models, pre_tokenizers

from pipeline.config.root import ConfigError
from pipeline.core.data.shards import DocumentWriter
from pipeline.core.errors import InputError
from pipeline.corpus.score import score_pages
from pipeline.corpus.tokens import Ratio, measure
from workflow.keys import Keys

TEXTS = ["Let x be prime.", "数学很好", "Let 数 be 2.", "一二三 four", "so it is", "证明"]


def write_pool(folder: Path, shards: int) -> Path:
    for shard in range(shards):
        with DocumentWriter(folder / f"pool/{shard:04d}.jsonl.zst") as writer:
            for number, text in enumerate(TEXTS):
                writer.write(Document(text * (number + shard + 1), f"{shard}:{number}"))
    return folder


def write_tokenizer(folder: Path) -> str:
    """A token for each byte: one of an ASCII character, three of a Chinese one."""
    alphabet = {character: place for place, character in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(folder / "tokenizer.json"))
    return str(folder)


def test_the_ratio_is_that_of_the_tokenizer_and_checked_on_other_pages(tmp_path: Path) -> None:
    found = measure(write_tokenizer(tmp_path), write_pool(tmp_path, 30))
    assert (found.ascii, found.other, found.error) == pytest.approx((1, 3, 0), abs=1e-5)
    assert found.pages == 15 * len(TEXTS), "of every second shard"
    assert found("ab数") == 5 and found("") == 1
    with pytest.raises(InputError, match=r"corpus.tokenizer: .*pool: no usable tokenizer.json"):
        measure(str(tmp_path / "pool"), tmp_path)


def test_pages_are_counted_in_tokens_where_a_ratio_was_measured() -> None:
    page = Document("Let 数 be 2.", "a", [], {"url": "https://a.example", "host": "a.example"})
    for ratio, tokens in ((None, 3), (Ratio(0.5, 2.0, 1, None), round(10 * 0.5 + 2.0))):  # let, 数, be
        (row,) = score_pages([page], "0000", len, ratio)
        assert row["tokens"] == tokens


def test_another_tokenizer_makes_another_classifiers_count_and_no_other_input(tmp_path: Path) -> None:
    (tmp_path / "a.warc.gz").write_bytes(b"")

    def nodes(**corpus: str) -> dict:
        warc = {"warc": str(tmp_path / "a.warc.gz")}
        return graph_of(crawl=warc, corpus={"iterations": 1, **corpus}).nodes

    before, after = nodes(), nodes(tokenizer="deepseek-ai/deepseek-coder-7b-base-v1.5")
    assert {name for name in before if before[name] != after[name]} == {"corpus/iteration-1/train"}
    assert dict(after["corpus/iteration-1/train"].inputs)["tokenizer"].endswith("v1.5")


def test_a_named_tokenizer_counts_by_its_files_and_a_folder_that_is_none_is_refused(
    tmp_path: Path,
) -> None:
    folder, corpus, keys = tmp_path / "tokenizer", tmp_path / "corpus.jsonl", []
    folder.mkdir()
    corpus.touch()
    for text in ("{}", "[]"):
        (folder / "tokenizer.json").write_text(text)
        mixture = {"tokenizer": str(folder), "sources": {"web": {"data": str(corpus)}}}
        keys.append(Keys(graph_of(mixtures={"m": mixture})).key("tokens/m"))
    assert keys[0] != keys[1]
    mixture["tokenizer"] = "./no/such/folder"
    with pytest.raises(ConfigError, match="mixtures.m.tokenizer: ./no/such/folder: no such folder"):
        graph_of(mixtures={"m": mixture})
