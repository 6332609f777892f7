"""The second stage: pages that fastText ranks high are judged again by a linear model that sees more (ours;
the paper has fastText alone).

The model is a ridge regression on `features.py`, trained on at most `MOST_PAGES` of the same pages as
fastText, or of pages with grades (`training_set.py`).
Scores of pages on hosts that neither model has seen decide how both count: log-odds = a + b * fastText +
c * ridge. Pages below `reach` of fastText, all but a few per cent of a crawl, are not judged again: they
count as if the second model were sure that they are not mathematical.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.config.corpus import CorpusSection, SecondStage
from pipeline.corpus.classifier import PageScorer
from pipeline.corpus.features import Embeddings, Features, Vectors
from pipeline.corpus.training_set import LabelledPage
from pipeline.crawl.urls import normalise_url
from pipeline.data.rows import HUB
from pipeline.protocol.stage import InputError

RIDGE_PENALTY = 0.3  # of the ridge regression; ours, and no configuration needed another
MOST_PAGES = 50_000  # that the ridge learns from; fastText learns from all
STEPS, TOLERANCE = 200, 1e-10  # of the conjugate gradients
PENALTY = 1e-6  # keeps the logistic regression of both scores finite where they separate all pages
UNJUDGED = -1.0  # the second model's output for a page that it is not asked about
FILE = "second_stage.safetensors"
FIRST = pa.field("first", pa.float64())  # by fastText alone, where `score` is that of both stages


def with_stages(schema: pa.Schema, config: CorpusSection) -> pa.Schema:
    """Add the column of a second stage, where there is one."""
    return schema.append(FIRST) if config.second_stage.enabled else schema


@dataclass
class Ridge:
    """A linear model of features; about 1 for mathematical pages and -1 for others, or their grade."""

    features: Features
    weights: Vectors
    bias: float

    def __call__(self, text: str) -> float:
        columns, values = self.features.of(text)
        return float(self.weights[columns] @ values) + self.bias


def train_ridge(pages: Sequence[LabelledPage], embeddings: Embeddings | None) -> Ridge:
    """Ridge regression on the pages' targets, solved for one number a page by conjugate gradients."""
    texts = [page.text for page in pages]
    features = Features.learn(texts, embeddings)
    rows = [features.of(text) for text in texts]
    columns, values = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    row = np.repeat(np.arange(len(rows)), [len(found) for found, _ in rows])
    labels = np.array([page.target for page in pages])
    bias = float(labels.mean())

    def weights(of_pages: Vectors) -> Vectors:
        return np.bincount(columns, of_pages[row] * values, minlength=len(features))

    def kernel(of_pages: Vectors) -> Vectors:
        sums = np.bincount(row, weights(of_pages)[columns] * values, minlength=len(rows))
        return sums + RIDGE_PENALTY * of_pages

    solution = np.zeros(len(rows))
    rest = labels - bias
    direction, size = rest.copy(), float(rest @ rest)
    for _ in range(STEPS):
        if size < TOLERANCE:
            break
        image = kernel(direction)
        step = size / float(direction @ image)
        solution += step * direction
        rest -= step * image
        last, size = size, float(rest @ rest)
        direction = rest + size / last * direction
    return Ridge(features, weights(solution), bias)


def drawn(pages: Sequence[LabelledPage]) -> list[LabelledPage]:
    """Draw at most `MOST_PAGES`, evenly from all."""
    step = len(pages) / MOST_PAGES
    return list(pages) if step <= 1 else [pages[int(step * place)] for place in range(MOST_PAGES)]


def cross_validated(
    pages: Sequence[LabelledPage],
    folds: Sequence[int],
    embeddings: Embeddings | None,
    graded: Sequence[LabelledPage] = (),
) -> list[float]:
    """Return the output for each page (N,) of a model that has not seen its fold or, if it learns from
    `graded` pages, any page of the fold's hosts. Raises InputError if none is left.
    """
    found = [0.0] * len(pages)
    for fold in sorted(set(folds)):
        others = [page for page, other in zip(pages, folds, strict=True) if other != fold]
        if graded:
            sites = {_site(page) for page, own in zip(pages, folds, strict=True) if own == fold}
            others = [page for page in graded if _site(page) not in sites]
        if not others:
            raise InputError(
                "corpus.second_stage.grades: all graded pages are on hosts of the training pages of one fold:"
                " grade pages of more hosts"
            )
        ridge = train_ridge(drawn(others), embeddings)
        for place, page in enumerate(pages):
            if folds[place] == fold:
                found[place] = ridge(page.text)
    return found


def _site(page: LabelledPage) -> str:
    return normalise_url(page.url).partition("/")[0]


@dataclass
class Blend:
    """How both scores count together: log-odds = `bias` + `first` * fastText + `second` * ridge."""

    bias: float
    first: float
    second: float

    def __call__(self, first: float, second: float) -> float:
        return self.bias + self.first * first + self.second * second


def blend(pages: Sequence[LabelledPage], first: Sequence[float], second: Sequence[float]) -> Blend:
    """Fit to held-out scores (N,) of both stages by logistic regression; neither counts negatively."""
    math = np.array([page.math for page in pages])
    inputs = np.column_stack([np.ones(len(pages)), first, second])
    values = _logistic(inputs, math)
    for other in (1, 2):
        if values[other] < 0:
            values = np.insert(_logistic(np.delete(inputs, other, axis=1), math), other, 0.0)
    return Blend(*np.maximum(values, [-np.inf, 0, 0]).tolist())


def _logistic(inputs: Vectors, labels: NDArray[np.bool_]) -> Vectors:
    """Coefficients (C,) of a logistic regression, by Newton's method."""
    found = np.zeros(inputs.shape[1])
    for _ in range(STEPS):
        chances = 1 / (1 + np.exp(-np.clip(inputs @ found, -30, 30)))
        slope = inputs.T @ (chances - labels) + PENALTY * found
        curve = (inputs * (chances * (1 - chances))[:, None]).T @ inputs + PENALTY * np.eye(len(found))
        step = np.linalg.solve(curve, slope)
        found -= step * min(1.0, 5.0 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-9:
            break
    return found


class TwoStages:
    """Log-odds of a page by both stages, and by fastText alone."""

    def __init__(self, first: PageScorer, ridge: Ridge, blended: Blend, reach: float) -> None:
        self._first, self._ridge, self._blend, self._reach = first, ridge, blended, reach

    def __call__(self, text: str) -> tuple[float, float]:
        first = self._first(text)
        if first >= self._reach:
            return self._blend(first, self._ridge(text)), first
        return self._blend(self._reach, UNJUDGED) + first - self._reach, first  # in fastText's order


def save(path: Path, ridge: Ridge, blended: Blend) -> None:
    """Write the second stage to one file, the same bytes for the same model."""
    from safetensors.numpy import save

    features = ridge.features
    mean, spread = features.scale
    arrays = {"keys": features.keys, "idf": features.weights, "weights": ridge.weights}
    notes = {"bias": ridge.bias, "words": features.words, "blend": vars(blended)}
    path.write_bytes(save(arrays | {"mean": mean, "spread": spread}, {"notes": json.dumps(notes)}))


def train_second(
    folder: Path,
    pages: list[LabelledPage],
    first: PageScorer,
    blended: Blend,
    config: SecondStage,
    embeddings: Embeddings | None,
) -> tuple[TwoStages, dict[str, Any]]:
    """Train and save the second stage; returns both stages together, and what to note of the second."""
    ridge = train_ridge(drawn(pages), embeddings)
    save(folder / FILE, ridge, blended)
    notes = {"second_stage": vars(blended), "features": len(ridge.features)}
    return TwoStages(first, ridge, blended, config.reach), notes


def load_second(
    folder: Path, first: PageScorer, section: SecondStage, embeddings: Embeddings | None
) -> TwoStages:
    """Both stages, of which `save` wrote the second. Raises InputError."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / FILE, "np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            notes = json.loads(file.metadata()["notes"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder / FILE}: cannot be read ({error!r}); make it again") from error
    scale = arrays["mean"], arrays["spread"]
    features = Features(notes["words"], arrays["keys"], arrays["idf"], scale, embeddings)
    ridge = Ridge(features, arrays["weights"], notes["bias"])
    return TwoStages(first, ridge, Blend(**notes["blend"]), section.reach)


def embeddings_of(inputs: dict[str, list[str]]) -> Embeddings | None:
    """Load the model that the input `embeddings` names, if any; a hub id is fetched. Raises InputError."""
    source = next(iter(inputs.get("embeddings", [])), None)
    if source is None:
        return None
    if not source.startswith(HUB):
        return Embeddings(Path(source))
    from huggingface_hub import snapshot_download

    try:
        return Embeddings(
            Path(snapshot_download(source.removeprefix(HUB), allow_patterns=["*.json", "*.safetensors"]))
        )
    except (OSError, ValueError) as error:
        raise InputError(f"{source}: cannot be loaded ({type(error).__name__}: {error})") from error
