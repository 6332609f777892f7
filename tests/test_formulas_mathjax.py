"""Output of MathJax without source or MathML leaves no text, and what held glyphs is counted."""

import re
from collections import Counter

import pytest
from crawl_warcs import text_of

CONTAINER = '<mjx-container class="MathJax" jax="CHTML">'
SVG = '<svg><g data-mml-node="math"><g data-mml-node="mi"><use data-c="1D44E"></use></g></g></svg>'


def text_beside(markup: str, removed: Counter[str]) -> str:
    """The text between two words of a page."""
    text = text_of(f"<p>Before {markup} after.</p>", removed=removed)
    return re.search(r"Before\s+(.*?)\s+after", text, re.DOTALL)[1]


@pytest.mark.parametrize(
    "drawn",
    [
        '<span class="mjx-chtml"><span class="mjx-math"><span class="mjx-msubsup">'
        '<span class="mjx-base">x</span><span class="mjx-sup">2</span></span></span></span>',
        '<span class="MathJax"><nobr><span class="math"><span class="msubsup"><span class="mi">x</span>'
        '<span class="mn">2</span></span></span></nobr></span>',
        f"{CONTAINER}<mjx-math><mjx-mi><mjx-c class='mjx-c2B'></mjx-c></mjx-mi></mjx-math></mjx-container>",
        f"{CONTAINER}<mjx-math><mjx-mtext><mjx-utext>素</mjx-utext></mjx-mtext></mjx-math></mjx-container>",
        f"{CONTAINER}{SVG}</mjx-container>",
        f'<span class="MathJax_SVG">{SVG}</span>',
    ],
)
def test_output_without_a_source_leaves_no_text_and_is_counted(drawn):
    removed = Counter()
    assert text_beside(f"{drawn} y", removed) == "y" and removed == {"unread formula": 1}


@pytest.mark.parametrize(
    "drawn",
    [
        '<span class="mjx-chtml"><span class="mjx-math"></span></span>',
        f"{CONTAINER}<svg><g></g></svg></mjx-container>",
        f"{CONTAINER}<mjx-math><mjx-mfrac></mjx-mfrac></mjx-math></mjx-container>",
    ],
)
def test_output_without_glyphs_is_no_formula(drawn):
    removed = Counter()
    assert text_beside(f"{drawn} y", removed) == "y" and not removed
