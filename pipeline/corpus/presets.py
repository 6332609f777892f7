"""Classifier settings that fit the number of training pages; the paper's are made for a million (section
2.1).

Few pages need a large learning rate and many epochs: 1,700 pages at the paper's 0.1 and 3 epochs gave an
average precision of 0.90 on other pages of their sites, at 0.5 and 25 epochs 0.999. They also need rare
words, and character n-grams to tell words that they do not hold. The first preset is measured; the two
between it and the paper's are steps from one to the other.
"""

from typing import Any

from pipeline.config.corpus import CorpusSection

NAMES = ("dimension", "learning_rate", "word_ngrams", "min_count", "epochs", "buckets", "subwords")
PRESETS = (  # for at most so many pages
    (3_000, (16, 0.5, 2, 1, 25, 200_000, (4, 6))),
    (30_000, (32, 0.5, 2, 2, 15, 500_000, (4, 6))),
    (300_000, (64, 0.3, 3, 3, 8, 1_000_000, (0, 0))),
)
PAPER = (256, 0.1, 3, 3, 3, 2_000_000, (0, 0))


def scaled(config: CorpusSection, pages: int) -> CorpusSection:
    """The section with numbers in the place of each `auto`, by the number of training pages."""
    preset = next((values for most, values in PRESETS if pages <= most), PAPER)
    chosen = zip(NAMES, preset, strict=True)
    return config.model_copy(
        update={name: value for name, value in chosen if getattr(config, name) == "auto"}
    )


def settings(config: CorpusSection) -> dict[str, Any]:
    """What fastText is trained with, by key."""
    return {name: getattr(config, name) for name in NAMES}
