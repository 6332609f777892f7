"""The normaliser: the short way for ASCII gives what the general way gives."""

import random

from pipeline.corpus.normalise import _marked, _tokens, normalise


def test_lines_of_any_characters_give_the_tokens_of_the_whole_text():
    generator = random.Random(0)
    alphabet = [*map(chr, range(128)), *"\\\\\\aZé中Σς\u0301\u0130\u00a0\u2028＼ﬁ\n\n"]
    for _ in range(3000):
        text = "".join(generator.choices(alphabet, k=generator.randrange(60)))
        assert normalise(text) == " ".join(_tokens(_marked(text))), text


def test_normaliser_keeps_tex_and_cjk_characters_and_drops_numbers_and_punctuation() -> None:
    assert normalise("Let \\frac{1}{2}+x\n= 3.5, 数学") == "let \\frac x 数 学"


def test_commands_keep_one_backslash_and_other_backslashes_go():
    assert normalise("\\\\Alpha\\beta \\ \\{x_1\\} a\\") == "\\alpha \\beta x a"


def test_formulas_and_lines_of_code_are_marked_and_prices_are_neither():
    assert normalise("if $x_1 < 2$ then\n$$y = 3$$") == "if \\formula x \\lt then \\formula y \\eq"
    assert normalise("int n = 3;\nreturn n\n}") == "int n \\code return n \\code"
    assert normalise("from $5 to $10") == "from to"
