"""The content of a page before any markup: an article of blocks, whose formulas are TeX between ⟦ and ⟧."""

import re
from dataclasses import dataclass

from pipeline.examples.miniweb.tex import parse, to_plain

FORMULA = re.compile("⟦(.*?)⟧")
# The start of a block names its kind: heading, entry of a list or of a numbered one, row of a table (cells
# between |), code, formula on a line of its own, `@user: ` in front of a contribution. All others are text.
MARK = re.compile(r"# |- |1\. |\| |```|\$\$|@[^:]+: |")


@dataclass(frozen=True)
class Article:
    """A page's main content and its truth; `math`: it teaches, asks, derives or solves mathematics."""

    title: str
    blocks: tuple[str, ...]
    genre: str
    language: str
    math: bool

    @property
    def plain_title(self) -> str:
        return FORMULA.sub("…", self.title)


def split_mark(block: str) -> tuple[str, str]:
    """Return the mark of a block ("" for text) and its words."""
    mark = MARK.match(block).group()
    return mark, block.removeprefix(mark)


def article_text(article: Article) -> str:
    """Return the words of the main content, title included, with formulas as a reader sees them."""
    texts = [article.title]
    for mark, text in map(split_mark, article.blocks):
        texts += [mark[1:-2], text] if mark.startswith("@") else [text.replace("|", " ")]
    return FORMULA.sub(lambda match: to_plain(parse(match.group(1))), "\n".join(texts))


def has_formulas(article: Article) -> bool:
    """Whether the page holds anything that its site's formula markup would render."""
    return any("⟦" in text for text in (article.title, *article.blocks))
