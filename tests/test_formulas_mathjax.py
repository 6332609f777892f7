"""MathJax 3 output without source or MathML gives the TeX of MathJax's own MathML of the formula.

`mathjax_drawn.jsonl` holds the output of MathJax 3.2.2 for `tex`, without the outlines of SVG glyphs.
"""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from crawl_warcs import FILLER

from pipeline.crawl.text import extract
from pipeline.formulas.mathml import mathml_to_tex
from pipeline.formulas.signs import Source

DRAWN = [
    json.loads(line) for line in Path(__file__).with_name("mathjax_drawn.jsonl").read_text().splitlines()
]
SPACE = re.compile(r"\\[,;:! ]|\\q?quad|\s")


def formula(markup: str, removed: Counter[str] | None = None) -> str:
    """The formula as extracted from a page, with its delimiters."""
    page = f"<html><body><p>{FILLER} Before {markup} after.</p></body></html>"
    _, text = extract(Source(page), 50, removed)
    return re.search(r"Before\s+(.*?)\s+after", text, re.DOTALL)[1]


@pytest.mark.parametrize("drawn", DRAWN, ids=lambda drawn: drawn["tex"])
def test_html_output_gives_the_tex_of_its_mathml(drawn):
    marks = "$$" if drawn["display"] else "$"
    assert formula(drawn["html"]) == f"{marks}{mathml_to_tex(drawn['mathml'])[0]}{marks}"


@pytest.mark.parametrize("drawn", DRAWN, ids=lambda drawn: drawn["tex"])
def test_svg_output_gives_the_same_tex_except_spaces_and_columns(drawn):
    marks = "$$" if drawn["display"] else "$"
    expected = SPACE.sub("", f"{marks}{mathml_to_tex(drawn['mathml'])[0]}{marks}")
    expected = expected.replace("{aligned}", "{matrix}")
    assert SPACE.sub("", formula(drawn["svg"])) == re.sub(r"begin\{array}\{l+}", "begin{matrix}", expected)


@pytest.mark.parametrize(
    "drawn",
    [
        '<span class="mjx-chtml"><span class="mjx-math"><span class="mjx-msubsup">'
        '<span class="mjx-base">x</span><span class="mjx-sup">2</span></span></span></span>',
        '<span class="MathJax"><nobr><span class="math"><span class="msubsup"><span class="mi">x</span>'
        '<span class="mn">2</span></span></span></nobr></span>',
    ],
)
def test_output_of_mathjax_2_without_a_source_leaves_no_text_and_is_counted(drawn):
    removed = Counter()
    assert formula(f"{drawn} y", removed) == "y" and removed == {"unread formula": 1}


def test_empty_output_of_mathjax_2_leaves_no_formula():
    assert formula('<span class="mjx-chtml"><span class="mjx-math"></span></span> x') == "x"


@pytest.mark.parametrize(
    "drawn",
    [
        "<svg><g></g></svg>",
        "<mjx-math></mjx-math>",
        "<mjx-math><mjx-mfrac></mjx-mfrac></mjx-math>",
        '<mjx-math><mjx-merror data-mjx-error="Unknown"><mjx-mtext></mjx-mtext></mjx-merror></mjx-math>',
        *(
            f'<mjx-math><mjx-mi><mjx-c class="mjx-c{code}"></mjx-c></mjx-mi></mjx-math>'
            for code in ("D800", "07", "E000")
        ),
        *(
            f'<svg><g data-mml-node="math"><path data-c="{code}"></path></g></svg>'
            for code in ("zz", "-1", "110000")
        ),
    ],
)
def test_output_without_known_glyphs_leaves_no_text(drawn):
    assert formula(f'<mjx-container class="MathJax">{drawn}</mjx-container> x') == "x"


@pytest.mark.parametrize(
    "drawn",
    [
        '<mjx-mspace style="width: 1.2.3em"></mjx-mspace>',
        '<mjx-mspace style="width: .em"></mjx-mspace>',
        '<g data-mml-node="menclose"><g data-mml-node="mi"></g><line y1="50%" y2="a"></line></g>',
        '<g data-mml-node="msubsup">'
        + '<g data-mml-node="mi" transform="translate(0,--) translate(1.2.3,0)"></g>' * 3
        + "</g>",
        "<mjx-msub></mjx-msub><mjx-mmultiscripts></mjx-mmultiscripts><mjx-mtable></mjx-mtable>",
        "<mjx-munder><mjx-under>" * 60,
    ],
)
def test_malformed_output_does_not_fail_the_page(drawn):
    x = '<mjx-mi class="mjx-i"><mjx-c class="mjx-c1D465"></mjx-c></mjx-mi>'
    found = formula(f'<mjx-container class="MathJax"><mjx-math>{x}{drawn}</mjx-math></mjx-container>')
    assert found.startswith("$x") and found.endswith("$")
