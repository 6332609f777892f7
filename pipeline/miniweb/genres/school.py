"""English school mathematics: equations, fractions and percentages worked step by step, with formulas."""

import random

from pipeline.miniweb.genres.calculations import SCHOOL, explained
from pipeline.miniweb.grammar import Writer
from pipeline.miniweb.pages import Article, Block, Heading, Items, Paragraph

PHRASES = {
    "subtract_both": (
        "Subtract {0} from both sides: ⟦{tex}⟧.",
        "First subtract {0} on both sides, then ⟦{tex}⟧.",
        "Take away {0} on each side to get ⟦{tex}⟧.",
    ),
    "divide_both": (
        "Divide both sides by {0}: ⟦{tex}⟧.",
        "Now divide by {0}, so ⟦{tex}⟧.",
        "Dividing by {0} gives ⟦{tex}⟧.",
    ),
    "check": ("Check the answer: ⟦{tex}⟧.", "We check it: ⟦{tex}⟧, correct."),
    "expand": ("Expand the bracket: ⟦{tex}⟧.", "Multiply out the bracket to get ⟦{tex}⟧."),
    "factors": ("Find two numbers with product {0} and sum {1}: ⟦{tex}⟧.",),
    "factorise": ("So the equation factorises as ⟦{tex}⟧.", "Write the left side as a product: ⟦{tex}⟧."),
    "common_denominator": (
        "Use the common denominator {0}: ⟦{tex}⟧.",
        "Both fractions can be written over {0}: ⟦{tex}⟧.",
    ),
    "add_numerators": ("Add the numerators: ⟦{tex}⟧.", "Now add the tops of the fractions: ⟦{tex}⟧."),
    "reduce": ("Cancel the common factor: ⟦{tex}⟧.", "Simplify the fraction: ⟦{tex}⟧."),
    "percent_fraction": (
        "Write the percentage as a fraction and multiply: ⟦{tex}⟧.",
        "Percent means out of a hundred, so ⟦{tex}⟧.",
    ),
    "brackets_first": ("Brackets first: ⟦{tex}⟧.", "Work out the bracket: ⟦{tex}⟧."),
    "multiply_first": ("Multiply before you add: ⟦{tex}⟧.", "Next comes the multiplication: ⟦{tex}⟧."),
    "add_last": ("Add at the end: ⟦{tex}⟧.", "The last step is the addition: ⟦{tex}⟧."),
    "sum_all": ("Add up all the numbers: ⟦{tex}⟧.", "The sum of the numbers is ⟦{tex}⟧."),
    "divide_count": (
        "There are {0} numbers, so divide by {0}: ⟦{tex}⟧.",
        "Divide the sum by how many there are: ⟦{tex}⟧.",
    ),
    "intro": (
        "Work through the examples, then try the practice questions on your own.",
        "This worksheet is for grade <5..9>.",
        "Write every step on a new line and check your answer at the end.",
        "You need pencil and paper; a calculator is not allowed.",
        "Remember: whatever you do to one side of an equation, do to the other side as well.",
        "Each question is worth <1..4> points.",
        "The step by step solutions show one way; other ways may be correct too.",
        "If you get stuck, look at the worked example with the same number.",
    ),
    "mistake": (
        "A common mistake is to forget the minus sign.",
        "Do not add the denominators of two fractions.",
        "Many students multiply only the first number in the bracket.",
        "Put your answer back into the equation to see whether it is right.",
        "Always simplify your answer if you can.",
        "Keep the equals signs in one column; it is easier to read.",
    ),
    "given_linear": ("Solve for ⟦x⟧: ⟦{task}⟧.", "Solve the equation ⟦{task}⟧.", "Find ⟦x⟧ if ⟦{task}⟧."),
    "given_quadratic": ("Solve by factorising: ⟦{task}⟧.", "Find both solutions of ⟦{task}⟧."),
    "given_fractions": ("Add the fractions ⟦{task}⟧.", "Work out ⟦{task}⟧ and simplify."),
    "given_percentage": ("Work out ⟦{task}⟧.", "Calculate the percentage ⟦{task}⟧."),
    "given_operations": ("Calculate ⟦{task}⟧.", "Work out ⟦{task}⟧ in the right order."),
    "given_mean": ("Find the mean of ⟦{task}⟧.", "What is the average of the numbers ⟦{task}⟧?"),
    "practice": (
        "Solve ⟦<2..9>x+<1..20>=<30..90>⟧.",
        "Solve ⟦<2..9>(x+<1..9>)=<20..90>⟧.",
        "Work out ⟦\\frac{<1..5>}{<6..9>}+\\frac{<1..4>}{<5..8>}⟧.",
        "Calculate ⟦<2..20>+<2..9>\\cdot <2..12>⟧.",
        "Find <5..95> percent of ⟦<100..900>⟧.",
        "Simplify ⟦<2..9>x+<2..9>x-<2..9>⟧.",
        "Find the mean of ⟦<1..20>⟧, ⟦<1..20>⟧ and ⟦<1..20>⟧.",
        "Round ⟦<1000..9999>⟧ to the nearest hundred.",
    ),
    "answer": ("Answer: ⟦{result}⟧.", "Hence ⟦{result}⟧.", "So ⟦{result}⟧."),
    "title": (
        "Solving equations step by step",
        "Worksheet <1..60>: equations and fractions",
        "Algebra practice <1..99>",
        "Fractions and percentages, worked examples",
        "Grade <5..9> algebra: solutions",
        "Order of operations and equations",
    ),
}


def worksheet(rng: random.Random) -> Article:
    """Five or six worked examples and practice questions."""
    write = Writer(rng, PHRASES)
    blocks: list[Block] = [Paragraph(" ".join(write.several("intro", 3)))]
    for number in range(1, rng.randint(5, 6) + 1):
        calculation = rng.choice(SCHOOL)(rng)
        steps = explained(write, calculation)
        blocks += [
            Heading(f"{rng.choice(('Example', 'Question'))} {number}"),
            Paragraph(write(f"given_{calculation.topic}").format(task=calculation.task)),
            Paragraph("\n".join([*steps, write("answer").format(result=calculation.result)])),
        ]
    blocks += [
        Paragraph(" ".join(write.several("mistake", 2))),
        Heading("Practice questions"),
        Items(tuple(write.several("practice", rng.randint(4, 6))), ordered=True),
    ]
    return Article(write("title"), tuple(blocks), "worksheet", "en", math=True)
