"""Steps of the corpus as blocks of datatrove's pipelines: put them between a reader and a writer of its own.

    from pipeline.corpus.blocks import BenchmarkFilter, ClassifierFilter, HtmlExtractor, MathFilter

They do what the stages do, by the same code, on documents of any origin. A filter gives the reason for which
it drops a document, which datatrove counts and its `exclusion_writer` writes.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from datatrove.data import Document
from datatrove.pipeline.dedup import MinhashDedupSignature
from datatrove.pipeline.extractors.base import BaseExtractor
from datatrove.pipeline.filters.base_filter import BaseFilter
from datatrove.pipeline.writers.disk_base import DiskWriter
from numpy.typing import NDArray
from webformulas.signs import Source

from pipeline.config.decontaminate import DecontaminateSection
from pipeline.corpus.trained import SCORE, TrainedClassifier, open_trained
from pipeline.crawl.http_decoding import Unusable
from pipeline.crawl.mathematics import has_mathematics
from pipeline.crawl.page_limits import PAGE_SECONDS
from pipeline.crawl.signatures import ABSENT, MinHasher
from pipeline.crawl.text import MIN_CHARACTERS, extract
from pipeline.decontaminate.ngrams import PREFIX, BenchmarkIndex, build_index

Kept = bool | tuple[bool, str]


class HtmlExtractor(BaseExtractor):
    """HTML to text with formulas as TeX, as stage `crawl` extracts it. A page takes at most `timeout`
    seconds.
    """

    name = "∑ HTML with formulas"

    def __init__(self, timeout: float = PAGE_SECONDS) -> None:
        super().__init__(timeout)

    def extract(self, text: str) -> str:
        """Return the text of a page; none for one that cannot be extracted."""
        try:
            return extract(Source(text), MIN_CHARACTERS)[1]
        except (Unusable, RecursionError, MemoryError):
            return ""


class MathFilter(BaseFilter):
    """Keep texts with a sign of mathematics, as `crawl.order: math_first` does."""

    name = "∑ signs of mathematics"

    def filter(self, document: Document) -> Kept:
        """Judge a document."""
        text = f"{document.metadata.get('title', '')}\n{document.text}"
        return has_mathematics(text) or (False, "no_mathematics")


class ClassifierFilter(BaseFilter):
    """Keep texts above the cut of a trained classifier, as `dsm classify` does, with their score as
    `math_score`. `classifier`: an iteration's folder of a run, or one that `dsm export` wrote.
    """

    name = "∑ classifier"

    def __init__(self, classifier: str | Path, exclusion_writer: DiskWriter | None = None) -> None:
        super().__init__(exclusion_writer)
        self.classifier = Path(classifier)

    @cached_property
    def _trained(self) -> TrainedClassifier:  # loaded in the process that filters
        return open_trained(self.classifier)

    def filter(self, document: Document) -> Kept:
        """Judge a document by its text."""
        found = self._trained.judge(document.text)
        document.metadata[SCORE] = found.score
        return found.kept or (False, "below_the_cut")


class BenchmarkFilter(BaseFilter):
    """Drop texts that hold a benchmark's text, as stage `decontaminate` does. `benchmarks`: files of rows by
    name.
    """

    name = "∑ benchmarks"

    def __init__(
        self, benchmarks: Mapping[str, Sequence[str]], exclusion_writer: DiskWriter | None = None
    ) -> None:
        super().__init__(exclusion_writer)
        self.benchmarks = {f"{PREFIX}{name}": list(files) for name, files in benchmarks.items()}

    @cached_property
    def _index(self) -> BenchmarkIndex:
        return build_index(self.benchmarks, DecontaminateSection())

    def filter(self, document: Document) -> Kept:
        """Judge a document; the reason names the benchmark."""
        matches = self._index.matches(document.text)
        return (False, f"benchmark_{matches[0].benchmark}") if matches else True


class Signatures(MinhashDedupSignature):
    """Datatrove's first step of deduplication, for its others, with the grams of stage `crawl`: words and CJK
    characters, numbers too, in all languages alike.
    """

    name = "∑ MinHash stage 1"

    @cached_property
    def _hasher(self) -> MinHasher:
        return MinHasher(self.config.n_grams, self.num_hashes, self.config.seed)

    def get_shingles(self, text: str) -> NDArray[np.uint32]:
        """Return the smallest hashes over the shingles of a text; none for one without shingles."""
        found = self._hasher.signature(text)
        return found[found != ABSENT]

    def get_signature(self, shingles: NDArray[np.uint32]) -> list[list[int]]:
        """Divide the smallest hashes among the buckets."""
        return [bucket.tolist() for bucket in np.split(shingles, self.config.num_buckets)]
