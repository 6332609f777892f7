"""What a page says, before any markup: an article of blocks, whose formulas are TeX between ⟦ and ⟧."""

import re
from dataclasses import dataclass, replace

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

    def with_blocks(self, blocks: tuple[Block, ...]) -> "Article":
        return replace(self, blocks=blocks)


def plain(text: str) -> str:
    """Text with its formulas as a reader sees them."""
    return FORMULA.sub(lambda match: to_plain(parse(match.group(1))), text)


def block_text(block: Block) -> str:
    """The words of one block."""
    match block:
        case Display(tex):
            return plain(f"⟦{tex}⟧")
        case Items(entries):
            return "\n".join(plain(entry) for entry in entries)
        case Table(rows):
            return "\n".join(" ".join(plain(cell) for cell in row) for row in rows)
        case Post(author, text):
            return f"{author}\n{plain(text)}"
    return plain(block.text)


def article_text(article: Article) -> str:
    """The words of the main content, title included."""
    return "\n".join([plain(article.title), *(block_text(block) for block in article.blocks)])


def has_formulas(article: Article) -> bool:
    """Whether the page holds anything that its site's formula markup would render."""
    texts = [article.title]
    for block in article.blocks:
        match block:
            case Display():
                return True
            case Items(entries):
                texts += entries
            case Table(rows):
                texts += [cell for row in rows for cell in row]
            case _:
                texts.append(block.text)
    return any("⟦" in text for text in texts)
