"""How many tokens a page has, by a ratio measured with the run's tokenizer.

To tokenize a whole crawl would cost more than to score it. So some pages of the pool are tokenized when an
iteration's classifier is trained, and the number of tokens is fitted to two others that cost nothing: ASCII
characters and all other characters, most of which are Chinese. Without a tokenizer `score` counts the
normaliser's words and CJK characters; of English there are about twice as many tokens.
"""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.data.shards import read_documents, shard_paths
from pipeline.core.errors import InputError

PAGES, SHARDS = 1000, 20  # at most, of the pool


@dataclass(frozen=True)
class Ratio:
    """Tokens of an ASCII character and of any other one; `error`: of the sum over the pages that were not
    fitted, as a share of it; None where there was only one.
    """

    ascii: float
    other: float
    pages: int
    error: float | None

    def __call__(self, text: str) -> int:
        """Tokens of a text, at least 1."""
        ascii_, other = characters(text)
        return max(1, round(ascii_ * self.ascii + other * self.other))


def characters(text: str) -> tuple[int, int]:
    """(ASCII characters, other characters) of a text."""
    ascii_ = len(text.encode("ascii", "ignore"))
    return ascii_, len(text) - ascii_


def _tokenizer(source: str) -> Any:
    """Load the tokenizer of a folder or hub id. Raises InputError."""
    from huggingface_hub import hf_hub_download
    from tokenizers import Tokenizer

    path = Path(source) / "tokenizer.json"
    try:
        return Tokenizer.from_file(str(path) if path.is_file() else hf_hub_download(source, path.name))
    except Exception as error:  # of the hub, the network and the file: many classes
        reason = str(error).splitlines()[0]
        raise InputError(f"corpus.tokenizer: {source}: no usable tokenizer.json ({reason})") from error


def measure(source: str, pool: Path) -> Ratio:
    """Measure the ratio on pages of some shards of the pool: of every two one is fitted, one is checked."""
    shards = shard_paths(pool / "pool")
    some = shards[:: -(-len(shards) // SHARDS)]
    pages = [page.text for path in some for page in islice(read_documents(path), max(2, PAGES // len(some)))]
    if not pages:
        raise InputError(f"{pool}: holds no page, so tokens cannot be measured")
    counts = [len(found.ids) for found in _tokenizer(source).encode_batch(pages, add_special_tokens=False)]
    given, tokens = np.array([characters(text) for text in pages], float), np.array(counts, float)
    fitted = np.linalg.lstsq(given[::2], tokens[::2], rcond=None)[0]
    ascii_, other = np.where(given[::2].sum(axis=0) > 0, np.maximum(fitted, 0), 1.0).tolist()
    checked = float(tokens[1::2].sum())
    error = float(given[1::2].sum(axis=0) @ [ascii_, other]) / checked - 1 if checked else None
    return Ratio(round(ascii_, 6), round(other, 6), len(pages), None if error is None else round(error, 6))
