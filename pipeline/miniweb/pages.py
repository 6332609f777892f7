"""What a page says, before any markup: an article of blocks, whose formulas are TeX between ⟦ and ⟧."""

import re
from dataclasses import dataclass

from pipeline.miniweb.tex import parse, to_plain

FORMULA = re.compile("⟦(.*?)⟧")


@dataclass(frozen=True)
class Heading:
    text: str


@dataclass(frozen=True)
class Paragraph:
    """Running text; a newline is a line break."""

    text: str


@dataclass(frozen=True)
class Display:
    """A formula on a line of its own, as TeX without brackets."""

    tex: str


@dataclass(frozen=True)
class Items:
    entries: tuple[str, ...]
    ordered: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first row is the header."""

    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Code:
    text: str


@dataclass(frozen=True)
class Post:
    """One contribution to a forum or question page."""

    author: str
    text: str


Block = Heading | Paragraph | Display | Items | Table | Code | Post


@dataclass(frozen=True)
class Article:
    """A page's main content and its truth; `math`: it teaches, asks, derives or solves mathematics."""

    title: str
    blocks: tuple[Block, ...]
    genre: str
    language: str
    math: bool

    @property
    def plain_title(self) -> str:
        return FORMULA.sub("…", self.title)


def _source(article: Article) -> str:
    """Return the words of title and blocks, formulas still in brackets."""
    texts = [article.title]
    for block in article.blocks:
        match block:
            case Display(tex):
                texts.append(f"⟦{tex}⟧")
            case Items(entries):
                texts += entries
            case Table(rows):
                texts += [" ".join(row) for row in rows]
            case Post(author, text):
                texts += [author, text]
            case _:
                texts.append(block.text)
    return "\n".join(texts)


def article_text(article: Article) -> str:
    """Return the words of the main content, title included, with formulas as a reader sees them."""
    return FORMULA.sub(lambda match: to_plain(parse(match.group(1))), _source(article))


def has_formulas(article: Article) -> bool:
    """Whether the page holds anything that its site's formula markup would render."""
    return "⟦" in _source(article)
