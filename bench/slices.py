"""A generated slice of a dump, as extraction writes it, and the lists and questions the corpus reads."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from datatrove.data import Document
from numpy.typing import NDArray

from pipeline.core.data.shards import DocumentWriter, write_table
from pipeline.crawl.extract import PAGES_FILE, RECORDS, RECORDS_FILE

PARTS = 4  # of the clusters
SHARD = 50_000  # most pages of one
WORDS, TEMPLATES = 150, 20
SAME_URL, SAME_TEXT, NEAR, TEMPLATE = 0.05, 0.1, 0.15, 0.2  # shares of pages
COMMON, MATH = 50_000, 1_000  # words of a language; mathematical words
HOSTS, OF_MATH, CHINESE = 100_000, 50, 10  # every so many hosts is mathematical, or Chinese
QUESTIONS, LEAKED = 500, 5  # each so many pages of mathematical hosts hold a question
SEED = 4  # likewise, are in the list that training starts from
WARC = "CC-MAIN-20240220211055-20240221001055-{:05d}.warc.gz"
Words = NDArray[np.int64]  # numbers of words: those of the first language, of the second, of mathematics


def shards_of(pages: int) -> list[range]:
    """The numbers of the pages of each shard, of at least one for each part."""
    size = min(SHARD, pages // PARTS)
    return [range(first, min(first + size, pages)) for first in range(0, pages, size)]


def drawn_words(draw: np.random.Generator, host: int) -> Words:
    """A page of a host: log-normal size, a long tail of words."""
    words = np.minimum(draw.pareto(1, int(draw.lognormal(5, 0.6)) + 20) * 100, COMMON - 1).astype(int)
    words = (words + draw.integers(0, COMMON, len(words)) * (words > 99)) % COMMON
    words += COMMON * (host % CHINESE == 3)
    if host % OF_MATH == 7:
        words[::5] = 2 * COMMON + words[::5] % MATH
    return words


def drawn_pages(pages: int, questions: Words) -> Iterator[tuple[str, Words]]:
    """(URL, words) of each page."""
    draw = np.random.default_rng(1)
    templates = [draw.integers(0, COMMON, WORDS) for _ in range(TEMPLATES)]
    earlier: list[tuple[str, Words]] = []
    for number in range(pages):
        kind, host = draw.random(), int(draw.pareto(0.5) * 10) % HOSTS
        url, words = f"https://h{host}.example/{number % 9}/{number}", drawn_words(draw, host)
        old_url, old = earlier[draw.integers(len(earlier))] if earlier else (url, words)
        if kind < SAME_URL:
            url = old_url
        elif kind < SAME_URL + SAME_TEXT:
            words = old
        elif kind < SAME_URL + SAME_TEXT + NEAR:
            words = np.append(old, words[:5])
        elif kind < SAME_URL + SAME_TEXT + NEAR + TEMPLATE:
            words = np.append(templates[number % TEMPLATES], words[: int(WORDS * 0.75)])
        elif host % OF_MATH == 7 and number % LEAKED == 0:
            words = np.append(words, questions[number % QUESTIONS])
        if number % 10 == 0 and len(earlier) < 20_000:
            earlier.append((url, words))
        yield url, words


def write_slice(folder: Path, pages: int) -> list[Path]:
    """Write shards of pages with their tables, `seed_urls.txt` and `questions.jsonl`; returns the shards."""
    characters = [chr(0x4E00 + number) for number in range(250)]
    names = [f"w{number}" for number in range(COMMON)]
    names += [characters[number // 250] + characters[number % 250] for number in range(COMMON)]
    vocabulary = np.array([*names, *(f"theorem{number}" for number in range(MATH))], object)
    questions = np.random.default_rng(2).integers(0, COMMON, (QUESTIONS, 20))
    with (folder / "questions.jsonl").open("w") as file:
        file.writelines(json.dumps({"question": " ".join(vocabulary[words])}) + "\n" for words in questions)
    drawn, shards = drawn_pages(pages, questions), []
    with (folder / "seed_urls.txt").open("w") as seed:
        for rank, numbers in enumerate(shards_of(pages)):
            shards.append(folder / f"pages-{rank:04d}")
            rows = []
            with DocumentWriter(shards[-1] / PAGES_FILE) as writer:
                for number in numbers:
                    url, words = next(drawn)
                    language = "zh" if COMMON <= words[1] < 2 * COMMON else "en"
                    place = {"url": url, "warc_file": WARC.format(rank), "offset": number}
                    identity = f"{place['warc_file']}:{number:010d}"
                    metadata = place | {"host": url.split("/")[2], "language": language}
                    writer.write(Document(" ".join(vocabulary[words]), identity, metadata=metadata))
                    rows.append(place | {"id": identity, "language": language, "status": "extracted"})
                    if words[0] >= 2 * COMMON and number % SEED == 0:
                        seed.write(f"{url}\n")
            write_table(
                shards[-1] / RECORDS_FILE, (dict.fromkeys(RECORDS.names) | row for row in rows), RECORDS
            )
    return shards
