"""Rank all pages, keep the top, find domains, grow the seed, decide whether to stop (paper section 2.1,
steps 2-4).

Inputs: `train`, `score` (all shards), `pool`, `seed_urls`, `annotations`, `opt_out`, `previous`. The corpus
is what an iteration keeps: pages of the seed have to rank for themselves, since a reviewed prefix also covers
thin pages such as indexes.

Outputs: `kept.parquet`; `seed_urls.txt` and `not_math_urls.txt`, which the next iteration learns from;
`review.tsv`, the mathematical domains that nobody has reviewed; `metrics.json`.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.common.manifest import write_json
from pipeline.common.shards import read_table, write_table
from pipeline.common.stage import Counts, InputError, Stage, run_stage
from pipeline.config.corpus import CorpusSection
from pipeline.corpus.cut import at_precision, within_budget
from pipeline.corpus.domains import Growth, Page, judge, learn, review_queue
from pipeline.corpus.lists import Annotations, Survivors, place, read_annotations, read_urls
from pipeline.corpus.passing import converged_before, pass_through

KEPT = pa.schema(
    [
        ("id", pa.string()),
        ("url", pa.string()),
        ("host", pa.string()),
        ("shard", pa.string()),
        ("score", pa.float64()),
        ("rank", pa.int64()),
        ("tokens", pa.int64()),
        ("iteration", pa.int64()),
    ]
)
TRAINED = ("positives", "negatives", "settings", "held_out", "out_of_distribution")  # of train.json
LISTS = ("seed_urls", "not_math_urls")


def ranked(paths: list[Path]) -> pa.Table:
    """All scored pages, best first; equal scores in the order of a hash of their ids."""
    pages = pa.concat_tables(read_table(path / "scores.parquet") for path in paths)
    return pages.take(
        pc.sort_indices(pages, [("score", "descending"), ("tie", "ascending"), ("id", "ascending")])
    )


def without_opted_out(pages: pa.Table, path: Path) -> pa.Table:
    """The pages under none of the prefixes that a list names; the longest prefix is found as for
    annotations.
    """
    prefixes = Annotations({place(prefix): "opt_out" for prefix in read_urls(path)})
    return pages.filter(
        pa.array([prefixes.find(url) is None for url in pages["url"].to_pylist()], pa.bool_())
    )


def cut(pages: pa.Table, other: np.ndarray | None, config: CorpusSection, iteration: int) -> int:
    """How many of the ranked pages are kept, as `corpus.cut` says; `other`: held-out scores of negatives."""
    scores = pages["score"].to_numpy()
    match config.cut:
        case "tokens":
            return within_budget(pages["tokens"].to_numpy(), config, iteration)
        case "score":
            return int((scores >= config.threshold).sum())
    if other is None:
        raise InputError(
            "corpus.cut: `precision` is estimated on held-out pages: set corpus.folds to 2 or more"
        )
    return at_precision(scores, other, config.precision)


def held_out_negatives(train: Path) -> np.ndarray | None:
    """Scores of the held-out negatives; None where nothing was held out."""
    if not (train / "held_out.parquet").exists():
        return None
    table = read_table(train / "held_out.parquet", ["math", "score"])
    return table.filter(pc.invert(table["math"]))["score"].to_numpy()


def compare(kept: pa.Table, previous: pa.Table | None) -> dict[str, Any]:
    """What this iteration's pages share with the last one's and what they add."""
    if previous is None:
        new, hosts = kept, set()
    else:
        new = kept.filter(pc.invert(pc.is_in(kept["id"], previous["id"])))
        hosts = set(previous["host"].to_pylist())
    return {
        "overlap_with_previous": round(1 - len(new) / len(kept), 6)
        if previous is not None and len(kept)
        else None,
        "marginal_pages": len(new),
        "marginal_tokens": pc.sum(new["tokens"]).as_py() or 0,
        "new_hosts": len(set(kept["host"].to_pylist()) - hosts),
    }


def write_kept(path: Path, kept: pa.Table, previous: pa.Table | None, iteration: int) -> None:
    """Kept pages in rank order; `iteration` is the first one of an unbroken row that kept the page."""
    before: dict[str, int] = {}
    if previous is not None:
        before = dict(zip(previous["id"].to_pylist(), previous["iteration"].to_pylist(), strict=True))
    rows = (
        {**row, "rank": rank, "iteration": before.get(row["id"], iteration)}
        for rank, row in enumerate(kept.drop_columns(["tie"]).to_pylist(), 1)
    )
    write_table(path, rows, KEPT)


def grow_lists(stage: Stage[CorpusSection], growth: Growth) -> None:
    """Write the lists that the next iteration learns from."""
    for name, added in zip(LISTS, (growth.seed, growth.not_math), strict=True):
        urls = [*current_list(stage, name), *sorted(added)]
        (stage.partial / f"{name}.txt").write_text("".join(f"{url}\n" for url in urls))


def current_list(stage: Stage[CorpusSection], name: str) -> list[str]:
    """The list that this iteration learnt from; empty if there is none."""
    if "previous" in stage.inputs:
        return read_urls(stage.input("previous") / f"{name}.txt")
    return read_urls(stage.input(name)) if stage.inputs.get(name) else []


def write_review(path: Path, queue: list[dict[str, str | int]]) -> None:
    """The queue in the form of an annotation file, verdicts to be filled in."""
    lines = ["prefix\tverdict\tannotator\tdate\tevidence\n"]
    for row in queue:
        evidence = (
            f"{row['kept']} of {row['pages']} pages kept, expect {row['expected']} more: {row['samples']}"
        )
        lines.append(f"{row['prefix']}\t\t\t\t{evidence}\n")
    path.write_text("".join(lines))


def select(stage: Stage[CorpusSection], iteration: int) -> dict[str, Any]:
    """Write kept pages, lists and review queue; returns the metrics."""
    config, survivors = stage.config, Survivors(stage.input("pool") / "duplicates.parquet")
    table, other = (
        ranked([Path(path) for path in stage.inputs["score"]]),
        held_out_negatives(stage.input("train")),
    )
    scored = len(table)
    if stage.inputs.get("opt_out"):
        table = without_opted_out(table, stage.input("opt_out"))
    size = cut(table, other, config, iteration)
    kept = table.slice(0, size)
    previous = read_table(stage.input("previous") / "kept.parquet") if "previous" in stage.inputs else None
    write_kept(stage.partial / "kept.parquet", kept, previous, iteration)

    urls = table["url"].to_pylist()
    pages = [Page(url, survivors.key(url), rank < size) for rank, url in enumerate(urls)]
    annotations = (
        read_annotations(stage.input("annotations")) if stage.inputs.get("annotations") else Annotations({})
    )
    domains = judge(pages, config)
    listed = {name: current_list(stage, name) for name in LISTS}
    known = {survivors.key(url) for urls in listed.values() for url in urls}
    growth = learn(pages, domains, annotations, known, config)
    grow_lists(stage, growth)
    write_review(stage.partial / "review.tsv", review_queue(pages, domains, annotations, config.domain_depth))

    changes = compare(kept, previous)
    trained = json.loads((stage.input("train") / "train.json").read_text())
    scores = table["score"].to_numpy()
    return changes | {
        "iteration": iteration,
        "seed_pages": len(listed["seed_urls"]),
        "seed_growth": len(growth.seed),
        "not_math_growth": len(growth.not_math),
        "pool_pages": len(table),
        "opted_out_pages": scored - len(table),
        "kept_pages": size,
        "kept_tokens": pc.sum(kept["tokens"]).as_py() or 0,
        "threshold": float(scores[size - 1]) if size else None,
        **{name: trained[name] for name in TRAINED},
        "domains": [domain.row() for domain in domains],
        "prefixes_used": [
            {"prefix": prefix, "pages": count} for prefix, count in sorted(growth.prefixes.items())
        ],
        "converged": (changes["overlap_with_previous"] or 0) >= config.converged,
        "passed_through": False,
    }


def run(stage: Stage[CorpusSection]) -> Counts:
    """Write the iteration's selection; after convergence the previous one's."""
    iteration = int(stage.instance.split("/")[0].removeprefix("iteration-"))
    if converged_before(stage):
        source = stage.input("previous")
        pass_through(
            source, stage.partial, ["kept.parquet", "review.tsv", *(f"{name}.txt" for name in LISTS)]
        )
        metrics = json.loads((source / "metrics.json").read_text()) | {
            "iteration": iteration,
            "passed_through": True,
        }
    else:
        metrics = select(stage, iteration)
    write_json(stage.partial / "metrics.json", metrics)
    return {name: metrics[name] for name in ("kept_pages", "kept_tokens", "seed_growth", "converged")}


if __name__ == "__main__":
    run_stage("corpus", CorpusSection, run)
