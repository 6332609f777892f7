r"""Text with TeX as HTML: formulas become MathML, which browsers draw without any script or font of ours.

Covers what solutions of school and competition problems use. A formula with anything else stays TeX source,
set apart, so that nothing is shown wrong. All text is escaped: what a model wrote can never become markup.
"""

import re
from html import escape

_TOKEN = re.compile(r"\\[a-zA-Z]+\*?|\\.|\d+(?:[.,]\d+)*|\s+|.", re.DOTALL)
# A dollar opens a formula only if one closes it; prices ("$5 and $10") have spaces or digits there.
_SPAN = re.compile(
    r"\$\$(?P<a>.+?)\$\$|\\\[(?P<b>.+?)\\\]|\\\((?P<c>.+?)\\\)|(?<![\\$\w])\$(?=[^\s$])(?P<d>[^$\n]*?[^\s\\$])\$(?!\d)|\\boxed\s*\{",
    re.DOTALL,
)
_GREEK = {
    **{
        name: chr(0x3B1 + index)
        for index, name in enumerate(["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"])
    },
    **{
        name: chr(0x3B9 + index)
        for index, name in enumerate(["iota", "kappa", "lambda", "mu", "nu", "xi", "omicron", "pi", "rho"])
    },
    **{
        name: chr(0x3C3 + index)
        for index, name in enumerate(["sigma", "tau", "upsilon", "phi", "chi", "psi", "omega"])
    },
    **dict(
        zip(
            ["Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega"],
            "ΓΔΘΛΞΠΣΦΨΩ",
            strict=True,
        )
    ),
    **{
        "varepsilon": "ε",
        "vartheta": "ϑ",
        "varphi": "φ",
        "infty": "∞",
        "ell": "ℓ",
        "emptyset": "∅",
        "degree": "°",
    },
}
_OPERATOR = dict(
    times="×", cdot="·", div="÷", pm="±", mp="∓", le="≤", leq="≤", ge="≥", geq="≥", ne="≠", neq="≠",
    approx="≈", equiv="≡", sim="∼", cong="≅", to="→", rightarrow="→", Rightarrow="⇒", implies="⟹",
    iff="⟺", leftarrow="←",
    cup="∪", cap="∩", subset="⊂", subseteq="⊆", notin="∉", forall="∀", exists="∃", perp="⊥", parallel="∥",
    mid="∣", angle="∠", triangle="△", circ="∘", cdots="⋯", ldots="…", dots="…", sum="∑", prod="∏", int="∫",
    lfloor="⌊", rfloor="⌋", lceil="⌈", rceil="⌉", langle="⟨", rangle="⟩", therefore="∴", because="∵",
    partial="∂", star="⋆", ast="∗", setminus="∖", land="∧", lor="∨", neg="¬", prime="′", vert="|", nabla="∇",
)  # fmt: skip
_OPERATOR["in"] = "∈"
_FUNCTION = [
    "sin",
    "cos",
    "tan",
    "cot",
    "sec",
    "csc",
    "arcsin",
    "arccos",
    "arctan",
    "log",
    "ln",
    "exp",
    "lim",
    "max",
    "min",
    "gcd",
    "lcm",
    "det",
    "dim",
    "mod",
    "deg",
]
_SPACE = {
    ",": "0.17em",
    ":": "0.22em",
    ";": "0.28em",
    " ": "0.25em",
    "quad": "1em",
    "qquad": "2em",
    "!": "0em",
}
_LIMITS = {"∑", "∏", "lim", "max", "min"}
_ACCENT = {"overline": "‾", "bar": "‾", "hat": "^", "vec": "→", "widehat": "^", "tilde": "~"}
_STYLE = {"mathbf": "bold", "mathbb": "double-struck", "mathrm": "normal", "operatorname": "normal"}
_SILENT = {
    "displaystyle",
    "textstyle",
    "limits",
    "left",
    "right",
    "big",
    "Big",
    "bigl",
    "bigr",
    "Bigl",
    "Bigr",
}


NO_BREAK = "\xa0"


class _Unknown(Exception):
    """A command outside the subset."""


class _Parser:
    """Recursive descent over TeX tokens; every method returns MathML."""

    def __init__(self, tex: str) -> None:
        self.tokens = [token for token in _TOKEN.findall(tex) if not token.isspace() or NO_BREAK in token]
        self.at = 0

    def next(self) -> str:
        if self.at >= len(self.tokens):
            raise _Unknown("end of formula")
        self.at += 1
        return self.tokens[self.at - 1]

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def row(self, stop: str) -> str:
        parts = []
        while self.peek() != stop:
            parts.append(self.scripted())
        if stop:
            self.next()
        return f"<mrow>{''.join(parts)}</mrow>"

    def scripted(self) -> str:
        base = "<mrow></mrow>" if self.peek() in "^_" and self.peek() else self.atom()
        scripts: dict[str, str] = {}
        while self.peek() and self.peek() in "^_'":
            mark = self.next()
            if mark == "'":
                scripts["^"] = scripts.get("^", "") + "<mo>′</mo>"
            elif mark in scripts:
                raise _Unknown("double script")
            else:
                scripts[mark] = self.argument()
        if not scripts:
            return base
        under = any(f">{name}<" in base for name in _LIMITS)
        names = ("munder", "mover", "munderover") if under else ("msub", "msup", "msubsup")
        if len(scripts) == 2:
            return f"<{names[2]}>{base}{scripts['_']}<mrow>{scripts['^']}</mrow></{names[2]}>"
        mark, script = scripts.popitem()
        name = names[0] if mark == "_" else names[1]
        return f"<{name}>{base}<mrow>{script}</mrow></{name}>"

    def atom(self) -> str:
        token = self.next()
        if token == "{":
            return self.row("}")
        if token.startswith("\\"):
            return self.command(token[1:])
        if token in "}&":
            raise _Unknown(token)
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token.isalpha():
            return f"<mi>{escape(token)}</mi>"
        return f"<mo>{escape({'-': '−', '*': '∗'}.get(token, token))}</mo>"

    def argument(self) -> str:
        """What a command or script applies to: a group, or one token; of a number its first digit."""
        token = self.peek()
        if token[:1].isdigit() and len(token) > 1:
            self.tokens[self.at : self.at + 1] = [token[0], token[1:]]
        return self.atom()

    def command(self, name: str) -> str:
        if name in ("frac", "dfrac", "tfrac", "cfrac"):
            return f"<mfrac>{self.argument()}{self.argument()}</mfrac>"
        if name in ("binom", "dbinom", "tbinom"):
            return f'<mo>(</mo><mfrac linethickness="0">{self.argument()}{self.argument()}</mfrac><mo>)</mo>'
        if name == "sqrt":
            if self.peek() != "[":
                return f"<msqrt>{self.argument()}</msqrt>"
            self.next()
            degree = self.row("]")
            return f"<mroot>{self.argument()}{degree}</mroot>"
        if name in ("boxed", "fbox"):
            return f'<mrow class="boxed">{self.argument()}</mrow>'
        if name in ("text", "textbf", "textit", "mbox"):
            return f"<mtext>{escape(self.words())}</mtext>"
        if name in _STYLE:
            return f'<mi mathvariant="{_STYLE[name]}">{escape(self.words())}</mi>'
        if name in _ACCENT:
            return f"<mover>{self.argument()}<mo>{_ACCENT[name]}</mo></mover>"
        return self.symbol(name)

    def symbol(self, name: str) -> str:
        if name in _GREEK:
            return f"<mi>{_GREEK[name]}</mi>"
        if name in _OPERATOR:
            return f"<mo>{_OPERATOR[name]}</mo>"
        if name in _FUNCTION:
            return f"<mi>{name}</mi>"
        if name in _SPACE:
            return f'<mspace width="{_SPACE[name]}"></mspace>'
        if name in _SILENT:
            if self.peek() == ".":
                self.next()
            return ""
        if name in ("%", "$", "#", "&", "_", "{", "}", "|"):
            return f"<mo>{escape(name)}</mo>"
        raise _Unknown(name)

    def words(self) -> str:
        """The text of a group, for commands that take words instead of a formula."""
        if self.next() != "{":
            raise _Unknown("expected a group")
        start = self.at
        while self.next() != "}":
            continue
        words = self.tokens[start : self.at - 1]
        if any(word.startswith("\\") or word in "{}" for word in words):
            raise _Unknown("formula in text")
        return "".join(words)


def formula(tex: str, display: bool) -> str:
    """A formula as MathML, or as its TeX source where it goes beyond the subset."""
    try:
        # Words lose their spaces in the token stream: protect them as no-break spaces.
        kept = re.sub(r"(\\(?:text|textbf|textit|mbox)\s*\{)([^{}]*)\}", _keep_spaces, tex)
        body = _Parser(kept).row("")
    except (_Unknown, RecursionError):
        return f'<code class="tex">{escape(tex)}</code>'
    return f"<math{' display=' + chr(34) + 'block' + chr(34) if display else ''}>{body}</math>"


def _keep_spaces(match: re.Match[str]) -> str:
    return f"{match[1]}{match[2].replace(' ', NO_BREAK)}}}"


def _closing(text: str, start: int) -> int:
    """Index after the brace that closes the one before `start`, or -1."""
    depth = 1
    for index in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return index + 1
    return -1


def to_html(text: str) -> str:
    """Plain text with TeX formulas as safe HTML; line breaks are left to the style (`pre-wrap`)."""
    parts, at = [], 0
    while match := _SPAN.search(text, at):
        end, tex = match.end(), next((group for group in match.groups() if group is not None), None)
        if tex is None:  # \boxed{ outside a formula
            closed = _closing(text, end)
            if closed < 0:
                break
            end, tex = closed, text[match.start() : closed]
        parts.append(escape(text[at : match.start()], quote=False))
        parts.append(formula(tex, display=match["a"] is not None or match["b"] is not None))
        at = end
    return "".join(parts) + escape(text[at:], quote=False)
