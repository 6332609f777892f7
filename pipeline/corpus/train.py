"""Train an iteration's fastText classifier: seed pages against a general sample (paper section 2.1, step 1).

Inputs: `pool`, `seed_urls` (first iteration), `background_urls`, `previous` (its grown seed takes over from the list).
fastText runs on one thread with its memory fresh from the system, which makes models bit-identical and free of the
NaN that reused memory causes (it fills only part of its matrix). Departures: loss, buckets and normalisation are ours.
"""

import hashlib
import os
import random
import sys
from collections.abc import Iterable
from pathlib import Path

from pipeline.common.manifest import write_json
from pipeline.common.shards import read_documents, shard_paths
from pipeline.common.stage import Counts, InputError, Stage, run_stage
from pipeline.config.corpus import CorpusSection
from pipeline.corpus.lists import Survivors, read_urls
from pipeline.corpus.normalise import VERSION, normalise
from pipeline.corpus.passing import converged_before

FRESH_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "65536"}


def labelled(pool: Path, positives: set[str], negatives: set[str]) -> tuple[list[str], list[str]]:
    """Normalised texts of the pages that the two sets of keys name; a page in both is a positive."""
    survivors = Survivors(pool / "duplicates.parquet")
    texts: tuple[list[str], list[str]] = ([], [])
    for shard in shard_paths(pool / "pool"):
        for document in read_documents(shard):
            key = survivors.key(document.metadata["url"])
            if key in positives:
                texts[0].append(normalise(document.text))
            elif key in negatives:
                texts[1].append(normalise(document.text))
    return texts


def sampled(texts: list[str], most: int, rng: random.Random) -> list[str]:
    """At most `most` of the texts, drawn without replacement, in their order."""
    if len(texts) <= most:
        return texts
    return [texts[index] for index in sorted(rng.sample(range(len(texts)), most))]


def write_training_file(
    path: Path, positives: Iterable[str], negatives: Iterable[str], rng: random.Random
) -> None:
    """fastText's input: one labelled text a line, shuffled."""
    lines = [f"__label__math {text}" for text in positives] + [f"__label__other {text}" for text in negatives]
    rng.shuffle(lines)
    path.write_text("\n".join(lines) + "\n")


def train(path: Path, config: CorpusSection) -> object:
    """A fastText model of the labelled file."""
    import fasttext

    return fasttext.train_supervised(
        str(path),
        dim=config.dimension,
        lr=config.learning_rate,
        wordNgrams=config.word_ngrams,
        minCount=config.min_count,
        epoch=config.epochs,
        bucket=config.buckets,
        minn=config.subwords[0],
        maxn=config.subwords[1],
        thread=1,
        seed=config.seed,
        verbose=0,
    )


def run(stage: Stage[CorpusSection]) -> Counts:
    """Write `classifier.bin` and `train.json`; after convergence only a note."""
    if converged_before(stage):
        write_json(stage.partial / "train.json", {"converged": True})
        return {"converged": 1}
    pool, config = stage.input("pool"), stage.config
    survivors = Survivors(pool / "duplicates.parquet")
    seed = (
        stage.input("previous") / "seed_urls.txt" if "previous" in stage.inputs else stage.input("seed_urls")
    )
    wanted = [
        {survivors.key(url) for url in read_urls(path)} for path in (seed, stage.input("background_urls"))
    ]
    positives, negatives = labelled(pool, *wanted)
    for name, texts in (("seed_urls", positives), ("background_urls", negatives)):
        if not texts:
            raise InputError(f"corpus.{name}: none of its URLs is a page of the pool")
    rng = random.Random(f"{config.seed}/{stage.instance}")
    chosen = sampled(positives, config.positives, rng), sampled(negatives, config.negatives, rng)
    file = stage.work / "labelled.txt"
    write_training_file(file, *chosen, rng)
    model = train(file, config)
    path = stage.partial / "classifier.bin"
    model.save_model(str(path))
    file.unlink()
    sizes = {"positives": len(chosen[0]), "negatives": len(chosen[1]), "words": len(model.words)}
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    write_json(
        stage.partial / "train.json", {"converged": False, "normaliser": VERSION, "sha256": digest} | sizes
    )
    stage.counter("fasttext.trained_texts", len(chosen[0]) + len(chosen[1]))
    return sizes | {"classifier_sha256": digest}


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in FRESH_MEMORY.items()):
        # glibc reads this when a process starts, so the program starts again with it.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "pipeline.corpus.train", *sys.argv[1:]],
            os.environ | FRESH_MEMORY,
        )
    run_stage("corpus", CorpusSection, run)
