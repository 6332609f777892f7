"""A trained classifier and its cut, outside of the loop: of an iteration of a run, or as `dsm export` wrote
it. Both stages, the normaliser and the cut are those of the programs `score` and `select`.
"""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pipeline.config.corpus import SecondStage
from pipeline.corpus.classifier import PageScorer, load
from pipeline.corpus.convergence import read_notes
from pipeline.corpus.normalise import VERSION, normalise
from pipeline.corpus.second_stage import FILE, TwoStages, embeddings_of, load_second
from pipeline.crawl.text import clean
from pipeline.protocol.identity import read_manifest
from pipeline.protocol.stage import InputError

CUT = "cut.json"  # of an exported classifier: what the files of the model do not tell


@dataclass(frozen=True)
class Judgement:
    """What a classifier makes of a text: its log-odds, and whether they are above the cut."""

    score: float
    kept: bool


@dataclass(frozen=True)
class TrainedClassifier:
    """A classifier with the cut of its iteration (None: nothing is kept); `sha256`: of the model of its first
    stage; `second`: the reach of the second stage, and the digest of its model, if there is one.
    """

    scorer: PageScorer | TwoStages
    threshold: float | None
    sha256: str
    second: dict[str, Any] | None = None

    def judge(self, text: str) -> Judgement:
        """Judge a text as the loop would judge the page."""
        score = self.scorer(normalise(clean(text)))
        value = score[0] if isinstance(score, tuple) else score
        return Judgement(value, self.threshold is not None and value >= self.threshold)


def folder_of(classifier: Path) -> Path:
    """Return the folder with the files of the model. Raises InputError if there is none."""
    if (classifier / CUT).is_file():
        return classifier
    folder = classifier / "train/data"
    if not folder.is_dir() or not (classifier / "select/data/metrics.json").is_file():
        expected = "expected results/<run>/corpus/iteration-<number>, or a folder that `dsm export` wrote"
        raise InputError(f"{classifier}: no finished classifier; {expected}")
    return folder


def cut_of(classifier: Path) -> dict[str, Any]:
    """Describe a classifier's cut and second stage, as `CUT` does: `threshold`, or null where nothing is
    kept; `reach` and `embeddings` of the second stage, or null. Raises InputError.
    """
    if folder_of(classifier) == classifier:
        return read_notes(classifier / CUT, "threshold", "second_stage")
    metrics = read_notes(classifier / "select/data/metrics.json", "threshold", "passed_through")
    if metrics["passed_through"]:
        raise InputError(f"{classifier}: a copy of the iteration before it; name the last one that learnt")
    section = read_manifest(classifier / "train/manifest.json")["config"]["second_stage"]
    inputs = read_notes(classifier / "train/run.json", "inputs")["inputs"]
    second = {"reach": section["reach"], "embeddings": next(iter(inputs.get("embeddings", [])), None)}
    return {
        "threshold": metrics["threshold"],
        "second_stage": second if section["enabled"] else None,
    }


def open_trained(classifier: Path) -> TrainedClassifier:
    """Load the classifier of an iteration's folder, or of one that `dsm export` wrote. Raises InputError."""
    folder, cut = folder_of(classifier), cut_of(classifier)
    notes = read_notes(folder / "train.json", "normaliser", "sha256")
    if notes["normaliser"] != VERSION:
        raise InputError(
            f"{folder}: made for version {notes['normaliser']} of the normaliser, this is {VERSION}; train it"
            " again"
        )
    scorer: PageScorer | TwoStages = PageScorer(load(folder))
    about = None
    if second := cut["second_stage"]:
        source = second["embeddings"]
        if source and folder == classifier and (folder / source).is_dir():  # exported with it
            source = str(folder / source)
        section = SecondStage(enabled=True, reach=second["reach"])
        scorer = load_second(
            folder, scorer, section, embeddings_of({"embeddings": [source] if source else []})
        )
        about = {"reach": second["reach"], "sha256": sha256((folder / FILE).read_bytes()).hexdigest()}
    return TrainedClassifier(scorer, cut["threshold"], notes["sha256"], about)
