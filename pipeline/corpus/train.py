"""Train an iteration's fastText classifier: seed pages against a general sample (paper section 2.1, step 1).

Inputs: `pool`, `seed_texts`, `background_texts`, `seed_urls` (of the first iteration), `background_urls`,
`previous` (its grown lists), `tokenizer` (a folder or hub id, to measure how many tokens a page has),
`opt_out` and `blocklists` (of pages that never teach); where a round of review is new, `new_round`, its file,
`annotations` (all rounds so far), `previous_score` (all shards). `training_set.py` chooses the pages.

`corpus.annotations` names a file for each round of review; iteration n reads the first n. Selection learns
from the rounds that its own iteration reads. The file that is new in an iteration was written after the
iteration before, so it is applied to that one's scores, whose results stay as they are. Outputs:
`classifier.bin`, `train.json` (what it was made from and how good it is on held-out sites),
`held_out.parquet` (their scores), `trained.parquet` (the pages it was trained on).
"""

import hashlib
from itertools import chain
from pathlib import Path
from typing import Any

from pipeline.config.corpus import CorpusSection
from pipeline.core.data.database import database, parquet
from pipeline.core.data.shards import table_schema, write_table
from pipeline.core.ending import say
from pipeline.core.manifest import write_json
from pipeline.core.stage import Counts, InputError, Stage, label, run_stage
from pipeline.corpus.candidates import add_pages, unmatched
from pipeline.corpus.classifier import restart_with_zeroed_memory, scaled, settings, train
from pipeline.corpus.convergence import converged_before
from pipeline.corpus.domains import add_mathematical, growth, learn, write_grown
from pipeline.corpus.held_out import cross_validate, divide, least_like_seed
from pipeline.corpus.measures import measures
from pipeline.corpus.normalise import VERSION
from pipeline.corpus.tokens import measure
from pipeline.corpus.training_set import LabelledPage, example_texts, training_pages, wanted_pages
from pipeline.corpus.url_lists import GROWN, LEARNT_FROM, Survivors, current_urls

HELD_OUT = table_schema(url=str, host=str, math=bool, score=float, fold=int)
TRAINED = table_schema(url=str, math=bool)


def measure_held_out(
    stage: Stage[CorpusSection], pages: list[LabelledPage], config: CorpusSection
) -> dict[str, Any]:
    """Cross-validate and write the held-out scores; returns their measures and how the pages were divided."""
    folds, threads = divide(pages, config.folds), stage.launch.get("threads", 1)
    scores = cross_validate(pages, folds, config, stage.work, threads, label(stage))
    names = ("url", "host", "math")
    columns = {name: [getattr(page, name) for page in pages] for name in names}
    columns |= {"score": scores, "fold": folds.of}
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    write_table(stage.partial / "held_out.parquet", rows, HELD_OUT)
    return measures(pages, scores) | {
        "folds": config.folds,
        "math_by_host": folds.math_by_host,
        "other_by_host": folds.other_by_host,
    }


def apply_review(stage: Stage[CorpusSection], survivors: Survivors) -> dict[str, int]:
    """Add pages under newly reviewed prefixes to the lists of the previous iteration (paper section 2.1, step
    4), and write these; returns the number of URLs added to each.
    """
    lists = {name: current_urls(stage, name) for name in GROWN}
    known = [survivors.keys(urls) for urls in lists.values()]
    scores = [Path(path) / "scores.parquet" for path in stage.inputs["previous_score"]]
    annotations, previous = [Path(path) for path in stage.inputs["annotations"]], stage.input("previous")
    with database(stage.work / "join", stage.launch) as joins:
        blocklists = stage.inputs.get("blocklists", [])
        add_pages(joins, scores, annotations, current_urls(stage, "opt_out"), blocklists)
        joins.execute(f"CREATE VIEW kept AS SELECT * FROM {parquet(previous / 'kept.parquet')}")
        domains = f"SELECT domain, share FROM {parquet(previous / 'domains.parquet')} WHERE math"
        add_mathematical(joins, joins.execute(domains).fetchall())
        learn(joins, stage.config.reviewed == "all")
        unmatched(joins)
        grown = growth(joins, *known)
    survivors.keys([*grown.seed, *grown.not_math])  # all at once
    write_grown(stage.partial, lists, grown, survivors)
    return dict(zip(GROWN, (len(grown.seed), len(grown.not_math)), strict=True))


def look_up_lists(stage: Stage[CorpusSection]) -> tuple[Survivors, dict[str, int] | None]:
    """Find what pages the URLs of all lists mean, together, because that reads all duplicates, and what a new
    round of review adds to the lists, which are then among the results.
    """
    survivors = Survivors.of(stage)
    listed = chain.from_iterable(current_urls(stage, name) for name in LEARNT_FROM)
    survivors.keys(listed)
    return survivors, apply_review(stage, survivors) if stage.inputs.get("new_round") else None


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
    survivors, reviewed = look_up_lists(stage)
    texts = example_texts(stage.inputs, stage.config)
    wanted = wanted_pages(stage, survivors, texts, stage.partial)
    pages = training_pages(stage, wanted, texts)
    if wanted.everything:
        pages = least_like_seed(stage, pages, wanted.other)
    config = scaled(stage.config, len(pages))
    notes = {"positives": sum(page.math for page in pages), "negatives": sum(not page.math for page in pages)}
    stage.counter("fasttext.trained_texts", len(pages))
    trained = ({"url": page.url, "math": page.math} for page in pages)
    write_table(stage.partial / "trained.parquet", trained, TRAINED)
    held_out = measure_held_out(stage, pages, config) if config.folds else None
    say(f"{label(stage)}: trains the classifier on {len(pages):,} pages")
    model = train(pages, config, stage.work / "labelled.txt")
    path = stage.partial / "classifier.bin"
    model.save_model(str(path))
    with path.open("rb") as file:
        notes |= {"words": len(model.words), "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    tokenizer = stage.inputs.get("tokenizer")
    details = {
        "converged": False,
        "normaliser": VERSION,
        "settings": settings(config),
        "held_out": held_out,
        **({"new_round": reviewed} if reviewed else {}),
        **({"tokens": vars(measure(tokenizer[0], pool))} if tokenizer else {}),
    }
    write_json(stage.partial / "train.json", notes | details)
    return notes


if __name__ == "__main__":
    restart_with_zeroed_memory("pipeline.corpus.train")
    run_stage("corpus", CorpusSection, run)
