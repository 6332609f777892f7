"""How good a classifier is on sites that it has not seen: cross-validation with folds of whole hosts.

A page of a known site is easy to recognise by that site's words alone, so pages of one host never stand on
both sides of a fold. Only a class with too few hosts (the first seed may be one site) is divided page by
page, and the result says so.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from multiprocessing import get_context
from pathlib import Path

from pipeline.config.corpus import CorpusSection
from pipeline.corpus.classifier import Example, Scorer, train


@dataclass(frozen=True)
class Folds:
    """The fold of each example (N,), and whether each class is divided by host."""

    of: list[int]
    math_by_host: bool
    other_by_host: bool


def divide(examples: Sequence[Example], count: int) -> Folds:
    """Divide by host into `count` folds of similar size; page by page in a class of which one fold would hold
    nearly all and leave the others little to train on.
    """
    fold_of_host = _balanced(Counter(example.host for example in examples), count)
    by_host = [fold_of_host[example.host] for example in examples]
    folds, whole = list(by_host), {}
    for math in (True, False):
        members = [index for index, example in enumerate(examples) if example.math == math]
        largest = max(Counter(by_host[index] for index in members).values(), default=0)
        whole[math] = largest <= len(members) * (1 - 0.5 / count)
        if not whole[math]:
            members.sort(key=lambda index: blake2b(examples[index].url.encode()).digest())
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


def _fold_scores(
    fold: int, examples: Sequence[Example], folds: list[int], config: CorpusSection, work: Path
) -> list[float]:
    """Scores of one fold's pages by a model of the others."""
    learnt = [example for example, other in zip(examples, folds, strict=True) if other != fold]
    score = Scorer(train(learnt, config, work / f"fold-{fold}.txt"))
    return [score(example.text) for example, own in zip(examples, folds, strict=True) if own == fold]


def cross_validate(
    examples: Sequence[Example], folds: Folds, config: CorpusSection, work: Path, processes: int
) -> list[float]:
    """Log-odds of each example (N,) by a model that has not seen its fold."""
    scores: dict[int, list[float]] = defaultdict(list)
    with ProcessPoolExecutor(processes, mp_context=get_context("fork")) as pool:
        score = partial(_fold_scores, examples=examples, folds=folds.of, config=config, work=work)
        for fold, values in enumerate(pool.map(score, range(config.folds))):
            scores[fold] = values[::-1]
    return [scores[fold].pop() for fold in folds.of]
