"""Unicode characters of MathML and their TeX commands."""

_COMMANDS = """
α alpha β beta γ gamma δ delta ϵ epsilon ε varepsilon ζ zeta η eta θ theta ϑ vartheta ι iota κ kappa λ lambda
μ mu µ mu ν nu ξ xi π pi ϖ varpi ρ rho ϱ varrho σ sigma ς varsigma τ tau υ upsilon φ varphi ϕ phi χ chi ψ psi
ω omega Γ Gamma Δ Delta Θ Theta Λ Lambda Ξ Xi Π Pi Σ Sigma Υ Upsilon Φ Phi Ψ Psi Ω Omega ϰ varkappa
∑ sum ∏ prod ∐ coprod ∫ int ∬ iint ∭ iiint ∮ oint ⋃ bigcup ⋂ bigcap ⨁ bigoplus ⨂ bigotimes ⋁ bigvee
⋀ bigwedge ⨆ bigsqcup ⨄ biguplus ⨀ bigodot
≤ leq ≥ geq ≠ neq ≈ approx ≡ equiv ∼ sim ≃ simeq ≅ cong ≪ ll ≫ gg ∝ propto ≺ prec ≻ succ ⪯ preceq ⪰ succeq
≼ preccurlyeq ≽ succcurlyeq ⩽ leqslant ⩾ geqslant ≲ lesssim ≳ gtrsim ≐ doteq ≜ triangleq ≍ asymp
∈ in ∉ notin ∋ ni ⊂ subset ⊃ supset ⊆ subseteq ⊇ supseteq ⊊ subsetneq ⊋ supsetneq ⊄ nsubseteq ⊈ nsubseteq
⊏ sqsubset ⊑ sqsubseteq ⊒ sqsupseteq ∣ mid ∤ nmid ∥ parallel ∦ nparallel ⟂ perp ⊥ perp ⊢ vdash ⊣ dashv
⊨ models ⊩ Vdash ⊲ triangleleft ⊳ triangleright ⊴ trianglelefteq ≮ nless ≯ ngtr ≰ nleq ≱ ngeq
± pm ∓ mp × times ÷ div ⋅ cdot · cdot ∗ ast ⋆ star ∘ circ ∙ bullet • bullet ⊕ oplus ⊖ ominus ⊗ otimes
⊘ oslash ⊙ odot ∪ cup ∩ cap ⊎ uplus ⊓ sqcap ⊔ sqcup ∨ vee ∧ wedge ∖ setminus ≀ wr ⨿ amalg † dagger ‡ ddagger
⋉ ltimes ⋊ rtimes ⋈ bowtie ⊞ boxplus ⊠ boxtimes
→ to ← leftarrow ↔ leftrightarrow ⇒ Rightarrow ⇐ Leftarrow ⇔ Leftrightarrow ↦ mapsto ⟶ longrightarrow
⟵ longleftarrow ⟷ longleftrightarrow ⟹ Longrightarrow ⟸ Longleftarrow ⟺ Longleftrightarrow ⟼ longmapsto
↪ hookrightarrow ↩ hookleftarrow ⇀ rightharpoonup ⇌ rightleftharpoons ↑ uparrow ↓ downarrow ↕ updownarrow
⇑ Uparrow ⇓ Downarrow ↗ nearrow ↘ searrow ↙ swarrow ↖ nwarrow ⇝ rightsquigarrow ↠ twoheadrightarrow
↣ rightarrowtail ⇄ rightleftarrows ⇉ rightrightarrows
∀ forall ∃ exists ∄ nexists ¬ neg ∅ emptyset ∞ infty ∂ partial ∇ nabla ℓ ell ℏ hbar ħ hbar ℜ Re ℑ Im ℘ wp
ℵ aleph ℶ beth ∠ angle ∡ measuredangle △ triangle ▵ triangle □ square ■ blacksquare
◻ square ⊤ top ♯ sharp ♭ flat
♮ natural ♠ spadesuit ♥ heartsuit ♦ diamondsuit ♣ clubsuit ◊ lozenge ⋄ diamond ∴ therefore ∵ because ð eth
∁ complement ı imath ȷ jmath √ surd § S ¶ P
… ldots ⋯ cdots ⋮ vdots ⋱ ddots
⟨ langle ⟩ rangle 〈 langle 〉 rangle ⌊ lfloor ⌋ rfloor ⌈ lceil ⌉ rceil ‖ | ∥ | { { } }
% % # # & & _ _ $ $
"""
_PAIRS = _COMMANDS.split()
SYMBOLS: dict[str, str] = (
    {character: "\\" + name for character, name in zip(_PAIRS[::2], _PAIRS[1::2], strict=True)}
    | {
        "−": "-",
        "–": "-",
        "‐": "-",
        "∕": "/",
        "⁄": "/",
        "′": "'",
        "″": "''",
        "‴": "'''",
        "ʹ": "'",
        "\\": r"\backslash",
        "~": r"\sim",
        "∶": ":",
        "≔": ":=",
        "\u00a0": "~",
        "\u2009": r"\,",
        "\u200a": r"\,",
        "\u2003": r"\quad",
        "\u2002": r"\enspace",
        "\u2005": r"\:",
        "\u2004": r"\;",
    }
    | dict.fromkeys("\u2061\u2062\u2063\u2064\u200b\u2060\ufeff\u200c\u200d", "")
)

_FUNCTIONS = """
arccos arcsin arctan arg cos cosh cot coth csc deg det dim exp gcd hom inf ker lg lim liminf limsup ln log max
min Pr sec sin sinh sup tan tanh
"""
FUNCTIONS = frozenset(_FUNCTIONS.split())
LIMITS = frozenset("∑∏∐⋃⋂⨁⨂⋁⋀⨆⨄⨀") | {
    "lim", "max", "min", "sup", "inf", "det", "gcd", "Pr", "lim sup", "lim inf", "limsup", "liminf",
}  # fmt: skip
INFIX = frozenset("=<>+−-≤≥≠≈≡∼≃≅≪≫∝∈∉∋⊂⊃⊆⊇→←↔⇒⇐⇔↦⟶⟹⟺±∓×÷⋅∪∩∨∧∘⊕⊗∖∣≔") | {":=", "==", "!=", "<=", ">="}

OVER = {
    "^": "hat", "ˆ": "hat", "̂": "hat", "~": "tilde", "˜": "tilde", "̃": "tilde", "∼": "tilde",
    "¯": "bar", "‾": "overline", "̅": "overline", "̄": "bar", "ˉ": "bar", "―": "overline", "_": "overline",
    "⎯": "overline", "−": "bar", "-": "bar", "→": "vec", "⃗": "vec", "⟶": "overrightarrow",
    "←": "overleftarrow", "↔": "overleftrightarrow", "˙": "dot", ".": "dot", "̇": "dot", "⋅": "dot",
    "¨": "ddot", "̈": "ddot", "..": "ddot", "⃛": "dddot", "˘": "breve", "̆": "breve", "ˇ": "check",
    "̌": "check", "´": "acute", "́": "acute", "`": "grave", "̀": "grave", "˚": "mathring", "̊": "mathring",
    "⏞": "overbrace", "︷": "overbrace", "⏜": "overparen",
}  # fmt: skip
UNDER = {
    "_": "underline", "¯": "underline", "‾": "underline", "̲": "underline", "⎯": "underline",
    "⏟": "underbrace", "︸": "underbrace", "―": "underline",
}  # fmt: skip
VARIANTS = {
    "normal": "mathrm", "bold": "mathbf", "italic": "mathit", "bold-italic": "boldsymbol",
    "double-struck": "mathbb", "script": "mathcal", "bold-script": "mathcal", "fraktur": "mathfrak",
    "bold-fraktur": "mathfrak", "sans-serif": "mathsf", "bold-sans-serif": "mathsf", "monospace": "mathtt",
}  # fmt: skip
FENCES = {character: character for character in "()[]|"} | {"‖": r"\|", "∥": r"\|", "∣": "|"}
FENCES |= {character: SYMBOLS[character] for character in "{}⟨⟩〈〉⌊⌋⌈⌉"}
MATRICES = {
    ("(", ")"): "pmatrix", ("[", "]"): "bmatrix", ("|", "|"): "vmatrix", ("‖", "‖"): "Vmatrix",
    ("∥", "∥"): "Vmatrix", ("{", "}"): "Bmatrix", ("{", ""): "cases", ("∣", "∣"): "vmatrix",
}  # fmt: skip
ARROWS = {"→": "xrightarrow", "⟶": "xrightarrow", "←": "xleftarrow", "⟵": "xleftarrow", "⇒": "xRightarrow"}


def _alphabets() -> dict[str, str]:
    """Letters of the mathematical alphabets as TeX, e.g. a double-struck R as `\\mathbb{R}`."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    starts = (
        (0x1D400, "mathbf"), (0x1D434, ""), (0x1D468, "boldsymbol"), (0x1D49C, "mathcal"),
        (0x1D4D0, "mathcal"), (0x1D504, "mathfrak"), (0x1D538, "mathbb"), (0x1D56C, "mathfrak"),
        (0x1D5A0, "mathsf"), (0x1D670, "mathtt"),
    )  # fmt: skip
    table = {
        chr(start + index): f"\\{name}{{{letter}}}" if name else letter
        for start, name in starts
        for index, letter in enumerate(letters)
    }
    for start, name in ((0x1D7CE, "mathbf"), (0x1D7D8, "mathbb")):
        table |= {chr(start + digit): f"\\{name}{{{digit}}}" for digit in range(10)}
    holes = (
        "ℂ mathbb C ℍ mathbb H ℕ mathbb N ℙ mathbb P ℚ mathbb Q ℝ mathbb R ℤ mathbb Z ℬ mathcal B ℰ mathcal E"
    )
    holes += (
        " ℱ mathcal F ℋ mathcal H ℐ mathcal I ℒ mathcal L ℳ mathcal M ℛ mathcal R ℭ mathfrak C ℌ mathfrak H"
    )
    words = holes.split()
    for character, name, letter in zip(words[::3], words[1::3], words[2::3], strict=True):
        table[character] = f"\\{name}{{{letter}}}"
    greek = "ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡϴΣΤΥΦΧΨΩ∇αβγδεζηθικλμνξοπρςστυφχψω∂ϵϑϰϕϱϖ"
    for start, bold in ((0x1D6A8, True), (0x1D6E2, False), (0x1D71C, True)):
        for index, letter in enumerate(greek):
            plain = SYMBOLS.get(letter, letter)
            table[chr(start + index)] = f"\\boldsymbol{{{plain}}}" if bold else plain
    return table | {"ℎ": "h", "ⅆ": "d", "ⅇ": "e", "ⅈ": "i"}


SYMBOLS |= {character: tex for character, tex in _alphabets().items() if character not in SYMBOLS}
