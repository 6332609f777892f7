"""Train an iteration's fastText classifier: seed pages against a general sample (paper section 2.1, step 1).

Inputs: `pool`, `seed_urls` (of the first iteration), `background_urls`, `previous` (its grown lists),
`out_of_distribution.<name>` (labelled sets that are measured and never learnt from).
Negatives are the background pages and those that reviewers rejected. Without a background list they are a
random sample of the pool, as in the paper, without pages of the seed and pages that the last iteration
kept. Outputs: `classifier.bin`, `train.json` (what it was made from and how good it is on held-out sites),
`held_out.parquet` (their scores).
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.common.manifest import write_json
from pipeline.common.shards import read_documents, read_table, shard_paths, write_table
from pipeline.common.stage import Counts, InputError, Stage, run_stage
from pipeline.config.corpus import CorpusSection
from pipeline.corpus.classifier import Example, Scorer, restart_with_zeroed_memory, train
from pipeline.corpus.held_out import cross_validate, divide
from pipeline.corpus.lists import Survivors, read_urls
from pipeline.corpus.measures import measures
from pipeline.corpus.normalise import VERSION, normalise
from pipeline.corpus.passing import converged_before
from pipeline.corpus.presets import scaled, settings
from pipeline.corpus.unseen import Unseen, keys_of, read_sets

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
    pool: Path, math: set[str], other: set[str], without: set[str], everything: bool, survivors: Survivors
) -> Iterator[Example]:
    """The pages of the pool whose keys are in `math` (positives) or `other`; with `everything` all the rest
    as negatives too; none in `without`.
    """
    for shard in shard_paths(pool / "pool"):
        for document in read_documents(shard):
            url, host = document.metadata["url"], document.metadata["host"]
            key = survivors.key(url)
            if key not in without and (everything or key in math or key in other):
                language = document.metadata.get("language")
                yield Example(url, host, normalise(document.text), key in math, language)


def sampled(members: list[Example], most: int, seed: int) -> list[Example]:
    """At most `most` examples: those whose hashes with the seed come first."""
    members = sorted(members, key=lambda example: hashlib.blake2b(f"{seed}:{example.url}".encode()).digest())
    return members[:most]


def training_pages(stage: Stage[CorpusSection], unseen: set[str]) -> list[Example]:
    """Positives and negatives, at most as many as the configuration says, without the pages whose keys are
    in `unseen`; twice as many are in memory at most.
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
    for example in examples(pool, math, other, unseen, from_pool, survivors):
        if example.math or example.url not in kept:
            chosen[example.math].append(example)
        if len(chosen[example.math]) > 2 * most[example.math]:
            chosen[example.math] = sampled(chosen[example.math], most[example.math], config.seed)
    for name, is_math in (("seed_urls", True), ("background_urls", False)):
        if not chosen[is_math]:
            raise InputError(f"corpus.{name}: none of its URLs is a page of the pool")
    return [example for is_math in chosen for example in sampled(chosen[is_math], most[is_math], config.seed)]


def measure_held_out(
    stage: Stage[CorpusSection], pages: list[Example], config: CorpusSection
) -> dict[str, Any]:
    """Cross-validate, write the scores; returns their measures and how the pages were divided."""
    folds = divide(pages, config.folds)
    scores = cross_validate(pages, folds, config, stage.work, stage.launch.get("threads", 1))
    columns = ([getattr(page, name) for page in pages] for name in ("url", "host", "math"))
    rows = zip(*columns, scores, folds.of, strict=True)
    write_table(
        stage.partial / "held_out.parquet",
        (dict(zip(HELD_OUT.names, row, strict=True)) for row in rows),
        HELD_OUT,
    )
    return measures(pages, scores) | {
        "folds": config.folds,
        "math_by_host": folds.math_by_host,
        "other_by_host": folds.other_by_host,
    }


def measure_unseen(
    sets: dict[str, Unseen], pool: Path, score: Scorer, threshold: float
) -> dict[str, dict[str, Any]]:
    """Measures of each out-of-distribution set, at the threshold of the held-out pages."""
    found, survivors = {}, Survivors(pool / "duplicates.parquet")
    for name, given in sets.items():
        pages = list(given.texts)
        if any(given.keys.values()):
            pages += examples(pool, given.keys[True], given.keys[False], set(), False, survivors)
        if not pages:
            raise InputError(f"corpus.out_of_distribution.{name}: none of its URLs is a page of the pool")
        found[name] = measures(pages, [score(page.text) for page in pages], threshold)
    return found


def run(stage: Stage[CorpusSection]) -> Counts:
    """Write the classifier and its measures; after convergence only a note."""
    if converged_before(stage):
        write_json(stage.partial / "train.json", {"converged": True})
        return {"converged": 1}
    if stage.config.folds == 1:
        raise InputError(
            "corpus.folds: one part leaves nothing to train on; 0 switches it off, else 2 or more"
        )
    pool = stage.input("pool")
    sets = read_sets(stage.inputs, pool)
    pages = training_pages(stage, keys_of(sets))
    config = scaled(stage.config, len(pages))
    notes = {"positives": sum(page.math for page in pages), "negatives": sum(not page.math for page in pages)}
    stage.counter("fasttext.trained_texts", len(pages))
    held_out = measure_held_out(stage, pages, config) if config.folds else None
    model = train(pages, config, stage.work / "labelled.txt")
    path = stage.partial / "classifier.bin"
    model.save_model(str(path))
    notes |= {"words": len(model.words), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    threshold = held_out["threshold"] if held_out else 0.0
    details = {
        "converged": False,
        "normaliser": VERSION,
        "settings": settings(config),
        "held_out": held_out,
        "out_of_distribution": measure_unseen(sets, pool, Scorer(model), threshold),
    }
    write_json(stage.partial / "train.json", notes | details)
    return notes


if __name__ == "__main__":
    restart_with_zeroed_memory("pipeline.corpus.train")
    run_stage("corpus", CorpusSection, run)
