"""`make bench-extraction DATA=file`: extraction of WebMainBench's pages beside Resiliparse and trafilatura.

Its rows have `html` and `groundtruth_content`, the main content in Markdown by people. A page's similarity is
1 - edit distance / length of the longer, of its text without Markdown's marks, and of all its formulas.
"""

import re
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from table import Row, row_of

from pipeline.core.data.rows import read_rows

FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<![\\$])\$(?! )([^$\n]+?)(?<! )\$(?!\d)|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL
)
MARKUP = re.compile(
    r"^(?:```.*|[\s|:-]+)$|^\s*(?:#{1,6}|[-*+>•])\s+|\*\*|`|!?\[([^\]]*)\]\([^)]*\)", re.MULTILINE
)
SPACE = re.compile(r"[\s|\\]+")


def distance(one: str, other: str) -> int:
    """Return the edit distance by bit vectors (Myers 1999), which are integers of any length here.

    Args:
        one: Its characters are the bits of a vector.
        other: Its characters are read one by one.
    """
    if not one or not other:
        return max(len(one), len(other))
    places: dict[str, int] = {}
    for place, letter in enumerate(one):
        places[letter] = places.get(letter, 0) | 1 << place
    mask, last, score = (1 << len(one)) - 1, 1 << len(one) - 1, len(one)
    rises, falls = mask, 0  # of the column of distances, downwards
    for letter in other:
        equal = places.get(letter, 0)
        below = equal | falls
        across = (((equal & rises) + rises) ^ rises) | equal
        right, left = falls | mask & ~(across | rises), rises & across
        score += bool(right & last) - bool(left & last)
        right, left = right << 1 | 1, left << 1
        rises, falls = mask & (left | ~(below | right)), mask & right & below
    return score


def similarity(one: str, other: str) -> float:
    longer = max(len(one), len(other))
    return 1 - distance(one, other) / longer if longer else 1.0


def plain(text: str) -> str:
    """Return text without Markdown's marks and white space that is no boundary."""
    return SPACE.sub(" ", MARKUP.sub(lambda mark: mark[1] or "", text)).strip()


def formulas(text: str) -> str:
    """Return all formulas of a text, without white space."""
    return "\n".join("".join("".join(groups).split()) for groups in FORMULA.findall(text))


def webmain_rows(path: Path, extractors: dict[str, Callable[[str], str]]) -> list[Row]:
    """Return the mean similarities of the pages of a file; the first extractor is ours."""
    pages = [(row["html"], row["groundtruth_content"]) for _, row in read_rows(str(path))]
    texts = {name: [extract(html) or "" for html, _ in pages] for name, extract in extractors.items()}
    rows = []
    for what, part in (("text", plain), ("formulas", formulas)):
        truths = [(number, part(truth)) for number, (_, truth) in enumerate(pages) if part(truth)]
        if not truths:
            continue
        means = {
            name: fmean(similarity(truth, part(given[number])) for number, truth in truths)
            for name, given in texts.items()
        }
        ours, *peers = (round(100 * mean, 1) for mean in means.values())
        what, data = f"similarity of {what}", f"{len(truths)} pages of {path.name}"
        for name, peer in zip(list(means)[1:], peers, strict=True):
            rows.append(row_of(what, "%", ours, peer, name, data, rate=True))
    return rows
