"""A trained classifier and its cut, outside of the loop: of an iteration of a run, or as `dsm export` wrote
it. The normaliser and the cut are those of the programs `score` and `select`.
"""

from dataclasses import dataclass
from pathlib import Path

from pipeline.core.stage import InputError
from pipeline.corpus.classifier import PageScorer, load
from pipeline.corpus.convergence import read_notes
from pipeline.corpus.normalise import VERSION, normalise
from pipeline.crawl.text import clean

CUT = "cut.json"  # of an exported classifier: what the files of the model do not tell

SCORE = "math_score"  # the column that is added: data sets have scores of their own


@dataclass(frozen=True)
class Judgement:
    """What a classifier makes of a text: its log-odds, and whether they are above the cut."""

    score: float
    kept: bool


@dataclass(frozen=True)
class TrainedClassifier:
    """A classifier with the cut of its iteration (None: nothing is kept); `sha256`: of the model."""

    scorer: PageScorer
    threshold: float | None
    sha256: str

    def judge(self, text: str) -> Judgement:
        """Judge a text as the loop would judge the page."""
        score = self.scorer(normalise(clean(text)))
        return Judgement(score, self.threshold is not None and score >= self.threshold)


def folder_of(classifier: Path) -> Path:
    """Return the folder with the files of the model. Raises InputError if there is none."""
    if (classifier / CUT).is_file():
        return classifier
    folder = classifier / "train/data"
    if not folder.is_dir() or not (classifier / "select/data/metrics.json").is_file():
        expected = "expected results/<run>/corpus/iteration-<number>, or a folder that `dsm export` wrote"
        raise InputError(f"{classifier}: no finished classifier; {expected}")
    return folder


def cut_of(classifier: Path) -> float | None:
    """Read a classifier's cut; None where nothing is kept. Raises InputError."""
    if folder_of(classifier) == classifier:
        return read_notes(classifier / CUT, "threshold")["threshold"]
    metrics = read_notes(classifier / "select/data/metrics.json", "threshold", "passed_through")
    if metrics["passed_through"]:
        raise InputError(f"{classifier}: a copy of the iteration before it; name the last one that learnt")
    return metrics["threshold"]


def open_trained(classifier: Path) -> TrainedClassifier:
    """Load the classifier of an iteration's folder, or of one that `dsm export` wrote. Raises InputError."""
    folder, cut = folder_of(classifier), cut_of(classifier)
    notes = read_notes(folder / "train.json", "normaliser", "sha256")
    if notes["normaliser"] != VERSION:
        raise InputError(
            f"{folder}: made for version {notes['normaliser']} of the normaliser, this is {VERSION}; train it"
            " again"
        )
    return TrainedClassifier(PageScorer(load(folder)), cut, notes["sha256"])
