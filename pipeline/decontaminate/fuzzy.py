"""Questions in other words: a second check, for those that share no run of ten grams with a page.

As in allenai/decon, runs of a few grams that only few questions have are anchors. Where several anchors of
one question lie close together, the page's grams around them are compared with all grams of the question,
each weighted by how rare it is among the questions. So typing errors, footnotes between words, other
variables, sentences in another order and small changes of words are found. Single letters count as one gram,
because the name of a variable says nothing. A question with other numbers is another question: nearly all
must be there.

Translations and free rewording share too few grams. They are not found.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.crawl.grams import Grams, Hashes, grams, runs, runs_at
from pipeline.decontaminate.evidence import Kind, windows

ANCHOR = 3  # grams of an anchor
FEW = 5  # questions that may have it
SHORTEST = 10  # grams of a question that is looked for
STRETCH, SLACK = 1.7, 8  # the page's part may be so many times as long as the question, and so many grams
ANCHORS, ANCHOR_SHARE = 3, 0.2  # of one question, close together
COVERED, WORDS, NUMBERS = 0.7, 0.7, 0.8  # of a question's weight, of its words, of its numbers
MANY_WORDS, NEARLY_ALL = 4, 0.9  # fewer words (or CJK characters) prove less: then nearly all must be there
EVIDENCE = 6  # words and numbers that are needed
LETTER_WEIGHT = 0.1
LETTERS = np.sort(np.concatenate([grams(letter).hashes for letter in "abcdefghijklmnopqrstuvwxyz"]))
LETTER = np.uint64(1)  # the gram that stands for any single letter


@dataclass(frozen=True)
class Similar:
    """A part of a page that is like a question: first gram and end; the share of the question's weight."""

    question: int
    first: int
    last: int
    share: float


def letters_alike(found: Grams) -> Hashes:
    """Return the hashes of grams (T,), the same for all single letters."""
    short = np.flatnonzero(found.ends - found.starts == 1)
    values = found.hashes[short]
    places = np.minimum(np.searchsorted(LETTERS, values), len(LETTERS) - 1)
    hashes = found.hashes.copy()
    hashes[short[LETTERS[places] == values]] = LETTER
    return hashes


class FuzzyIndex:
    """Anchors and weighted grams of questions. `views`: grams of each, letters alike; `kinds`: of grams."""

    def __init__(self, views: list[Hashes], kinds: dict[int, int]) -> None:
        self._views = views
        values, counts = np.unique(np.concatenate([np.unique(view) for view in views]), return_counts=True)
        weights = np.log(1 + len(views) / counts)
        self._weights = dict(zip(values.tolist(), weights.tolist(), strict=True))
        self._weights[int(LETTER)] = LETTER_WEIGHT
        self._is_number = {value for value, kind in kinds.items() if kind & Kind.DIGITS}
        self._content = {value for value, kind in kinds.items() if kind & (Kind.LONG | Kind.CHARACTER)}
        solid = self._content | {value for value, kind in kinds.items() if kind & Kind.NUMBER}
        found = [_anchors(view, solid) for view in views]
        keys, of = np.concatenate(found), np.repeat(np.arange(len(views)), list(map(len, found)))
        order = np.argsort(keys, kind="stable")
        _, index, shared = np.unique(keys[order], return_inverse=True, return_counts=True)
        rare = order[shared[index] <= FEW]
        self.keys, self._of = keys[rare], of[rare]
        self._needed = np.maximum(ANCHORS, ANCHOR_SHARE * np.bincount(self._of, minlength=len(views)))
        self._spans = (STRETCH * np.array(list(map(len, views)))).astype(np.int64) + SLACK

    def similar(self, view: Hashes, passed: NDArray[np.int64]) -> list[Similar]:
        """Parts of a page that are like questions; `passed`: where anchors may begin."""
        values = runs_at(view, passed, ANCHOR)
        low, high = (np.searchsorted(self.keys, values, side=side) for side in ("left", "right"))
        sizes = high - low
        if not sizes.any():
            return []
        rows = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(low, sizes)
        places, of = np.repeat(passed, sizes), self._of[rows]
        order = np.lexsort((places, of))
        places, of = places[order], of[order]
        found = []
        for own in np.split(np.arange(len(of)), np.flatnonzero(np.diff(of)) + 1):  # anchors of a question
            number = int(of[own[0]])
            if len(own) >= self._needed[number]:
                found += self._around(view, number, places[own])
        return found

    def _around(self, view: Hashes, number: int, places: NDArray[np.int64]) -> list[Similar]:
        """Find the best part around the anchors of question `number`, if it is like it."""
        span, needed = int(self._spans[number]), self._needed[number]
        ends = np.searchsorted(places, places + span, side="left")
        counts = ends - np.arange(len(places))
        best = int(counts.argmax())
        if counts[best] < needed:
            return []
        middle = int(places[best] + places[ends[best] - 1]) // 2
        first, last = max(0, middle - span // 2), min(len(view), middle + span // 2 + ANCHOR)
        if not (share := self._alike(self._views[number], view[first:last])):
            return []
        return [Similar(number, int(places[best]), int(places[ends[best] - 1]) + ANCHOR, share)]

    def _alike(self, question: Hashes, part: Hashes) -> float:
        """Return the share of a question's weight that is in a part of a page; 0 if too little of it is. What
        the question has twice must be there twice.
        """
        there, total, found = Counter(part.tolist()), 0.0, 0.0
        all_words, words, all_numbers, numbers = 0, 0, 0, 0
        for value in question.tolist():
            same = there[value] > 0
            there[value] -= same
            total += self._weights[value]
            found += self._weights[value] * same
            all_words += (is_word := value in self._content)
            words += is_word and same
            all_numbers += (is_number := value in self._is_number)
            numbers += is_number and same
        enough = words >= WORDS * all_words and numbers >= NUMBERS * all_numbers
        least = COVERED if words >= MANY_WORDS else NEARLY_ALL
        return found / total if enough and words + numbers >= EVIDENCE and found >= least * total else 0.0


def _anchors(view: Hashes, content: set[int]) -> Hashes:
    """Return the runs of a question that may be anchors: they have a long word, a CJK character or number."""
    has = np.fromiter((value in content for value in view.tolist()), bool, len(view))
    return np.unique(runs(view, ANCHOR)[windows(has, ANCHOR) > 0])
