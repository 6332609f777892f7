"""What MathJax 3 drew, without source or MathML: the TeX that its own MathML of the same formula gives.

`mathjax_drawn.jsonl` holds what MathJax 3.2.2 made of `tex`; the outlines of SVG's glyphs are left out.
"""

import json
import re
from pathlib import Path

import pytest
from crawl_warcs import FILLER

from pipeline.crawl.math.mathml import mathml_to_tex
from pipeline.crawl.text import extract

DRAWN = [
    json.loads(line) for line in Path(__file__).with_name("mathjax_drawn.jsonl").read_text().splitlines()
]
SPACE = re.compile(r"\\[,;:! ]|\\q?quad|\s")


def formula(markup: str) -> str:
    """The formula that the extraction of a page with it gives, delimiters included."""
    _, text = extract(f"<html><body><p>{FILLER} Before {markup} after.</p></body></html>", 50)
    return re.search(r"Before\s+(.*?)\s+after", text, re.DOTALL)[1]


@pytest.mark.parametrize("drawn", DRAWN, ids=lambda drawn: drawn["tex"])
def test_a_formula_drawn_in_html_gives_the_tex_of_its_mathml(drawn):
    marks = "$$" if drawn["display"] else "$"
    assert formula(drawn["html"]) == f"{marks}{mathml_to_tex(drawn['mathml'])[0]}{marks}"


@pytest.mark.parametrize("drawn", DRAWN, ids=lambda drawn: drawn["tex"])
def test_a_formula_drawn_in_svg_gives_it_but_for_spaces_and_columns(drawn):
    marks = "$$" if drawn["display"] else "$"
    expected = SPACE.sub("", f"{marks}{mathml_to_tex(drawn['mathml'])[0]}{marks}")
    assert SPACE.sub("", formula(drawn["svg"])) == re.sub(r"begin\{array}\{l+}", "begin{matrix}", expected)


def test_a_drawing_that_is_no_formula_leaves_nothing():
    assert formula('<mjx-container class="MathJax"><svg><g></g></svg></mjx-container> x') == "x"
