"""`configs/ablations.yaml` and what it compares: selections of pages, texts beside the web, equal tokens."""

import contextlib
import io
import random
import re
import time
from collections import Counter
from pathlib import Path

import pytest
from conftest import ROOT
from datatrove.data import Document

from pipeline.config.root import Config
from pipeline.core.data.shards import DocumentWriter
from pipeline.core.overlays import read_config
from pipeline.corpus.formulas import has_formula, rows
from pipeline.crawl.opted_out import OptedOut
from pipeline.examples.miniweb.texts import paper, prose, source_code
from workflow.graph import Graph, Result

VALUES = read_config([ROOT / "configs/ablations.yaml"])
COMPARED = (
    "deepseekmath",
    "iteration-1",
    "openwebmath",
    "proof-pile-2",
    "redpajama-arxiv",
    "general",
    "code",
)


@pytest.fixture(scope="module")
def config() -> Config:
    return Config(VALUES)


def test_what_is_compared_starts_from_one_model_and_reads_equally_much(config: Config) -> None:
    for name in COMPARED:
        sections = [config.model_sections[f"{name}-{seed}"] for seed in range(3)]
        assert [section.seed for section in sections] == [0, 1, 2]
        assert {config.models[f"{name}-{seed}"].parent for seed in range(3)} == {"start"}
        assert {section.tokens for section in sections} == {1638400}
    for kind in ("general", "code"):  # two stages, each seed on its own first one; mixed, both at once
        assert [config.models[f"{kind}-then-math-{seed}"].parent for seed in range(3)] == [
            f"{kind}-{seed}" for seed in range(3)
        ]
    assert config.model_sections["code-and-math-0"].tokens == 2 * 1638400
    assert config.models["code-and-math-0"].parent == "start"


def test_each_corpus_is_cleaned_of_all_benchmarks(config: Config) -> None:
    graph = Graph(config)
    for mixture, folder, select in (
        ("deepseekmath", "decontaminate", "corpus/iteration-7/select"),
        ("iteration-1", "decontaminate/iteration-1", "corpus/iteration-1/select"),
        ("openwebmath", "decontaminate/formulas", "corpus/formulas"),
    ):
        sources = [source for key, source in graph.nodes[f"tokens/{mixture}"].inputs if key != "tokenizer"]
        assert sources == [Result(f"{folder}/corpus", "corpus")]
        node = graph.nodes[f"{folder}/clean-0000"]
        assert dict(node.inputs)["select"] == Result(select)
        asked = {key for key, _ in node.inputs if key.startswith("benchmark.")}
        assert asked == {"benchmark.miniweb", "benchmark.heldout", "benchmark.drill"}


def test_the_rules_keep_english_pages_with_formulas(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    texts = {
        "formula": ("Then $x^2=4$ holds.", "en"),
        "display": ("So \\[ a+b \\] follows.", "en"),
        "prices": ("Pens cost $5 and cups $7.", "en"),
        "plain": ("5-3=2\nThe answer is 2.", "en"),
        "chinese": ("所以 $x^2=4$。", "zh"),
    }
    with DocumentWriter(tmp_path / "pool/0000.jsonl.zst") as writer:
        for name, (text, language) in texts.items():
            metadata = {"url": f"https://x.example/{name}", "host": "x.example", "language": language}
            writer.write(Document(text, name, metadata=metadata))
    found, opted_out = list(rows(tmp_path)), OptedOut(["x.example/formula"])
    assert [(row["id"], row["shard"]) for row in found] == [
        ("formula", "0000.jsonl.zst"),
        ("display", "0000.jsonl.zst"),
    ]
    assert list(rows(tmp_path, opted_out)) == found[1:] and opted_out.counts == {"opted_out": 1}


def test_a_formula_is_what_a_plain_pattern_finds_and_hostile_text_takes_no_time() -> None:
    plain = re.compile(r"\$[^$\n]*[\\^_=][^$\n]*\$|\\\(.+?\\\)|\\\[.+?\\\]", re.DOTALL)
    rng, found = random.Random(0), Counter[bool]()
    for _ in range(5000):
        text = "".join(rng.choices("$$\\\\()[]=^a\n", k=rng.randint(2, 14)))
        found[has_formula(text)] += 1
        assert has_formula(text) == bool(plain.search(text)), text
    assert min(found.values()) > 500
    started = time.process_time()
    assert not any(
        map(has_formula, ("$" + " a=" * 300_000, "\\(" * 500_000, "\\[\\)" * 300_000, "$=\n" * 300_000))
    )
    assert time.process_time() - started < 2


def test_source_code_computes_what_it_says() -> None:
    rng, ran = random.Random(0), 0
    for _ in range(10):
        for part in source_code(rng).split("\n\n"):
            if part.startswith("def "):
                exec(part, {})  # its asserts hold
            elif part.startswith("# "):
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(part, {})
                assert part.endswith(f"# prints {printed.getvalue().strip()}")
                ran += 1
    assert ran == 30


def test_papers_prove_and_answer_nothing_and_prose_has_no_mathematics() -> None:
    rng = random.Random(0)
    papers = [paper(rng) for _ in range(20)]
    assert all(text.count(r"\begin{proof}") == 3 and "⟦" not in text for text in papers)
    assert not any(re.search(r"answer|答案|\d[+-]\d+=", text, re.IGNORECASE) for text in papers)
    assert not any("⟦" in prose(rng) or r"\begin" in prose(rng) for _ in range(20))
