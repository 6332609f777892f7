"""Texts as examples: the paper's seed is OpenWebMath's texts, not pages of the crawl (paper section 2.1).

Rows have `text` and perhaps `url`. As many as a class may have are drawn by a hash of the URL or, without
one, of the row's place; only they are normalised. Another extractor wrote these texts, and the classifier
must not learn to tell extractors apart. So their formulas first get the delimiters that pages of the pool
have; the normaliser drops what else differs most (numbers, punctuation, layout).
"""

from collections.abc import Iterator
from dataclasses import replace

from pipeline.config.corpus import CorpusSection
from pipeline.corpus.examples import LabelledPage, Wanted
from pipeline.corpus.normalise import normalise
from pipeline.crawl.urls import normalise_url
from pipeline.data.rows import read_rows
from pipeline.formulas.delimiters import convert, page_delimiters
from pipeline.formulas.signs import Source
from pipeline.protocol.stage import InputError

KEYS = {"seed_texts": True, "background_texts": False}  # and whether their texts are mathematical


def example_texts(inputs: dict[str, list[str]], config: CorpusSection) -> list[LabelledPage]:
    """The drawn texts of the inputs `seed_texts` and `background_texts`. Raises InputError."""
    wanted = Wanted((), (), most=(config.negatives, config.positives), seed=config.seed)
    drawn = wanted.sampled(
        row for key in KEYS for source in inputs.get(key, []) for row in _rows(source, key)
    )
    return [replace(page, content=like_a_page(page.text)) for page in drawn]


def like_a_page(text: str) -> str:
    """A text of any extractor as the classifier sees a page of the pool."""
    return normalise(convert(text, page_delimiters(Source(""))))


def _rows(source: str, key: str) -> Iterator[LabelledPage]:
    for place, row in read_rows(source):
        texts = row.get("text"), row.get("url") or "", row.get("language") or ""
        if not all(isinstance(text, str) for text in texts):
            raise InputError(f"{place}: corpus.{key} needs rows with `text`, perhaps `url` and `language`")
        url = row.get("url") or place
        host = normalise_url(url).partition("/")[0] if row.get("url") else source
        yield LabelledPage(url, host, row["text"], KEYS[key], row.get("language"))
