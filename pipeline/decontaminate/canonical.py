"""Grams in a canonical form: one formula in several notations has the same grams.

Each of these are the same: `\\dfrac{1}{2}`, `\\frac{1}{2}`, `1/2`; `\\left( x \\right)`, `(x)`;
`\\sqrt{x}`, `√x`; `2\\,\\mathrm{cm}`, `2 cm`; `\\pi`, `π`; `3 \\times 4`, `3 \\cdot 4`, `3 × 4`, `3 * 4`.
Commands of layout, font and space are dropped; so are operators, which many leave out. Functions become
words. Greek letters, relations and the other `SYMBOLS` are grams in either form. An answer's `\\boxed` stays:
without it, worked sums of few numbers would be in every exercise.
"""

from dataclasses import replace

import numpy as np

from pipeline.crawl.grams import Characters, Grams, Hashes, grams

DROPPED = """
frac dfrac tfrac cfrac over left right middle big Bigg bigg Big bigl bigr biggl biggr Biggl Biggr
Bigl Bigr displaystyle textstyle scriptstyle limits nolimits quad qquad hspace vspace hskip kern
phantom thinspace text textbf textit textrm texttt textsf mathrm mathbf mathit mathbb mathcal mathsf
mathfrak mathscr boldsymbol bm bf rm it mbox hbox emph operatorname begin end label tag cancel
underline overline widehat hat vec bar tilde times cdot div pm mp ne neq ast star circ degree lt gt
mid ldots cdots dots dotsc vdots ddots colon prime lbrace rbrace langle rangle lfloor rfloor lceil
rceil lvert rvert vert Vert backslash hline displaylines nonumber newline par item
"""
FUNCTIONS = """
sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp lim max min sup inf gcd
lcm det dim deg ker arg mod bmod:mod pmod:mod
"""
SYMBOLS = """
√ sqrt surd | ∑ sum | ∏ prod | ∫ int | ∞ infty | ≤ le leq leqslant | ≥ ge geq geqslant | ≈ approx
∼ sim | ≡ equiv | ≅ cong | → to rightarrow longrightarrow | ⇒ Rightarrow implies
⇔ iff Leftrightarrow | ∈ in | ∉ notin | ∪ cup | ∩ cap | ⊂ subset | ⊆ subseteq
∅ emptyset varnothing | ∠ angle | △ triangle | ⊥ perp | ∥ parallel | ∀ forall | ∃ exists
∧ land wedge | ∨ lor vee | ¬ neg lnot | α alpha | β beta | γ gamma | δ delta | ε epsilon varepsilon
ζ zeta | η eta | θ theta vartheta | ι iota | κ kappa varkappa | λ lambda | μ mu | ν nu | ξ xi
π pi varpi | ρ rho varrho | σ sigma varsigma | τ tau | υ upsilon | φ phi varphi | χ chi | ψ psi
ω omega
"""  # a character, and the commands that draw it
NAMED = {names[0]: names[1:] for names in map(str.split, SYMBOLS.replace("\n", "|").split("|")) if names}
CHARACTERS = Characters("".join(NAMED))


def _table() -> tuple[Hashes, Hashes]:
    """Hashes of commands, sorted, and what stands for each: the hash of another gram, or 0 for none."""
    functions = (name.partition(":")[::2] for name in FUNCTIONS.split())
    names = dict.fromkeys(DROPPED.split(), "") | {name: other or name for name, other in functions}
    names |= {name: symbol for symbol, commands in NAMED.items() for name in commands}
    found = {}
    for name, other in names.items():
        (command,) = grams(f"\\{name}", CHARACTERS).hashes.tolist()
        found[command] = grams(other, CHARACTERS).hashes.tolist()[0] if other else 0
    commands = sorted(found)
    return np.array(commands, np.uint64), np.array([found[command] for command in commands], np.uint64)


COMMANDS, STANDS_FOR = _table()


def canonical(text: str) -> Grams:
    """Return the canonical grams of a text, in order; their places are those of the text."""
    found = grams(text, CHARACTERS)
    commands = np.flatnonzero(found.is_tex)
    if not len(commands):
        return found
    values = found.hashes[commands]
    places = np.minimum(np.searchsorted(COMMANDS, values), len(COMMANDS) - 1)
    known = COMMANDS[places] == values
    hashes = found.hashes
    hashes[commands[known]] = STANDS_FOR[places[known]]
    left = np.ones(len(hashes), bool)
    left[commands[known]] = STANDS_FOR[places[known]] != 0
    columns = {name: getattr(found, name)[left] for name in ("hashes", "starts", "ends", "is_tex")}
    return replace(found, **columns)
