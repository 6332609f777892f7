"""Graded pages: what the second stage learns instead of verdicts where `corpus.second_stage.grades` names
them (ours; FineWeb-Edu and FineMath train their classifiers on grades by a language model).

A row has a `grade`, any number that is higher the more mathematical the page is, and a `text` or the `url` of
a page of the pool. The lowest grade becomes -1 and the highest 1. How much the classifier counts is still
decided by the verdicts on held-out training pages, so the scale of the grades makes no difference.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import isfinite

from pipeline.config.corpus import CorpusSection
from pipeline.corpus.training_set import LabelledPage, Wanted, like_a_page, pages_of_pool
from pipeline.crawl.urls import normalise_url
from pipeline.data.rows import read_rows
from pipeline.protocol.stage import InputError, Stage

PURPOSE = "grades"


def of_pool(stage: Stage[CorpusSection], unseen: set[str]) -> dict[str, float]:
    """Return the grades of pages of the pool, by their keys, without those in `unseen`."""
    rows = ((normalise_url(url), grade) for _, grade, text, url in _rows(stage) if not text)
    return {key: grade for key, grade in rows if key not in unseen}


def graded_pages(stage: Stage[CorpusSection], unseen: set[str]) -> list[LabelledPage]:
    """Read the pages of the input `grades`, each with its `grade` from -1 to 1; none without that input.
    Pages of the pool whose keys are in `unseen` are left out. Raises InputError.
    """
    found = list[LabelledPage]()
    for place, grade, text, url in _rows(stage):
        key = normalise_url(url) if url else ""
        if text and key not in unseen:
            page = LabelledPage(url or place, key.partition("/")[0], like_a_page(text), False, grade=grade)
            found.append(page)
    if named := of_pool(stage, unseen):
        pages = pages_of_pool(stage, PURPOSE, Wanted(named, ()))
        found += [replace(page, grade=named[normalise_url(page.url)]) for page in pages]
    if not stage.inputs.get("grades"):
        return []
    grades = [page.grade or 0.0 for page in found]
    if len(set(grades)) < 2:
        raise InputError(f"corpus.second_stage.grades: {len(found)} pages found, all of one grade: no scale")
    low, high = min(grades), max(grades)
    return [
        replace(page, grade=2 * (grade - low) / (high - low) - 1)
        for page, grade in zip(found, grades, strict=True)
    ]


def _rows(stage: Stage[CorpusSection]) -> Iterator[tuple[str, float, str, str]]:
    """(place, grade, text, URL) of each row of the input `grades`. Raises InputError."""
    for source in stage.inputs.get("grades", []):
        for place, row in read_rows(source):
            grade, text, url = row.get("grade"), row.get("text") or "", row.get("url") or ""
            number = isinstance(grade, int | float) and not isinstance(grade, bool) and isfinite(grade)
            if not (number and isinstance(text, str) and isinstance(url, str) and (text or url)):
                raise InputError(
                    f"{place}: corpus.second_stage.grades needs rows with a number as `grade`, and a"
                    " `text` or the `url` of a page of the pool"
                )
            yield place, float(grade), text, url
