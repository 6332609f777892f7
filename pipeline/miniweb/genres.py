"""The kinds of pages: how each is laid out and which phrases, calculations and problems fill it.

A genre is a phrase book. Those of `MATH_GENRES` have a layout of their own and are mathematics; all others
share one layout (`everyday`) and are not. Word problems and their solutions come from the train split: these
pages are what the demo's models learn from.
"""

import random
from collections.abc import Callable
from functools import cache

from pydantic.dataclasses import dataclass

from pipeline.miniweb.calculations import ADVANCED, SCHOOL, Calculation, Maker, draw_task, order_of_operations
from pipeline.miniweb.pages import Article, Block, Code, Display, Heading, Items, Paragraph, Post, Table
from pipeline.miniweb.phrases import NO_OTHER_KEYS, Writer, books, load_yaml
from pipeline.miniweb.problems import joined_sum, make_problem


@dataclass(frozen=True, config=NO_OTHER_KEYS)
class Theorem:
    """`name` is a title, `definition` introduces the notion; all use the symbols of the book `lecture`."""

    name: str
    definition: str
    statement: str
    proof: str


@cache
def theorems() -> tuple[Theorem, ...]:
    found = load_yaml("theorems.yaml", tuple[Theorem, ...])
    for theorem in found:
        text = f"{theorem.definition} {theorem.statement} {theorem.proof}"
        books()["lecture"].check(text, f"theorems.yaml: {theorem.name}")
    return found


def write_article(rng: random.Random, genre: str) -> Article:
    """Write a page of `genre`, the name of a phrase book."""
    return MATH_GENRES.get(genre, everyday)(Writer(rng, genre))


def _mathematics(write: Writer, blocks: list[Block], title: str | None = None) -> Article:
    return Article(title or write("title"), tuple(blocks), write.genre, write.language, math=True)


def _exercises(write: Writer, heading: str, symbol: str, count: int) -> list[Block]:
    return [Heading(heading), Items(tuple(write.several(symbol, count)), ordered=True)]


def _computed(write: Writer) -> list[Block]:
    """Write three computed examples of a lecture, each with task, steps and result as paragraphs."""
    blocks: list[Block] = []
    for make in write.rng.sample(ADVANCED, 3):
        calculation = make(write.rng)
        blocks += [
            Paragraph(write("example").format(task=calculation.task)),
            Paragraph(" ".join(calculation.explained(write))),
            Paragraph(write("result").format(result=calculation.result)),
        ]
    return blocks


def _school(rng: random.Random) -> Calculation:
    return rng.choice(SCHOOL)(rng)


def _worked_examples(write: Writer, count: int, draw: Maker = _school) -> list[Block]:
    """Lay calculations out as worksheets do: heading, task, one line per step, answer."""
    blocks: list[Block] = []
    for number in range(1, count + 1):
        calculation = draw(write.rng)
        steps = calculation.explained(write)
        blocks += [
            Heading(write("example_heading").format(number)),
            Paragraph(write(f"given_{calculation.topic}").format(task=calculation.task)),
            Paragraph("\n".join([*steps, write("answer").format(result=calculation.result)])),
        ]
    return blocks


def _solved_problems(write: Writer, count: int, formulas: bool) -> list[Block]:
    """Write `count` word problems with solutions, in one layout for the whole page.

    A solution is mostly one equation a line, sometimes one joined sum, then the sentence with the answer.
    """
    rng = write.rng
    heading, solution = write("heading"), write("solution")
    headed = rng.choice((True, True, False))
    blocks: list[Block] = []
    for number in range(1, count + 1):
        problem = make_problem(rng, "train", write.language)
        equations = problem.steps if rng.random() < 0.9 else [joined_sum(problem)]
        if formulas:
            equations = [f"⟦{equation}⟧" for equation in equations]
        lines = "\n".join([*equations, problem.conclusion])
        if headed:
            blocks += [Heading(heading.format(number)), Paragraph(problem.question)]
            blocks.append(Paragraph(f"{solution}\n{lines}"))
        else:
            blocks.append(Paragraph(f"{problem.question}\n{lines}"))
    return blocks


def lecture(write: Writer) -> Article:
    """Write a section of lecture notes: two theorems, three computed examples, exercises."""
    rng = write.rng
    chosen = rng.sample(theorems(), 2)
    blocks: list[Block] = [Paragraph(write.running("intro", 2))]
    for number, theorem in enumerate(chosen, start=1):
        blocks += [
            Heading(theorem.name),
            Paragraph(f"Definition. {write.expand(theorem.definition)}"),
            Paragraph(f"Theorem {rng.randint(1, 9)}.{number}. {write.expand(theorem.statement)}"),
            Paragraph(f"Proof. {write.expand(theorem.proof)}"),
            Paragraph(f"Remark. {write('remark')}"),
        ]
    blocks += _computed(write)
    blocks.append(Display(rf"a_{{n+1}}={rng.randint(2, 9)}a_n+{rng.randint(1, 9)}"))
    blocks += _exercises(write, "Exercises", "exercise", 3)
    return _mathematics(write, blocks, write("title").format(theorem=chosen[0].name))


def lecture_zh(write: Writer) -> Article:
    """Write Chinese lecture notes: theorems and computed examples, dense in formulas."""
    blocks: list[Block] = [Paragraph(write.running("intro", 2))]
    for number, text in enumerate(write.several("theorem", 3), start=1):
        blocks += [Heading(f"第{number}小节"), Paragraph(text)]
    blocks += _computed(write)
    return _mathematics(write, blocks + _exercises(write, "习题", "exercise", 3))


def question(write: Writer) -> Article:
    """Write a question with answers and comments; half ask for a proof, half for a computation."""
    rng = write.rng
    title, body, replies = _about_a_proof(write) if rng.random() < 0.5 else _about_a_number(write)
    texts = [f"{body} {write.running('own_try', 2)}"]
    shown = replies[: rng.randint(1, 2)]
    openings = write.several("answer_opening", len(shown))
    texts += [f"{opening} {reply}" for opening, reply in zip(openings, shown, strict=True)]
    texts += write.several("comment", rng.randint(2, 4))
    authors = rng.sample(write.book["user"], len(texts))
    return _mathematics(write, [*map(Post, authors, texts)], title)


def _about_a_proof(write: Writer) -> tuple[str, str, list[str]]:
    """(title, question, answers)."""
    theorem = write.rng.choice(theorems())
    body = write("ask_proof").format(statement=write.expand(theorem.statement))
    calculation = write.rng.choice(ADVANCED)(write.rng)
    example = write("example").format(task=calculation.task)
    example = " ".join([example, *calculation.explained(write)])
    proof = f"{write.expand(theorem.definition)} {write.expand(theorem.proof)}"
    return f"How to prove: {theorem.name.lower()}?", body, [proof, example]


def _about_a_number(write: Writer) -> tuple[str, str, list[str]]:
    """(title, question, answers)."""
    calculation = write.rng.choice([*ADVANCED, *SCHOOL])(write.rng)
    simpler = _school(write.rng)
    answer = [*calculation.explained(write), write("done").format(result=calculation.result)]
    hint = [f"Try a simpler one first, ⟦{simpler.task}⟧.", *simpler.explained(write)]
    title = f"{write('number_title')} ⟦{calculation.task}⟧"
    return title, write("ask_number").format(task=calculation.task), [" ".join(answer), " ".join(hint)]


def worksheet(write: Writer) -> Article:
    """Write five or six worked examples and practice questions."""
    rng = write.rng
    blocks: list[Block] = [Paragraph(write.running("intro", 3))]
    blocks += _worked_examples(write, rng.randint(5, 6))
    blocks.append(Paragraph(write.running("mistake", 2)))
    blocks += _exercises(write, "Practice questions", "practice", rng.randint(4, 6))
    return _mathematics(write, blocks)


def worksheet_zh(write: Writer) -> Article:
    """Write a Chinese exercise sheet with worked equations; now and then a word problem at its end."""
    rng = write.rng
    blocks: list[Block] = [Paragraph(write.running("intro", 3))]
    blocks += _worked_examples(write, rng.randint(4, 6))
    blocks += _exercises(write, "练习", "practice", 4)
    if rng.random() < 0.15:
        blocks += _solved_problems(write, rng.randint(1, 2), formulas=True)
    return _mathematics(write, blocks)


def chapter(write: Writer) -> Article:
    """Write a textbook chapter: explanations, then word problems with formulas; between two other genres."""
    blocks: list[Block] = [Paragraph(write.running("intro", 4))]
    blocks += _worked_examples(write, 2, order_of_operations)
    blocks += _solved_problems(write, write.rng.randint(6, 9), formulas=True)
    return _mathematics(write, [*blocks, Paragraph(write.running("mistake", 1))])


def word_problems(write: Writer) -> Article:
    """Write word problems in plain words, as parents and primary schools publish them."""
    rng = write.rng
    blocks: list[Block] = [Paragraph(write.running("intro", rng.randint(2, 3)))]
    if rng.random() < 0.12:  # a day told at length, with its sums: the border to family diaries
        diary = Writer(rng, "family")
        blocks += [Paragraph(diary.running("body", 4)) for _ in range(2)]
        blocks += _solved_problems(write, rng.randint(2, 4), formulas=False)
    else:
        blocks += _solved_problems(write, rng.randint(8, 13), formulas=False)
    return _mathematics(write, [*blocks, Paragraph(write("closing"))])


def word_problems_zh(write: Writer) -> Article:
    """Write Chinese word problems with solutions, in plain words."""
    rng = write.rng
    blocks: list[Block] = [Paragraph(write.running("intro", rng.randint(2, 3)))]
    blocks += _solved_problems(write, rng.randint(9, 14), formulas=False)
    if rng.random() < 0.2:
        calculation = order_of_operations(rng)
        blocks.append(Paragraph(write("given_operations").format(task=calculation.task)))
    return _mathematics(write, blocks)


def tasks(write: Writer) -> Article:
    """Write tasks with solutions: prices, speeds and averages (`applied`), number riddles (`riddles`)."""
    heading = write("heading")
    blocks: list[Block] = [Paragraph(write.running("intro", 3))]
    for number in range(1, write.rng.randint(6, 9) + 1):
        text, solution = draw_task(write)
        blocks += [Heading(heading.format(number)), Paragraph(text), Paragraph(solution)]
    if "closing" in write.book:
        blocks.append(Paragraph(write("closing")))
    return _mathematics(write, blocks)


def essay(write: Writer) -> Article:
    """Write an essay about mathematics in prose, without numbers and formulas."""
    sentences = write.several("body", write.rng.randint(9, 12))
    paragraphs = [write("lead"), *(write.join(sentences[i : i + 3]) for i in range(0, len(sentences), 3))]
    return _mathematics(write, [Paragraph(text) for text in (*paragraphs, write("closing"))])


OWN = (
    lecture,
    question,
    worksheet,
    chapter,
    word_problems,
    essay,
    lecture_zh,
    worksheet_zh,
    word_problems_zh,
)
MATH_GENRES: dict[str, Callable[[Writer], Article]] = {layout.__name__: layout for layout in OWN}
MATH_GENRES |= {"applied": tasks, "riddles": tasks}

# share of pages that quote a problem or a theorem, which does not make them mathematics
QUOTING = {"family": 0.12, "family_zh": 0.12, "school_news": 0.15, "prize": 0.25}


def everyday(write: Writer) -> Article:
    """Write a page that is not mathematics, but full of numbers: prices, scores, quantities.

    The book has `title`, `lead` and `body`, and may have `item` (a list), `row` (a table, cells separated
    by |, with `row_header`), `code`, `post` (forum contributions) and `closing`.
    """
    rng = write.rng
    title = _capital(write("title"))
    blocks: list[Block] = [Paragraph(_capital(write("lead")))]
    sentences = [_capital(sentence) for sentence in write.several("body", rng.randint(7, 11))]
    while sentences:
        length = rng.randint(2, 4)
        blocks.append(Paragraph(write.join(sentences[:length])))
        sentences = sentences[length:]
    middle = [*_extras(write), *_quotation(write)]
    position = len(blocks) if "post" in write.book else rng.randint(1, len(blocks))
    blocks[position:position] = middle
    if "closing" in write.book:
        blocks.append(Paragraph(write("closing")))
    return Article(title, tuple(blocks), write.genre, write.language, math=False)


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _extras(write: Writer) -> list[Block]:
    """Write list, table, code and posts, where the book has them."""
    rng, book = write.rng, write.book
    blocks: list[Block] = []
    if "item_heading" in book:
        blocks.append(Heading(write("item_heading")))
    if "item" in book:
        blocks.append(Items(tuple(write.several("item", rng.randint(4, 7)))))
    if "row" in book:
        rows = [write("row_header"), *write.several("row", rng.randint(4, 7))]
        blocks.append(Table(tuple(tuple(row.split("|")) for row in rows)))
    if "code" in book:
        blocks += [Code(text) for text in write.several("code", rng.randint(1, 2))]
    if "post" in book:
        blocks += [Post(rng.choice(book["user"]), text) for text in write.several("post", rng.randint(2, 5))]
    return blocks


def _quotation(write: Writer) -> list[Block]:
    """Quote mathematics in passing on a page of another kind, on a share of the pages of some genres."""
    rng = write.rng
    if rng.random() >= QUOTING.get(write.genre, 0):
        return []
    if write.genre == "prize":
        theorem = rng.choice(theorems())
        return [Paragraph(Writer(rng, "lecture").expand(theorem.statement))]
    problem = make_problem(rng, "train", write.language)
    return [Paragraph("\n".join([problem.question, *problem.steps, problem.conclusion]))]
