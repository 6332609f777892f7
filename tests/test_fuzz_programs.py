"""Programs on damaged results of others: each works, or ends in one line that names the file.

Trainings are followed up to their first step. `fuzzing.py` says how to draw other cases or to repeat one.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datatrove.data import Document
from given.examples import EXAMPLES

from pipeline.config.corpus import CorpusSection
from pipeline.config.cpt import CptSection
from pipeline.config.crawl import CrawlSection
from pipeline.config.sft import SftSection
from pipeline.core.data.shards import DocumentWriter, write_table
from pipeline.crawl import filter, sign
from tests.fuzzing import program, program_failures, write


def shard(path: Path, pages: int) -> Path:
    """Pages as extraction and deduplication write them."""
    with DocumentWriter(path) as writer:
        for number in range(pages):
            host, words = ("seed.example", "theorem") if number % 2 else ("news.example", "minister")
            metadata = {"url": f"https://{host}/{number}", "host": host, "warc_file": "a", "offset": number}
            text = " ".join(f"{words}{number + place}" for place in range(20))
            writer.write(Document(text, f"a:{number}", metadata=metadata))
    return path


def test_signatures_of_damaged_pages(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pages = [shard(tmp_path / "extract/pages.jsonl.zst", 4)]
    words = ["--input", f"extract={tmp_path / 'extract'}"]
    found = program_failures(
        "sign", 30, pages, program("crawl", CrawlSection, sign.run), words, capfd, ("extract",)
    )
    assert not found, "".join(found)


def test_selection_from_damaged_results(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from pipeline.corpus import convergence, score, select

    urls = [f"https://{'seed' if number % 2 else 'news'}.example/{number}" for number in range(40)]
    names = [{"id": f"a:{n}", "url": url, "host": url.split("/")[2]} for n, url in enumerate(urls)]
    pages = [
        row | {"shard": "0000.jsonl.zst", "score": 9.0 - n, "tie": n, "tokens": 9, "iteration": 1}
        for n, row in enumerate(names)
    ]
    folders = [tmp_path / name for name in ("pool", "train", "score", "previous")]
    copies = [{"id": "a:99", "url": urls[2] + "?a=1", "duplicate_of": "a:2", "duplicate_of_url": urls[2]}]
    write_table(folders[0] / "duplicates.parquet", copies, filter.DUPLICATES)
    write_table(folders[2] / "scores.parquet", pages, score.SCORES)
    write_table(folders[3] / "kept.parquet", pages[:20], convergence.KEPT)
    folders[1].mkdir()
    files = [
        write(folders[1] / "train.json", json.dumps(dict.fromkeys(select.TRAINED, 1)).encode()),
        write(
            folders[3] / "metrics.json", json.dumps(dict.fromkeys(("stopped", *select.COUNTED), 0)).encode()
        ),
        write(folders[3] / "seed_urls.txt", "\n".join(urls[:9]).encode()),
        write(folders[3] / "not_math_urls.txt", "\n".join(urls[30:]).encode()),
        write(tmp_path / "in/annotations.tsv", b"prefix\tverdict\nseed.example/\tmath\n"),
        write(tmp_path / "in/opt_out.txt", b"news.example/3\n"),
        *(
            folder / name
            for folder, name in zip(folders[2:], ("scores.parquet", "kept.parquet"), strict=True)
        ),
        folders[0] / "duplicates.parquet",
    ]
    for name in select.PASSED_ON:
        if not (folders[3] / name).exists():
            write(folders[3] / name, b"")
    words = [f"--input={folder.name}={folder}" for folder in folders]
    words += [f"--input={file.stem}={file}" for file in files if file.parent.name == "in"]
    words += ["--config", '{"cut": "score", "threshold": -9}', "--instance", "iteration-2/select"]
    run, names = program("corpus", CorpusSection, select.run), tuple(folder.name for folder in folders)
    found = program_failures("select", 24, files, run, words, capfd, names)
    assert not found, "".join(found)


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings in this process: no signal handlers, and no watchdog that would end it."""
    monkeypatch.setattr("pipeline.core.stage.catch_signals", lambda: None)
    monkeypatch.setattr("pipeline.core.stage.watchdog.watch", lambda *_: None)


def up_to_the_first_step(stage: Any, model: Any, tokenizer: Any, plan: Any) -> dict[str, int]:
    """Stands where training begins: reads the rows of the first step."""
    return {"rows": len([plan.row(number) for number in range(min(plan.batch, 4))])}


def test_fine_tuning_starts_from_damaged_examples_and_sections(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, unwatched: None
) -> None:
    from pipeline import sft
    from tests.tiny_model import save_tiny_model

    monkeypatch.setattr(sft, "train_and_export", up_to_the_first_step)
    monkeypatch.setattr(sft, "start_from", lambda *_: None)
    model = save_tiny_model(tmp_path / "model", seed=0)
    files = [tmp_path / "in/sft.jsonl", tmp_path / "in/section.json"]
    files[0].parent.mkdir()
    write(files[0], EXAMPLES["sft.jsonl"].encode())
    section = {"context": 256, "steps": 2, "batch": 2, "suffix": {}, "precision": "fp32"}
    write(files[1], json.dumps(section).encode())
    words = ["--input", f"data={files[0]}", "--input", f"init={model}", "--config", f"@{files[1]}"]
    found = program_failures("sft", 40, files, program("sft", SftSection, sft.run), words, capfd)
    assert not found, "".join(found)


def test_pre_training_starts_from_damaged_token_files_and_sections(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, unwatched: None
) -> None:
    from pipeline import cpt
    from tests.tiny_model import save_mixture, save_tiny_model

    monkeypatch.setattr(cpt, "train_and_export", up_to_the_first_step)
    monkeypatch.setattr(cpt, "initial_model", lambda *_: None)
    tokens = tmp_path / "tokens"
    save_tiny_model(tokens / "tokenizer", seed=0)
    documents = np.split(np.arange(400), [100, 250])
    save_mixture(tokens, {"web": (1.0, [documents[:2], documents[2:]])})
    files = [tokens / "tokens.json", *sorted((tokens / "parts/web").iterdir())]
    section = {"context": 64, "tokens": 512, "batch_tokens": 128, "precision": "fp32"}
    files.append(write(tokens / "section.json", json.dumps(section).encode()))
    words = ["--input", f"tokens={tokens}", "--config", f"@{files[-1]}"]
    run = program("cpt", CptSection, cpt.run)
    found = program_failures("cpt", 40, files, run, words, capfd, ("tokens", "web"))
    assert not found, "".join(found)
