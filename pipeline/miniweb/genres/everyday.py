"""Pages whose main content is no mathematics: one layout for all, filled from the phrase book of a genre.

A phrase book has `title`, `lead` and `body`, and may have `item` (a list), `row` (a table, cells parted by |,
with `row_header`), `code`, `post` (forum contributions) and `closing`. Numbers are everywhere, as prices,
scores and quantities are on the web.
"""

import random

from pipeline.miniweb.genres import lectures
from pipeline.miniweb.genres.chinese_everyday import CHINESE_BOOKS
from pipeline.miniweb.genres.english_home import HOME_BOOKS
from pipeline.miniweb.genres.english_press import PRESS_BOOKS
from pipeline.miniweb.genres.english_school_life import SCHOOL_LIFE_BOOKS
from pipeline.miniweb.genres.english_screen import SCREEN_BOOKS
from pipeline.miniweb.genres.names import TOWNS, TOWNS_ZH, USERS, USERS_ZH
from pipeline.miniweb.genres.theorems import THEOREMS
from pipeline.miniweb.grammar import Phrases, Writer
from pipeline.miniweb.pages import Article, Block, Code, Heading, Items, Paragraph, Post, Table
from pipeline.miniweb.problems import make_problem

BOOKS: dict[str, Phrases] = {
    **PRESS_BOOKS,
    **HOME_BOOKS,
    **SCREEN_BOOKS,
    **SCHOOL_LIFE_BOOKS,
    **CHINESE_BOOKS,
}


# share of pages that quote a problem or a theorem, and are no mathematics for that
GUESTS = {"family": 0.12, "family_zh": 0.12, "school_news": 0.15, "prize": 0.25}


def language_of(genre: str) -> str:
    return "zh" if genre.endswith("_zh") else "en"


def capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def guest(rng: random.Random, genre: str, language: str) -> list[Block]:
    """Mathematics that a page of another kind quotes in passing, on a share of the pages of some genres."""
    if rng.random() >= GUESTS.get(genre, 0):
        return []
    if genre == "prize":
        theorem = rng.choice(THEOREMS)
        return [Paragraph(Writer(rng, lectures.PHRASES).expand(theorem.statement))]
    problem = make_problem(rng, "train", language)
    return [Paragraph("\n".join([problem.question, *problem.steps, problem.conclusion]))]


def everyday(rng: random.Random, genre: str) -> Article:
    """One page of `genre`, a key of `BOOKS`."""
    language = language_of(genre)
    names = {"town": TOWNS, "user": USERS} if language == "en" else {"town": TOWNS_ZH, "user": USERS_ZH}
    book = {**names, **BOOKS[genre]}
    write, space = Writer(rng, book), " " if language == "en" else ""
    title = capital(write("title"))
    blocks: list[Block] = [Paragraph(capital(write("lead")))]
    sentences = [capital(sentence) for sentence in write.several("body", rng.randint(7, 11))]
    while sentences:
        length = rng.randint(2, 4)
        blocks.append(Paragraph(space.join(sentences[:length])))
        sentences = sentences[length:]
    middle: list[Block] = []
    if "item" in book:
        heading = [Heading(write("item_heading"))] if "item_heading" in book else []
        middle += [*heading, Items(tuple(write.several("item", rng.randint(4, 7))))]
    if "row" in book:
        rows = [
            tuple(row.split("|")) for row in (write("row_header"), *write.several("row", rng.randint(4, 7)))
        ]
        middle.append(Table(tuple(rows)))
    if "code" in book:
        middle += [Code(text) for text in write.several("code", rng.randint(1, 2))]
    if "post" in book:
        middle += [Post(rng.choice(book["user"]), text) for text in write.several("post", rng.randint(2, 5))]
    middle += guest(rng, genre, language)
    position = len(blocks) if "post" in book else rng.randint(1, len(blocks))
    blocks[position:position] = middle
    if "closing" in book:
        blocks.append(Paragraph(write("closing")))
    return Article(title, tuple(blocks), genre, language, math=False)
