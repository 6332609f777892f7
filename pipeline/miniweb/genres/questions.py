"""English question-and-answer pages about mathematics: the bridge from lecture notes to school exercises."""

import random

from pipeline.miniweb.genres import lectures, school
from pipeline.miniweb.genres.calculations import ADVANCED, SCHOOL, explained
from pipeline.miniweb.genres.names import USERS
from pipeline.miniweb.genres.theorems import THEOREMS
from pipeline.miniweb.grammar import Writer
from pipeline.miniweb.pages import Article, Post

PHRASES = {
    **lectures.PHRASES,
    **school.PHRASES,
    "ask_proof": (
        "I am trying to prove the following. {statement} I do not see where to start.",
        "My textbook says: {statement} Why is this true?",
        "In an exam I was asked to show this: {statement} How would you write the proof?",
        "Here is a homework question that keeps me busy. {statement} Any hint is welcome.",
    ),
    "ask_number": (
        "I have to work out ⟦{task}⟧ and my answer differs from the one in the book.",
        "Can somebody check my work on ⟦{task}⟧?",
        "How do I compute ⟦{task}⟧ by hand? I always make a mistake in the middle.",
        "I got stuck at ⟦{task}⟧. What is the next step?",
        "A question from our exercise sheet: ⟦{task}⟧. Is there a trick?",
    ),
    "number_title": ("Computing", "Help with", "Where is my mistake in", "How to work out"),
    "own_try": (
        "I tried it with ⟦n=<2..9>⟧ and it seems to work, but that is no proof.",
        "What I have so far: I wrote down the definition and got nowhere.",
        "I know how to do it for small numbers like ⟦<2..12>⟧ and ⟦<13..40>⟧.",
        "My idea was to argue by contradiction, but I could not finish.",
        "The book gives the answer without any explanation.",
        "I have spent <2..5> hours on this question.",
        "We have not had that theorem in class yet.",
        "My teacher only said that it follows from the definition.",
    ),
    "answer_opening": (
        "Here is one way to see it.",
        "You are nearly there.",
        "This is a standard argument.",
        "Let me write out the details.",
        "It is easier than it looks.",
        "Go back to the definition.",
    ),
    "comment": (
        "Thanks, that answers my question!",
        "Nice answer. I would add that the case ⟦n=<0..2>⟧ has to be checked separately.",
        "What have you tried? Please show your work in the question.",
        "This is a duplicate of an older question, see question <1000..99999>.",
        "Is this homework? Then a hint should be enough.",
        "I think there is a sign error in your third line.",
        "+1 for the clear explanation of each step.",
        "Does this also work if ⟦x<@sign><2..9>⟧?",
        "Why can you divide by ⟦<2..9>⟧ here?",
    ),
    "sign": ("\\ge ", "\\le ", "=", "\\ne "),
    "done": (
        "So the answer is ⟦{result}⟧.",
        "The final result is ⟦{result}⟧.",
        "That leaves ⟦{result}⟧.",
        "Therefore ⟦{result}⟧ is correct.",
    ),
}


def question(rng: random.Random) -> Article:
    """A question, answers and comments; half of the questions ask for a proof, half for a computation."""
    write = Writer(rng, PHRASES)
    title, body, replies = _about_a_proof(write) if rng.random() < 0.5 else _about_a_number(write)
    texts = [f"{body} {' '.join(write.several('own_try', 2))}"]
    shown = replies[: rng.randint(1, 2)]
    openings = write.several("answer_opening", len(shown))
    texts += [f"{opening} {reply}" for opening, reply in zip(openings, shown, strict=True)]
    texts += write.several("comment", rng.randint(2, 4))
    authors = rng.sample(USERS, len(texts))
    posts = tuple(Post(author, text) for author, text in zip(authors, texts, strict=True))
    return Article(title, posts, "question", "en", math=True)


def _about_a_proof(write: Writer) -> tuple[str, str, list[str]]:
    """(title, question, answers)."""
    theorem = write.rng.choice(THEOREMS)
    body = write("ask_proof").replace("{statement}", write.expand(theorem.statement))
    calculation = write.rng.choice(ADVANCED)(write.rng)
    example = f"{write('example').format(task=calculation.task)} {' '.join(explained(write, calculation))}"
    proof = f"{write.expand(theorem.definition)} {write.expand(theorem.proof)}"
    return f"How to prove: {theorem.name.lower()}?", body, [proof, example]


def _about_a_number(write: Writer) -> tuple[str, str, list[str]]:
    """(title, question, answers)."""
    calculation = write.rng.choice([*ADVANCED, *SCHOOL])(write.rng)
    simpler = write.rng.choice(SCHOOL)(write.rng)
    answer = [*explained(write, calculation), write("done").format(result=calculation.result)]
    hint = [f"Try a simpler one first, ⟦{simpler.task}⟧.", *explained(write, simpler)]
    title = f"{write('number_title')} ⟦{calculation.task}⟧"
    return title, write("ask_number").format(task=calculation.task), [" ".join(answer), " ".join(hint)]
