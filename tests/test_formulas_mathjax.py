"""MathJax 3 output without source or MathML gives the TeX of MathJax's own MathML of the formula.

`mathjax_drawn.jsonl` holds the output of MathJax 3.2.2 for `tex`, without the outlines of SVG glyphs;
`mathjax2_drawn.jsonl` the CommonHTML output of MathJax 2.7, without its sizes; `mathjax2_html_css.jsonl` its
HTML-CSS output, without ids and clips.
"""

import json
import re
from pathlib import Path
from time import process_time

import pytest
from crawl_warcs import FILLER

from pipeline.crawl.text import extract
from pipeline.formulas.html_css import html_css_to_tex
from pipeline.formulas.mathml import mathml_to_tex
from pipeline.formulas.signs import Source

DRAWN = [
    json.loads(line) for line in Path(__file__).with_name("mathjax_drawn.jsonl").read_text().splitlines()
]
DRAWN_2 = [
    json.loads(line) for line in Path(__file__).with_name("mathjax2_drawn.jsonl").read_text().splitlines()
]
HTML_CSS = [
    json.loads(line) for line in Path(__file__).with_name("mathjax2_html_css.jsonl").read_text().splitlines()
]
UNCLEAR = {
    r"\boxed{x}": "x",
    r"\cancel{x}": "x",
    r"\sideset{_a^b}{_c^d}\sum": "ba∑dc",
}  # formulas left as drawn
SPACE = re.compile(r"\\[,;:! ]|\\q?quad|\s")


def formula(markup: str) -> str:
    """The formula as extracted from a page, with its delimiters."""
    _, text = extract(Source(f"<html><body><p>{FILLER} Before {markup} after.</p></body></html>"), 50)
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


@pytest.mark.parametrize("drawn", DRAWN_2, ids=lambda drawn: drawn["tex"])
def test_html_output_of_mathjax_2_gives_the_tex_of_its_mathml_except_spaces(drawn):
    expected = SPACE.sub("", f"${mathml_to_tex(drawn['mathml'])[0]}$")
    assert SPACE.sub("", formula(f'<span class="MathJax_CHTML">{drawn["html"]}</span>')) == expected


@pytest.mark.parametrize("drawn", HTML_CSS, ids=lambda drawn: f"{drawn['tex']} {drawn['display']}")
def test_html_css_output_gives_the_tex_of_its_mathml_where_it_is_clear(drawn):
    marks = "$$" if drawn["display"] else "$"
    tex = mathml_to_tex(drawn["mathml"])[0]
    expected = UNCLEAR.get(drawn["tex"], f"{marks}{tex}{marks}")
    assert SPACE.sub("", formula(drawn["html"])) == SPACE.sub("", expected)


@pytest.mark.parametrize(
    ("tex", "before", "after"),
    [
        ("x_1", "top: -3.83em", "top: -4.006em"),  # a script beside its letter
        ("x_1", "top: -3.83em; ", ""),
        ("x_1", "top: -3.83em", "top: -3.8.3em"),
        (r"\frac{a}{b}", "top: -3.594em", "top: -4.419em"),  # a denominator as high as its numerator
        ("x_1", 'class="mn"', 'class="merror"'),
        ("x_1", "</nobr>", "2</nobr>"),
        ("x_1", '<span class="mi"', "<span>" * 250 + '<span class="mi"'),
    ],
)
def test_html_css_output_with_unclear_places_is_not_rebuilt(tex, before, after):
    drawn = next(drawn["html"] for drawn in HTML_CSS if drawn["tex"] == tex and before in drawn["html"])
    assert "$" in formula(drawn) and "$" not in formula(drawn.replace(before, after))


def test_hostile_html_css_output_takes_linear_time():
    stack = '<span class="msubsup"><span><span style="position: absolute; top: 0em;">'
    strut = '<span style="width: 0px; height: 0em;"></span>'
    cell = '<span style="position: absolute; top: {}em;"><span class="mtd"></span>' + strut + "</span>"
    column = "".join(map(cell.format, range(2000))).join(('<span style="position: absolute;">', "</span>"))
    start = process_time()
    for content in (
        stack * 5000,
        '<span class="mi">x</span>' * 4000,
        column * 2,
        column + cell.format(0) * 2000,
    ):
        for kind in ("mrow", "mtable"):
            html_css_to_tex(f'<span class="MathJax"><span class="{kind}">{content}</span></span>')
    assert process_time() - start < 5


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
