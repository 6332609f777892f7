"""English essays about mathematics in plain prose: hardly a number, no formula."""

import random

from pipeline.miniweb.grammar import Phrases, Writer
from pipeline.miniweb.pages import Article, Paragraph

ESSAY: Phrases = {
    "idea": (
        "infinity",
        "parity",
        "symmetry",
        "chance",
        "proof",
        "zero",
        "dimension",
        "counting",
        "prime numbers",
        "the straight line",
    ),
    "title": (
        "What is <@idea>?",
        "Why <@idea> is harder than it looks",
        "A short essay on <@idea>",
        "How children discover <@idea>",
        "Thinking about <@idea> on a walk",
    ),
    "lead": (
        "Everybody believes to know what <@idea> means, until somebody asks.",
        "The idea of <@idea> took centuries to become clear.",
        "You need no symbols to think about <@idea>; words and patience are enough.",
    ),
    "body": (
        "If every even number can be paired with a whole number, there are as many of one as of the other.",
        "Suppose that there were a largest prime; multiply all of them, add one: what divides the result?",
        "A claim that holds for the first million cases may still be false for the next.",
        "Whoever crosses all seven bridges must leave every part of the town as often as they enter it.",
        "Two odd numbers together are even, because the two left-over units form a pair.",
        "A map on a sphere cannot be flat without stretching somewhere.",
        "In a group of people there are always two who know the same number of others.",
        "Cutting a line in half again and again never reaches its end, and yet the pieces fill it.",
        "The coin has no memory: after a row of heads, tails is no more likely than before.",
        "An argument by contradiction assumes the opposite and follows it until it breaks.",
        "Nothing, as a quantity that one can add, was a bold invention.",
        "A knot remains a knot, however we pull at it; that is what an invariant is for.",
        "The diagonal of a square cannot be measured with the side as a unit, however fine the fraction.",
        "If more letters than boxes arrive, one box gets at least two of them.",
        "A definition is a promise about how a word will be used.",
        "The angles of a triangle on a globe add up to more than those on paper.",
        "Every map needs at most four colours, but nobody has shown it in a page.",
        "Turning a square by a quarter leaves it as it was; these turns can be composed and undone.",
        "A rule that works backwards as well as forwards is worth twice as much.",
        "One counterexample outweighs a thousand examples.",
    ),
    "closing": (
        "Try to explain it to a friend without drawing.",
        "Think about it before you read the next essay.",
        "I owe this thought to a reader.",
    ),
}


def essay(rng: random.Random) -> Article:
    """An essay of three or four paragraphs."""
    write = Writer(rng, ESSAY)
    sentences = write.several("body", rng.randint(9, 12))
    paragraphs = [write("lead"), *(" ".join(sentences[i : i + 3]) for i in range(0, len(sentences), 3))]
    blocks = tuple(Paragraph(text) for text in (*paragraphs, write("closing")))
    return Article(write("title"), blocks, "essay", "en", math=True)
