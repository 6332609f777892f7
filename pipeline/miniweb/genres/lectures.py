"""English lecture notes: definitions, theorems with proofs, computed examples. The seed is such a site."""

import random

from pipeline.miniweb.genres.calculations import ADVANCED, worked
from pipeline.miniweb.genres.theorems import THEOREMS
from pipeline.miniweb.grammar import Writer
from pipeline.miniweb.pages import Article, Block, Display, Heading, Items, Paragraph

PHRASES = {
    "let": ("Let", "Now let", "Throughout, let", "As before, let"),
    "suppose": ("Suppose", "Suppose that", "Assume that", "Let us assume that", "Assume first that"),
    "hence": ("Hence", "Therefore", "Thus", "Consequently", "It follows that", "We conclude that"),
    "hence_low": ("hence", "therefore", "so that", "and therefore", "which shows that"),
    "enough": ("it is enough to look at", "it suffices to consider", "one only has to check"),
    "subtracting": ("Subtracting", "Taking the difference and subtracting", "If we subtract"),
    "space": ("V", "U", "E", "X"),
    "group": ("G", "K", "S"),
    "index": ("k", "m", "n", "r"),
    "prime": ("2", "3", "5", "7", "11", "13", "17", "19"),
    "course": (
        "Mathematics I",
        "Mathematics II",
        "Foundations of Mathematics",
        "Pure Mathematics",
        "Introduction to Proofs",
    ),
    "intro": (
        "These notes follow lecture <2..28> of the course <@course>.",
        "This section belongs to chapter <1..12> of the notes on <@course>.",
        "In this lecture we prove one basic theorem and work through examples.",
        "We recall the definitions first; the proofs are short and worth learning by heart.",
        "The results of this section are used without comment in the rest of the course.",
        "Most of the material can be found in any textbook on <@course>, chapter <2..9>.",
        "The exercise class of week <2..14> uses the notation introduced here.",
    ),
    "remark": (
        "The converse is false in general; find a counterexample.",
        "Note that the proof uses the hypothesis only once.",
        "The same argument works over any field.",
        "We shall need this lemma again in the proof of theorem <2..9>.<2..20>.",
        "Compare this with proposition <1..9>.<1..20> of the previous chapter.",
        "It is instructive to see where the proof breaks down without the assumption.",
        "A second proof, by induction on ⟦n⟧, is given in the exercises.",
        "The theorem is sharp: the bound cannot be improved.",
    ),
    "example": (
        "Example. Compute ⟦{task}⟧.",
        "Example. We determine ⟦{task}⟧.",
        "Consider ⟦{task}⟧ as an example.",
        "To illustrate this, take ⟦{task}⟧.",
    ),
    "result": (
        "The result is ⟦{result}⟧.",
        "<hence> we obtain ⟦{result}⟧.",
        "In conclusion, ⟦{result}⟧.",
        "This gives ⟦{result}⟧.",
    ),
    "exercise": (
        "Compute the first <4..8> terms of the sequence displayed above for ⟦a_1=<1..5>⟧.",
        "Prove the theorem again without using contradiction.",
        "Let ⟦n\\ge <2..9>⟧. Show that the statement fails for ⟦n=<0..1>⟧.",
        "Give an example with dimension ⟦<2..9>⟧.",
        "Show that the set of all such elements is closed under addition.",
        "Prove or disprove: the sum ⟦a_n+<2..9>b_n⟧ converges.",
        "Find all integers ⟦k\\le <10..60>⟧ for which the hypothesis holds.",
        "Determine the kernel of the map that sends ⟦(x,y)⟧ to ⟦<2..9>x+<2..9>y⟧.",
        "Show that ⟦<2..9>n^2+<2..9>n\\le <10..40>n^2⟧ for all ⟦n\\ge 1⟧.",
    ),
    "determinant_rule": (
        "The formula for the determinant gives ⟦{tex}⟧.",
        "Expanding the determinant, ⟦{tex}⟧.",
    ),
    "row_times_column": ("Multiplying a row by the column yields ⟦{tex}⟧.", "The next entry is ⟦{tex}⟧."),
    "divide_with_remainder": (
        "Division with remainder: ⟦{tex}⟧.",
        "Next, ⟦{tex}⟧.",
        "We divide again, ⟦{tex}⟧.",
    ),
    "multiply_reduce": ("Modulo {0}, ⟦{tex}⟧.", "Reducing modulo {0}, ⟦{tex}⟧."),
    "last_term": ("The last term is ⟦{tex}⟧.", "By the formula for the terms, ⟦{tex}⟧."),
    "pair_terms": (
        "Pairing the first term with the last, the sum is ⟦{tex}⟧.",
        "There are equal pairs, <hence_low> ⟦{tex}⟧.",
    ),
    "power_rule": ("By the power rule, ⟦{tex}⟧.", "Differentiating term by term, ⟦{tex}⟧."),
    "substitute": ("At the point {0}, ⟦{tex}⟧.", "Substituting {0}, ⟦{tex}⟧."),
    "divide_power": ("Divide numerator and denominator by {0}: ⟦{tex}⟧.",),
    "terms_vanish": (
        "The small terms tend to zero, <hence_low> the limit is ⟦{tex}⟧.",
        "As the fractions vanish, what remains is ⟦{tex}⟧.",
    ),
}


def lecture(rng: random.Random) -> Article:
    """One section of lecture notes: two theorems, three worked examples, exercises."""
    write = Writer(rng, PHRASES)
    theorems = rng.sample(THEOREMS, 2)
    blocks: list[Block] = [Paragraph(" ".join(write.several("intro", 2)))]
    for number, theorem in enumerate(theorems, start=1):
        blocks += [
            Heading(theorem.name),
            Paragraph(f"Definition. {write.expand(theorem.definition)}"),
            Paragraph(f"Theorem {rng.randint(1, 9)}.{number}. {write.expand(theorem.statement)}"),
            Paragraph(f"Proof. {write.expand(theorem.proof)}"),
            Paragraph(f"Remark. {write('remark')}"),
        ]
    for make in rng.sample(ADVANCED, 3):
        calculation = make(rng)
        blocks += worked(write, calculation, "example", "result")
    blocks.append(Display(rf"a_{{n+1}}={rng.randint(2, 9)}a_n+{rng.randint(1, 9)}"))
    blocks += [Heading("Exercises"), Items(tuple(write.several("exercise", 3)), ordered=True)]
    title = f"{write.expand('<@course>')}: {theorems[0].name}"
    return Article(title, tuple(blocks), "lecture", "en", math=True)
