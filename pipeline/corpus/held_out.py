"""How good a classifier is on sites that it has not seen: cross-validation with folds of whole hosts.

A page of a known site is easy to recognise by that site's words alone, so all pages of a host are in one
fold. Only a class with too few hosts (the first seed may be one site) is divided page by page, and the result
says so.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

from pipeline.config.corpus import CorpusSection
from pipeline.core.data.workers import map_forked
from pipeline.core.progress import Progress
from pipeline.core.stage import Stage, label
from pipeline.corpus.classifier import PageScorer, scaled, train
from pipeline.corpus.training_set import DRAWN, LabelledPage
from pipeline.crawl.urls import normalise_url


@dataclass(frozen=True)
class Folds:
    """The fold of each page (N,), and whether each class is divided by host."""

    of: list[int]
    math_by_host: bool
    other_by_host: bool


def divide(pages: Sequence[LabelledPage], count: int) -> Folds:
    """Divide by host into `count` folds of similar size. A class that would be nearly all in one fold, with
    little left to train on, is divided page by page.
    """
    fold_of_host = _balanced(Counter(page.host for page in pages), count)
    by_host = [fold_of_host[page.host] for page in pages]
    folds, whole = list(by_host), {}
    for math in (True, False):
        members = [index for index, page in enumerate(pages) if page.math == math]
        largest = max(Counter(by_host[index] for index in members).values(), default=0)
        whole[math] = largest <= len(members) * (1 - 0.5 / count)
        if not whole[math]:
            members.sort(key=lambda index: blake2b(pages[index].url.encode()).digest())
            for place, index in enumerate(members):
                folds[index] = place % count
    return Folds(folds, whole[True], whole[False])


def _balanced(pages: Counter[str], count: int) -> dict[str, int]:
    """Hosts to folds, largest first, each to the fold that has the fewest pages."""
    sizes, found = [0] * count, {}
    for host, size in sorted(pages.items(), key=lambda item: (-item[1], item[0])):
        found[host] = sizes.index(min(sizes))
        sizes[found[host]] += size
    return found


def cross_validate(
    pages: Sequence[LabelledPage], folds: Folds, config: CorpusSection, work: Path, processes: int, name: str
) -> list[float]:
    """Return the log-odds of each page (N,) by a model that has not seen its fold; `name`: of its lines."""

    def fold_scores(fold: int) -> list[float]:
        others = [page for page, other in zip(pages, folds.of, strict=True) if other != fold]
        score = PageScorer(train(others, config, work / f"fold-{fold}.txt"))
        return [score(page.text) for page, own in zip(pages, folds.of, strict=True) if own == fold]

    scores = []
    with Progress(f"{name}: classifiers for measurement", config.folds, unit="fold") as bar:
        for values in map_forked(fold_scores, range(config.folds), processes):
            scores.append(iter(values))
            bar.update()
    return [next(scores[fold]) for fold in folds.of]


def least_like_seed(
    stage: Stage[CorpusSection], pages: Sequence[LabelledPage], rejected: Collection[str]
) -> list[LabelledPage]:
    """Leave of the negatives that were drawn from a pool the half that a first classifier scores least, and
    no more than there are positives. Those with keys in `rejected` stay: a reviewer has seen them.
    """
    config, positives = stage.config, [page for page in pages if page.math]
    others: dict[bool, list[LabelledPage]] = {True: [], False: []}
    for page in pages[len(positives) :]:
        others[normalise_url(page.url) in rejected].append(page)
    drawn = others[False][: DRAWN * min(len(positives), config.negatives)]
    tried = [*positives, *drawn]
    config = scaled(config, len(tried)).model_copy(update={"folds": max(2, config.folds)})
    folds, threads = divide(tried, config.folds), stage.launch.get("threads", 1)
    scores = cross_validate(tried, folds, config, stage.work, threads, label(stage))[len(positives) :]
    least = np.argsort(scores, kind="stable")[: -(-len(drawn) // DRAWN)]
    return [*positives, *others[True], *(drawn[place] for place in sorted(least.tolist()))]
