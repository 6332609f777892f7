"""English mathematics in the words of other pages: prices and journeys worked out, number riddles.

The classifier meets these late: they share their words with shops, sport and travel, and few signs with
lecture notes.
"""

import random
from collections.abc import Callable, Sequence

from pipeline.miniweb.genres.english_home import SHOP
from pipeline.miniweb.genres.names import TOWNS
from pipeline.miniweb.grammar import Phrases, Writer
from pipeline.miniweb.pages import Article, Block, Heading, Paragraph

Task = tuple[str, list[str]]  # question, lines of the solution

APPLIED: Phrases = {
    "thing": SHOP["thing"],
    "town": TOWNS,
    "title": (
        "Everyday maths: shopping and travelling, part <1..50>",
        "Averages and percentages in daily life, sheet <1..40>",
        "How much is it really? Exercises <1..60>",
        "Numbers in the newspaper: practice <1..30>",
    ),
    "intro": (
        "Prices, scores and timetables are full of small calculations.",
        "Write down what is given, what is asked, and which numbers you need.",
        "Estimate first: should the answer be bigger or smaller?",
        "All examples come from shops, stations and sports pages.",
        "Do not forget the unit in your answer.",
        "A percentage is always a part of something; say of what.",
        "The average is the sum divided by how many numbers there are.",
        "Cover the solution and compare afterwards.",
    ),
    "heading": ("Task {0}", "Example {0}", "Case {0}"),
}

RIDDLES: Phrases = {
    "title": (
        "Number riddles for the train, no. <1..60>",
        "Riddles of the month <1..12>/<2015..2023>",
        "Think of a number: puzzles <1..40>",
        "<6..9> puzzles for a long evening",
    ),
    "intro": (
        "No pencil is needed, only a little logic.",
        "Read every sentence slowly; each word of a riddle counts.",
        "Most of these were sent in by readers.",
        "Start with the clue that leaves the fewest possibilities.",
        "If two clues contradict each other, you have missed a word.",
        "The solutions are below each puzzle, so do not scroll too fast.",
        "Trying all numbers works too, but it is slow.",
    ),
    "heading": ("Riddle {0}", "Puzzle {0}"),
    "closing": (
        "Can you invent one with three digits?",
        "Send us your own puzzle.",
        "The hardest one follows next month.",
    ),
}


def _discount(write: Writer) -> Task:
    rng = write.rng
    price, percent = 20 * rng.randint(2, 20), 5 * rng.randint(1, 12)
    off = price * percent // 100
    return (
        f"A {write('thing')} costs {price} euros. In the sale it is {percent} percent cheaper. "
        "What is the new price?",
        [
            f"{price}·{percent}/100={off}",
            f"{price}-{off}={price - off}",
            f"The new price is {price - off} euros.",
        ],
    )


def _speed(write: Writer) -> Task:
    rng = write.rng
    hours, speed = rng.randint(2, 9), 5 * rng.randint(3, 30)
    return (
        f"The train from {write('town')} to {write('town')} takes {hours} hours "
        f"for {hours * speed} kilometres. How fast is it on average?",
        [f"{hours * speed}/{hours}={speed}", f"Its average speed is {speed} kilometres per hour."],
    )


def _goals(write: Writer) -> Task:
    rng = write.rng
    goals = [rng.randint(0, 5) for _ in range(4)]
    goals.append(rng.randint(0, 1) * 5 + -sum(goals) % 5)
    total = sum(goals)
    listed = ", ".join(map(str, goals[:-1]))
    return (
        f"The team of {write('town')} scored {listed} and {goals[-1]} goals in five games. "
        "How many goals is that per game?",
        [
            "+".join(map(str, goals)) + f"={total}",
            f"{total}/5={total // 5}",
            f"The team scored {total // 5} goals per game on average.",
        ],
    )


def _bill(write: Writer) -> Task:
    rng = write.rng
    count, price = rng.randint(2, 6), rng.randint(3, 30)
    paid = -(-count * price // 50) * 50
    return (
        f"Somebody buys {count} pieces of a {write('thing')} at {price} euros each and pays with "
        f"{paid} euros. How much change is due?",
        [
            f"{count}·{price}={count * price}",
            f"{paid}-{count * price}={paid - count * price}",
            f"The change is {paid - count * price} euros.",
        ],
    )


def _digits(write: Writer) -> Task:
    rng = write.rng
    ones = rng.randint(0, 6)
    tens = rng.randint(ones + 1, 9)
    return (
        f"I have two digits. Together they make {tens + ones}, and the first one is {tens - ones} "
        "more than the second. Which number am I?",
        [
            f"Take {tens - ones} away from {tens + ones} and share the rest fairly: the second digit "
            f"is {ones}, so the first is {tens}.",
            f"The number is {tens}{ones}.",
        ],
    )


def _ages(write: Writer) -> Task:
    rng = write.rng
    young, factor = rng.randint(3, 15), rng.randint(2, 5)
    older, younger = ("the mother", "her child") if young * factor > young + 15 else ("the oak", "the birch")
    return (
        f"{older.capitalize()} is {factor} times as old as {younger}; "
        f"together they are {young * (factor + 1)} years old. How old is {younger}?",
        [
            f"Together they are {factor + 1} times the younger age, so we share {young * (factor + 1)} into "
            f"{factor + 1} equal parts.",
            f"The answer is {young}.",
        ],
    )


def _sequence(write: Writer) -> Task:
    rng = write.rng
    first, step = rng.randint(1, 30), rng.randint(2, 12)
    shown = ", ".join(str(first + step * k) for k in range(4))
    return (
        f"Which number follows: {shown}?",
        [f"Each number is {step} more than the one before it.", f"The next number is {first + 4 * step}."],
    )


def _thought(write: Writer) -> Task:
    rng = write.rng
    number, factor, plus = rng.randint(2, 20), rng.randint(2, 6), rng.randint(1, 20)
    return (
        f"I think of a number, multiply it by {factor} and add {plus}. I get {number * factor + plus}. "
        "What was my number?",
        [
            f"Go backwards: without the {plus} it is {number * factor}, "
            f"and that divided by {factor} is {number}.",
            f"The number was {number}.",
        ],
    )


def _page(
    rng: random.Random, phrases: Phrases, tasks: Sequence[Callable[[Writer], Task]], genre: str
) -> Article:
    write = Writer(rng, phrases)
    heading = rng.choice(phrases["heading"])
    blocks: list[Block] = [Paragraph(" ".join(write.several("intro", 3)))]
    for number in range(1, rng.randint(6, 9) + 1):
        question, solution = rng.choice(tasks)(write)
        blocks += [Heading(heading.format(number)), Paragraph(question), Paragraph("\n".join(solution))]
    if "closing" in phrases:
        blocks.append(Paragraph(write("closing")))
    return Article(write("title"), tuple(blocks), genre, "en", math=True)


def applied(rng: random.Random) -> Article:
    """Worked tasks about prices, speeds and averages."""
    return _page(rng, APPLIED, (_discount, _speed, _goals, _bill), "applied")


def riddles(rng: random.Random) -> Article:
    """Number riddles with explanations in words."""
    return _page(rng, RIDDLES, (_digits, _ages, _sequence, _thought), "riddles")
