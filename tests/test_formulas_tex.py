"""TeX to MathML: what it shows is complete, safe to put on a page, and reads back as the same TeX."""

import re

import pytest

from pipeline.formulas.mathml import mathml_to_tex
from pipeline.formulas.tex_to_mathml import mathml_tree, tex_to_mathml


@pytest.mark.parametrize(
    ("tex", "part"),
    [
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "<mtable><mtr><mtd><mn>1</mn></mtd>"),
        (r"\begin{aligned}a&=b\\&=c\end{aligned}", '<mtd columnalign="left">'),
        (r"\begin{gathered}a\\b\end{gathered}", "<mtd><mi>b</mi></mtd>"),
        (r"2 \equiv 9 \pmod{7}", "<mi>mod</mi>"),
        (r"\boxed{x}", '<mrow class="boxed">'),
        (r"50% of x", "<mi>x</mi>"),
        (r"{8 \choose 2}", 'linethickness="0"'),
    ],
)
def test_commands_of_solutions_become_mathml(tex: str, part: str) -> None:
    assert part in tex_to_mathml(tex)


@pytest.mark.parametrize(
    "tex",
    [
        r"\multicolumn{2}{r}{2}",
        r"\unknown{x}",
        r"\frac{1}{\cancel{5}}",
        r"\text{if $x>0$}",
        r"a \\ b",
        "a & b",
        "x^",
        r"\left( x",
        "{" * 3000,
        r"\def\a{\b\b}\def\b{\c\c}\a",
        r"\newcommand{\a}{\a\a}\a",
    ],
)
def test_tex_that_would_be_shown_wrongly_stays_source(tex: str) -> None:
    assert tex_to_mathml(tex).startswith('<code class="tex">')


@pytest.mark.parametrize(
    "tex",
    [
        r"\text{<script>alert(1)</script>}",
        r"\href{javascript:alert(1)}{x}",
        r"\style{background:url(//a.example)}{x}",
        r"\class{boxed}{x}",
        r"\unicode{x3c}script>",
        r"\verb|<img src=x onerror=alert(1)>|",
        r"\text{&#60;b&#62;}",
        r"\color{red\" onclick=\"x}y",
        r"\hspace{1em\" onclick=\"x}y",
        r"a<b>c",
        "<script>$</script>",
    ],
)
def test_nothing_in_a_formula_becomes_markup_or_a_foreign_attribute(tex: str) -> None:
    html = tex_to_mathml(tex)
    tags = re.findall(r"<[^>]*>", html)
    assert all(re.fullmatch(r'</?(?:m[a-z]+|code)(?: [a-z]+="[^"]*")*>', tag) for tag in tags), html
    assert not re.search(r'<[^>]* (?:href|style|on\w+|class="(?!tex"))', html)


def test_a_displayed_formula_says_so() -> None:
    assert tex_to_mathml("x", display=True).startswith('<math display="block">')
    assert tex_to_mathml("x").startswith("<math>")


def test_a_macro_bomb_is_refused_before_it_expands() -> None:
    names = [f"\\{letter}" for letter in "abcdefghijklmnop"]
    bomb = "".join(rf"\def{name}{{{names[number + 1] * 9}}}" for number, name in enumerate(names[:-1]))
    with pytest.raises(ValueError, match="TeX outside"):
        mathml_tree(bomb + names[0])


@pytest.mark.parametrize(
    "tex",
    [
        r"\frac{a}{b} = \sqrt[3]{x}",
        r"x_{1}^{2} \leq \pi",
        r"\begin{pmatrix}1 & a \\ 0 & b\end{pmatrix}",
        r"\overline{AB} \in \mathbb{R}",
        r"\sum_{i = 1}^{n}i",
    ],
)
def test_mathml_reads_back_as_the_tex_it_was_made_from(tex: str) -> None:
    assert mathml_to_tex(tex_to_mathml(tex))[0] == tex
