"""Train an iteration's fastText classifier: seed pages against a general sample (paper section 2.1, step 1).

Inputs: `pool`, `seed_urls` (of the first iteration), `background_urls`, `previous` (its grown lists).
Negatives are the background pages and those that reviewers rejected. Without a background list they are a
random sample of the pool, as in the paper, without pages of the seed and pages that the last iteration
kept. Outputs: `classifier.bin`, `train.json` (what it was made from and how good it is on held-out sites),
`held_out.parquet` (their scores).
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from pipeline.common.manifest import write_json
from pipeline.common.shards import read_documents, read_table, shard_paths, write_table
from pipeline.common.stage import Counts, InputError, Stage, run_stage
from pipeline.config.corpus import CorpusSection
from pipeline.corpus.classifier import Example, restart_with_zeroed_memory, train
from pipeline.corpus.held_out import cross_validate, divide, measures
from pipeline.corpus.lists import Survivors, read_urls
from pipeline.corpus.normalise import VERSION, normalise
from pipeline.corpus.passing import converged_before

HELD_OUT = pa.schema(
    [
        ("url", pa.string()),
        ("host", pa.string()),
        ("math", pa.bool_()),
        ("score", pa.float64()),
        ("fold", pa.int64()),
    ]
)


def listed(stage: Stage[CorpusSection], name: str, survivors: Survivors) -> set[str]:
    """Keys of the pages of a list: the one that the previous iteration grew, else the input; empty if there
    is neither.
    """
    if "previous" in stage.inputs and (grown := stage.input("previous") / f"{name}.txt").exists():
        return {survivors.key(url) for url in read_urls(grown)}
    return {survivors.key(url) for url in read_urls(stage.input(name))} if stage.inputs.get(name) else set()


def examples(
    pool: Path, math: set[str], other: set[str], everything: bool, survivors: Survivors
) -> Iterator[Example]:
    """The pages of the pool whose keys are in `math` (positives) or `other`; with `everything` all the rest
    as negatives too.
    """
    for shard in shard_paths(pool / "pool"):
        for document in read_documents(shard):
            url, host = document.metadata["url"], document.metadata["host"]
            key = survivors.key(url)
            if everything or key in math or key in other:
                yield Example(url, host, normalise(document.text), key in math)


def sampled(members: list[Example], most: int, seed: int) -> list[Example]:
    """At most `most` examples: those whose hashes with the seed come first."""
    members = sorted(members, key=lambda example: hashlib.blake2b(f"{seed}:{example.url}".encode()).digest())
    return members[:most]


def training_pages(stage: Stage[CorpusSection]) -> list[Example]:
    """Positives and negatives, at most as many as the configuration says; twice as many are in memory at
    most.
    """
    pool, config = stage.input("pool"), stage.config
    survivors = Survivors(pool / "duplicates.parquet")
    math = listed(stage, "seed_urls", survivors)
    other = listed(stage, "background_urls", survivors) | listed(stage, "not_math_urls", survivors)
    from_pool = not stage.inputs.get("background_urls")
    kept: set[str] = set()
    if from_pool and "previous" in stage.inputs:
        kept = set(read_table(stage.input("previous") / "kept.parquet", ["url"])["url"].to_pylist())
    most = {True: config.positives, False: config.negatives}
    chosen: dict[bool, list[Example]] = {True: [], False: []}
    for example in examples(pool, math, other, from_pool, survivors):
        if example.math or example.url not in kept:
            chosen[example.math].append(example)
        if len(chosen[example.math]) > 2 * most[example.math]:
            chosen[example.math] = sampled(chosen[example.math], most[example.math], config.seed)
    for name, is_math in (("seed_urls", True), ("background_urls", False)):
        if not chosen[is_math]:
            raise InputError(f"corpus.{name}: none of its URLs is a page of the pool")
    return [example for is_math in chosen for example in sampled(chosen[is_math], most[is_math], config.seed)]


def run(stage: Stage[CorpusSection]) -> Counts:
    """Write the classifier and its measures; after convergence only a note."""
    if converged_before(stage):
        write_json(stage.partial / "train.json", {"converged": True})
        return {"converged": 1}
    if stage.config.folds == 1:
        raise InputError(
            "corpus.folds: one part leaves nothing to train on; 0 switches it off, else 2 or more"
        )
    config, pages = stage.config, training_pages(stage)
    notes = {"positives": sum(page.math for page in pages), "negatives": sum(not page.math for page in pages)}
    stage.counter("fasttext.trained_texts", len(pages))
    held_out = None
    if config.folds:
        folds = divide(pages, config.folds)
        scores = cross_validate(pages, folds, config, stage.work, stage.launch.get("threads", 1))
        columns = ([getattr(page, name) for page in pages] for name in ("url", "host", "math"))
        rows = zip(*columns, scores, folds.of, strict=True)
        write_table(
            stage.partial / "held_out.parquet",
            (dict(zip(HELD_OUT.names, row, strict=True)) for row in rows),
            HELD_OUT,
        )
        held_out = measures(pages, scores, folds)
    model = train(pages, config, stage.work / "labelled.txt")
    path = stage.partial / "classifier.bin"
    model.save_model(str(path))
    notes |= {"words": len(model.words), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    write_json(
        stage.partial / "train.json",
        notes | {"converged": False, "normaliser": VERSION, "held_out": held_out},
    )
    return notes


if __name__ == "__main__":
    restart_with_zeroed_memory("pipeline.corpus.train")
    run_stage("corpus", CorpusSection, run)
