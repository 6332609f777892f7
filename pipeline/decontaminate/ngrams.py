"""Finding benchmark texts in pages by their n-grams (paper section 2.1).

The paper: a text with a 10-gram of a benchmark is removed; benchmark texts of 3 to 9 grams must match
whole. `crawl/grams.py` says what a gram is, `canonical.py` that notations of one formula have the same
grams, `evidence.py` which shared runs count.

A page's runs are hashed together and looked up in a bitmap. Those that pass are searched among the sorted
hashes of the benchmarks; those found there are compared gram by gram. Memory depends on the benchmarks only:
about 30 bytes for each of their grams.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config.decontaminate import DecontaminateSection
from pipeline.core.data.rows import read_rows, renamed
from pipeline.core.errors import InputError
from pipeline.crawl.grams import Grams, Hashes, runs, runs_at
from pipeline.decontaminate.canonical import canonical, drawn, without_line_marks
from pipeline.decontaminate.evidence import SURE, full_runs, kind, short_text, specific, windows

BITS_PER_KEY = 16  # of the bitmap: at most one in 16 of the runs that are in no benchmark passes it
ALONE, LONG_RUN, WHOLE = 2, 1, 0  # a run proves a leak by itself, within a long run, with the whole question
CONTEXT = 60  # characters shown on both sides of a gram
PREFIX = "benchmark."  # of inputs
QUESTIONS = ("question", "problem", "prompt", "text", "input")  # as data sets of the hub call them
ANSWERS = ("answer", "solution", "solution_plain", "canonical_solution", "code")


@dataclass(frozen=True)
class Match:
    """A run of grams that a page shares with an item.

    `gram` is its first part of full length (or the whole short text) and `span` the place of that; `run` is
    the place of everything shared, both in characters of the page. `grams` is the length of the run.
    """

    benchmark: str
    item: str
    gram: str
    span: tuple[int, int]
    rule: str
    run: tuple[int, int]
    grams: int
    context: str


@dataclass(frozen=True)
class _Text:
    """A benchmark text: its item, and where its grams begin and end among all grams."""

    benchmark: str
    item: str
    is_question: bool
    start: int
    end: int


class _Bitmap:
    """A set of hashes with false positives."""

    def __init__(self, keys: Hashes) -> None:
        self._slots = np.uint64((1 << max(0, (len(keys) * BITS_PER_KEY // 64).bit_length())) - 1)
        self._bits = np.zeros(int(self._slots) + 1, np.uint64)
        np.bitwise_or.at(self._bits, *self._place(keys))

    def _place(self, values: Hashes) -> tuple[NDArray[np.int64], Hashes]:
        slots = (values >> np.uint64(6)) & self._slots
        return slots.view(np.int64), np.uint64(1) << (values & np.uint64(63))

    def passed(self, values: Hashes) -> NDArray[np.int64]:
        """Return the indices of the `values` (V,) that may be in the set."""
        slots, bits = self._place(values)
        return np.flatnonzero(self._bits[slots] & bits)


class _Runs:
    """Runs of one length: sorted hashes, places among the benchmarks' grams, what they prove: (R,) each."""

    def __init__(self, keys: Hashes, places: NDArray[np.int64], proof: NDArray[np.uint8]) -> None:
        order = np.argsort(keys, kind="stable")
        self.keys, self.places, self.proof = keys[order], places[order], proof[order]

    @cached_property
    def bitmap(self) -> _Bitmap:
        return _Bitmap(self.keys)

    def find(self, values: Hashes) -> Iterator[tuple[int, int, int]]:
        """(index of a value, place, proof) of the `values` (V,) that are keys."""
        low = np.searchsorted(self.keys, values, side="left")
        high = np.searchsorted(self.keys, values, side="right")
        for index in np.flatnonzero(low < high).tolist():
            for row in range(low[index], high[index]):
                yield index, int(self.places[row]), int(self.proof[row])


class BenchmarkIndex:
    """Grams of all benchmark texts, and the runs that count."""

    def __init__(self, ngram: int, shortest: int) -> None:
        self.ngram, self.shortest = ngram, shortest
        self._kinds: dict[int, int] = {}
        self._texts: list[_Text] = []
        self._parts: list[Hashes] = []
        self._drawings: list[NDArray[np.bool_]] = []  # which grams of each text are drawing code
        self._built = False

    def add(self, benchmark: str, item: str, text: str, is_question: bool = True) -> None:
        """Add a question, an answer or a solution; texts shorter than `shortest` are never matched."""
        found = canonical(text)
        if len(found) < self.shortest:
            return
        for number, value in enumerate(found.hashes.tolist()):
            if value not in self._kinds:
                self._kinds[value] = int(kind(found.words(number, number + 1)[0]))
        start = self._texts[-1].end if self._texts else 0
        self._texts.append(_Text(benchmark, item, is_question, start, start + len(found)))
        self._parts.append(found.hashes)
        self._drawings.append(drawn(found))
        self._built = False

    def build(self) -> None:
        """Sort what was added; the first search calls it if needed."""
        if self._built:
            return
        self._grams = np.concatenate([np.empty(0, np.uint64), *self._parts])
        self._is_drawn = np.concatenate([np.empty(0, bool), *self._drawings])
        self._starts = np.array([text.start for text in self._texts], np.int64)
        self._runs = {length: _Runs(*columns) for length, columns in sorted(self._evidence().items())}
        short = [table.places for length, table in self._runs.items() if length < self.ngram]
        places = np.concatenate([np.empty(0, np.int64), *short])
        self._heads = _Bitmap(runs_at(self._grams, places, self.shortest))
        self._built = True

    def __len__(self) -> int:
        self.build()
        return sum(len(table.keys) for table in self._runs.values())

    def _evidence(self) -> dict[int, tuple[Hashes, NDArray[np.int64], NDArray[np.uint8]]]:
        """Length -> (hashes, places, proof) of the runs that may be evidence."""
        if not self._texts:
            return {}
        kinds = np.fromiter((self._kinds[value] for value in self._grams.tolist()), np.uint8)
        sizes = [text.end - text.start for text in self._texts]
        is_specific = specific(self._grams, kinds, np.repeat(np.arange(len(sizes)), sizes))
        parts: dict[int, list[tuple[Hashes, NDArray[np.int64], NDArray[np.uint8]]]] = {}
        for text, size in zip(self._texts, sizes, strict=True):
            own, length = slice(text.start, text.end), min(size, self.ngram)
            if size >= self.ngram:
                any_word, content, sure = full_runs(kinds[own], is_specific[own], self.ngram)
                words = windows(self._is_drawn[own], self.ngram) == 0
                proof = np.where(sure & words, ALONE, np.where(content & words, LONG_RUN, WHOLE))
                kept = np.flatnonzero(any_word if text.is_question else content & words)
            else:
                words = text.is_question or not self._is_drawn[own].any()
                kept = np.flatnonzero([words and short_text(kinds[own], is_specific[own], text.is_question)])
                proof = np.array([ALONE])
            part = runs(self._grams[own], length)[kept], kept + text.start, proof[kept].astype(np.uint8)
            parts.setdefault(length, []).append(part)
        return {
            length: tuple(map(np.concatenate, zip(*found, strict=True))) for length, found in parts.items()
        }

    def matches(self, text: str) -> list[Match]:
        """Find the runs that `text` shares with items, in the order of the page. A page with marks at the
        start of lines is also searched without them, because they may cut a question.
        """
        self.build()
        page = canonical(text)
        matches = self._search(page)
        if len(bare := without_line_marks(page)) < len(page):
            places = {(match.benchmark, match.item, match.run) for match in matches}
            more = self._search(bare)
            matches += [one for one in more if (one.benchmark, one.item, one.run) not in places]
            matches.sort(key=lambda match: match.span)
        return matches

    def _search(self, page: Grams) -> list[Match]:
        """Find the runs of these grams."""
        found: dict[tuple[int, int, str, str], tuple[int, int]] = {}
        covered: dict[tuple[int, int], int] = {}
        for length, start, place, proof in self._hits(page.hashes):
            number = int(np.searchsorted(self._starts, place, side="right")) - 1
            item = self._texts[number]
            if start < covered.get((number, start - place), 0):
                continue  # inside a run already found
            first, last = self._extent(item, place, start, page.hashes)
            if last - first >= length and self._proves(proof, item, place - (start - first), last - first):
                covered[number, start - place] = last
                found.setdefault((first, last, item.benchmark, item.item), (start, length))
        ordered = sorted(found.items(), key=lambda match: (match[1], match[0]))
        return [self._match(page, run, gram) for run, gram in ordered]

    def _hits(self, page: Hashes) -> Iterator[tuple[int, int, int, int]]:
        """(length, start in the page, place, proof) of the page's runs that are in benchmarks."""
        heads = self._heads.passed(runs(page, self.shortest))
        for length, table in self._runs.items():
            if length == self.ngram:
                values = runs(page, length)
                starts = table.bitmap.passed(values)
                values = values[starts]
            else:
                starts = heads[heads <= len(page) - length]
                values = runs_at(page, starts, length)
            for index, place, proof in table.find(values):
                yield length, int(starts[index]), place, proof

    def _extent(self, item: _Text, place: int, start: int, page: Hashes) -> tuple[int, int]:
        """First gram and end of the longest run of `page` around `start` that equals `item` around `place`;
        an empty run if only the hashes of the runs are equal.
        """
        back, ahead = min(place - item.start, start), min(item.end - place, len(page) - start)
        before = self._grams[place - back : place][::-1] != page[start - back : start][::-1]
        after = self._grams[place : place + ahead] != page[start : start + ahead]
        first = start - (int(before.argmax()) if before.any() else back)
        return first, start + (int(after.argmax()) if after.any() else ahead)

    def _proves(self, proof: int, item: _Text, place: int, shared: int) -> bool:
        """Whether `shared` grams of an item from a place on, around a run of this `proof`, are a leak."""
        if proof == LONG_RUN and shared - self._is_drawn[place : place + shared].sum() >= SURE:
            return True
        return proof == ALONE or (item.is_question and shared == item.end - item.start)

    def _match(self, page: Grams, run: tuple[int, int, str, str], gram: tuple[int, int]) -> Match:
        first, last, benchmark, item = run
        start, length = gram
        low, high = int(page.starts[start]), int(page.ends[start + length - 1])
        return Match(
            benchmark,
            item,
            " ".join(page.words(start, start + length)),
            (low, high),
            f"{length}-gram" if length == self.ngram else "exact",
            (int(page.starts[first]), int(page.ends[last - 1])),
            last - first,
            page.text[max(0, low - CONTEXT) : high + CONTEXT],
        )


def _choices(choices: Any) -> str:
    """Write the choices of a short question, after it: its stem alone may be any heading."""
    if isinstance(choices, list):
        choices = {chr(ord("A") + number): text for number, text in enumerate(choices)}
    if not isinstance(choices, dict):
        return f"\n{choices or ''}"
    return "".join(f"\n({letter}) {text}" for letter, text in choices.items())


def build_index(inputs: dict[str, list[str]], config: DecontaminateSection) -> BenchmarkIndex:
    """Index questions, answers and solutions of all benchmarks among the inputs, by the names of columns that
    the section's `fields` give. Raises InputError.
    """
    index = BenchmarkIndex(config.ngram, config.shortest)
    for name in sorted(key for key in inputs if key.startswith(PREFIX)):
        rows, benchmark = 0, name.removeprefix(PREFIX)
        for source in inputs[name]:
            for place, row in read_rows(source):
                rows += 1
                row = renamed(place, row, config.fields.get(benchmark, {}))
                if not any(row.get(key) for key in QUESTIONS):
                    raise InputError(f"{place}: a benchmark row needs `question` or `problem`")
                identity = row.get("id")
                # As evaluation has it.
                item = f"{benchmark}-{rows - 1}" if identity is None else str(identity)
                for key in (*QUESTIONS, *ANSWERS):
                    if row.get(key):
                        text = str(row[key])
                        if key in QUESTIONS and len(canonical(text)) < config.ngram:
                            text += _choices(row.get("choices"))
                        index.add(benchmark, item, text, key in QUESTIONS)
        if not rows:
            sources = ", ".join(map(str, inputs[name]))
            raise InputError(f"{sources}: no rows; {name} would keep nothing out of the corpus")
    index.build()
    return index
