"""English arithmetic: textbook chapters with formulas, and pages of word problems in plain words.

The problems and their solutions come from `problems.py`, train split: these pages are what the demo's models
learn from.
"""

import random

from pipeline.miniweb.genres import school
from pipeline.miniweb.genres.calculations import explained, order_of_operations
from pipeline.miniweb.genres.english_home import FAMILY
from pipeline.miniweb.grammar import Writer
from pipeline.miniweb.pages import Article, Block, Heading, Paragraph
from pipeline.miniweb.problems import Problem, joined_sum, make_problem

PHRASES = {
    **school.PHRASES,
    "chapter_intro": (
        "In this chapter you learn to add and subtract numbers up to twenty.",
        "Adding means putting together; subtracting means taking away.",
        "Every word problem hides an equation. We write it down step by step.",
        "Read the question twice and write the numbers in the order of the story.",
        "Draw a number line from ⟦0⟧ to ⟦20⟧ and jump to the right for every plus.",
        "The equals sign says that both sides are the same number.",
        "An equation such as ⟦<2..9>+<1..9>=x⟧ asks for a missing number.",
        "Check each answer by working backwards: ⟦8-3=5⟧ because ⟦5+3=8⟧.",
        "Addition may be done in any order: ⟦<2..9>+<2..9>⟧ and the other way round give the same sum.",
    ),
    "blog_intro": (
        "My daughter is in second grade and likes to do these at the kitchen table.",
        "Here are the word problems we did this week, with all the steps.",
        "No worksheet, no app: just read the story aloud and write down the sum.",
        "Try to solve each one before you look at the solution below it.",
        "We use buttons and beans to act out the story first.",
        "Some of these take one step, some take three.",
        "A reader asked for more practice with plus and minus, so here it is.",
        "Ten minutes a day is plenty for a seven year old.",
        "Cover the answers with a sheet of paper and let the child think.",
        "Last week we only did sums with two numbers; today there are longer stories.",
    ),
    "blog_closing": (
        "Tell me in the comments how it went at your table!",
        "Next week we will try stories with bigger numbers.",
        "Print the page, fold it, and keep it in the school bag.",
        "If your child gets stuck, go back to the beans.",
        "See the archive for more stories like these.",
    ),
    "heading": ("Problem {0}", "Story {0}", "No. {0}"),
    "solution": ("Solution", "Answer", "Working", "How to solve it"),
    "answer": ("Answer: ⟦{result}⟧.", "The answer is ⟦{result}⟧."),
    "chapter_title": (
        "Chapter <1..12>: Addition and subtraction",
        "Word problems and equations, unit <1..30>",
        "Sums and differences: lesson <1..40>",
        "From story to equation, part <1..20>",
    ),
    "blog_title": (
        "Word problems for second grade, week <1..50>",
        "<8..14> little stories with plus and minus",
        "Kitchen table sums, part <1..60>",
        "Story sums with answers <1..99>",
        "Practice set <1..200>: how many are left?",
        "Plus and minus stories for rainy days <1..40>",
    ),
}


def solution_lines(problem: Problem, rng: random.Random, formulas: bool) -> str:
    """Mostly one equation a line, sometimes one joined sum, then the sentence with the answer."""
    equations = problem.steps if rng.random() < 0.9 else [joined_sum(problem)]
    if formulas:
        equations = [f"⟦{equation}⟧" for equation in equations]
    return "\n".join([*equations, problem.conclusion])


def solved_problems(write: Writer, count: int, lang: str, formulas: bool) -> list[Block]:
    """`count` problems with solutions, in one layout for the whole page."""
    rng = write.rng
    heading, solution = rng.choice(write.phrases["heading"]), rng.choice(write.phrases["solution"])
    layout = rng.choice(("headed", "headed", "plain"))
    blocks: list[Block] = []
    for number in range(1, count + 1):
        problem = make_problem(rng, "train", lang)
        lines = solution_lines(problem, rng, formulas)
        if layout == "headed":
            blocks += [
                Heading(heading.format(number)),
                Paragraph(problem.question),
                Paragraph(f"{solution}\n{lines}"),
            ]
        else:
            blocks.append(Paragraph(f"{problem.question}\n{lines}"))
    return blocks


def chapter(rng: random.Random) -> Article:
    """A textbook chapter: explanations, then word problems with formulas; in between two other genres."""
    write = Writer(rng, PHRASES)
    blocks: list[Block] = [Paragraph(" ".join(write.several("chapter_intro", 4)))]
    for number in (1, 2):
        calculation = order_of_operations(rng)
        steps = explained(write, calculation)
        blocks += [
            Heading(f"Example {number}"),
            Paragraph(write("given_operations").format(task=calculation.task)),
            Paragraph("\n".join([*steps, write("answer").format(result=calculation.result)])),
        ]
    blocks += solved_problems(write, rng.randint(6, 9), "en", formulas=True)
    blocks.append(Paragraph(" ".join(write.several("mistake", 1))))
    return Article(write("chapter_title"), tuple(blocks), "chapter", "en", math=True)


def word_problems(rng: random.Random) -> Article:
    """A page of word problems in plain words, as parents and primary schools publish them."""
    write = Writer(rng, PHRASES)
    blocks: list[Block] = [Paragraph(" ".join(write.several("blog_intro", rng.randint(2, 3))))]
    if rng.random() < 0.12:  # a day told at length, with its sums: the border to family diaries
        diary = Writer(rng, FAMILY)
        blocks += [Paragraph(" ".join(diary.several("body", 4))) for _ in range(2)]
        blocks += solved_problems(write, rng.randint(2, 4), "en", formulas=False)
    else:
        blocks += solved_problems(write, rng.randint(8, 13), "en", formulas=False)
    blocks.append(Paragraph(write("blog_closing")))
    return Article(write("blog_title"), tuple(blocks), "word_problems", "en", math=True)
