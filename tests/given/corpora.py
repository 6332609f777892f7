"""A small pool of pages, and the programs of the corpus loop on it."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from conftest import ROOT
from datatrove.data import Document

from pipeline.config.corpus import CorpusSection
from pipeline.core.data.shards import DocumentWriter, read_documents, read_table, write_table
from pipeline.core.stage import run_stage
from pipeline.corpus import score, select

Inputs = dict[str, Path]
SMALL = {"dimension": 8, "learning_rate": 0.5, "epochs": 10, "min_count": 1, "buckets": 1000, "cut": "score"}
MATH = "theorem proof lemma integral let x be prime number equation group matrix".split()  # noqa: SIM905
NEWS = "minister said market rain goal team price police city music film summer".split()  # noqa: SIM905
HERE = {"score": score.run, "select": select.run}
DUPLICATES = pa.schema(
    [(name, pa.string()) for name in ("id", "url", "duplicate_of", "duplicate_of_url", "kind")]
)


def make_pool(tmp_path: Path) -> Path:
    """Forty mathematical pages on two hosts, sixty others, in one shard."""
    rng = random.Random(1)
    folder = tmp_path / "dedup"
    hosts = [("seed.example", MATH)] * 20 + [("other.example", MATH)] * 20 + [("news.example", NEWS)] * 60
    with DocumentWriter(folder / "pool/0000.jsonl.zst") as writer:
        for number, (host, words) in enumerate(hosts):
            text = " ".join(rng.choices(words, k=60))
            metadata = {"url": f"https://{host}/{'q' if number % 2 else 'p'}/{number}", "host": host}
            writer.write(Document(text, f"w:{number:03d}", [], metadata))
    write_table(folder / "duplicates.parquet", [], DUPLICATES)
    urls = [f"https://seed.example/{'q' if number % 2 else 'p'}/{number}" for number in range(10)]
    (tmp_path / "seed.txt").write_text("\n".join(urls) + "\n")
    urls = [f"https://news.example/{'q' if number % 2 else 'p'}/{number}" for number in range(40, 70)]
    (tmp_path / "background.txt").write_text("\n".join(urls) + "\n")
    (tmp_path / "annotations.tsv").write_text(
        "prefix\tverdict\nother.example/q/\tmath\nnews.example/\tnot_math\n"
    )
    return folder


def lists_of(folder: Path) -> Inputs:
    """The seed and the background of `pool`."""
    return {"seed_urls": folder / "seed.txt", "background_urls": folder / "background.txt"}


def command(
    program: str, iteration: int, inputs: Inputs, work: Path, out: Path, config: dict[str, object]
) -> list[str]:
    """The command line of one program of the loop."""
    arguments: list[str | Path] = ["-m", f"pipeline.corpus.{program}"]
    arguments += ["--instance", f"iteration-{iteration}/{program}", "--config", json.dumps(SMALL | config)]
    arguments += ["--work", work, "--output", out / "data", "--manifest", out / "manifest.json"]
    for name, path in inputs.items():
        arguments += ["--input", f"{name}={path}"]
    return [sys.executable, *map(str, arguments)]


def run(tmp_path: Path, program: str, iteration: int, inputs: Inputs, **config: object) -> Path:
    """Run one program of the loop; returns its data folder."""
    out, work = (
        tmp_path / f"results/iteration-{iteration}" / program,
        tmp_path / f"work/{program}-{iteration}",
    )
    arguments = command(program, iteration, inputs, work, out, config)
    if program in HERE:  # saves the start of a process
        run_stage("corpus", CorpusSection, HERE[program], arguments[3:])
        return out / "data"
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return out / "data"


def iterate(
    tmp_path: Path, pool: Path, iteration: int, previous: tuple[Path, Path] | None = None
) -> tuple[Path, Path]:
    """One iteration; returns (score, select)."""
    lists = lists_of(tmp_path)
    before = {"previous": previous[1]} if previous else {}
    trained = run(tmp_path, "train", iteration, {"pool": pool} | lists | before)
    inputs = {"train": trained, "shard": pool / "pool/0000.jsonl.zst"} | before
    scored = run(tmp_path, "score", iteration, inputs | ({"previous_score": previous[0]} if previous else {}))
    inputs = (
        {"train": trained, "score": scored, "pool": pool, "annotations": tmp_path / "annotations.tsv"}
        | lists
        | before
    )
    return scored, run(tmp_path, "select", iteration, inputs)


def metrics(select: Path) -> dict:
    return json.loads((select / "metrics.json").read_text())


def rows_of(pool: Path) -> list[dict[str, Any]]:
    """The pool's pages as rows, with columns of several types."""
    pages = read_documents(pool / "pool/0000.jsonl.zst")
    return [
        {"id": page.id, "text": page.text, "url": page.metadata["url"], "tags": [number, None]}
        for number, page in enumerate(pages)
    ]


def corpus_of(iteration: Path) -> tuple[list[float], set[str]]:
    """Scores of the corpus stage in the order of the pages, and the ids of the pages that it keeps."""
    scores = read_table(iteration / "score/data/scores.parquet")["score"].to_pylist()
    return scores, set(read_table(iteration / "select/data/kept.parquet")["id"].to_pylist())


def words(iteration: Path, output: Path, *files: Path, processes: int = 1) -> list[str]:
    return [str(iteration), *map(str, files), "--output", str(output), "--processes", str(processes)]


def train_classifier(folder: Path) -> Path:
    """Run an iteration; returns its folder. That of its pool's is two above."""
    iterate(folder, make_pool(folder), 1)
    return folder / "results/iteration-1"
