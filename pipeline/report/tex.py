r"""Text with TeX as HTML: formulas become MathML, all other text is escaped.

Browsers draw MathML without scripts or fonts of ours. A formula that cannot be converted stays TeX source.
"""

import re
from html import escape

from pipeline.formulas.tex_to_mathml import tex_to_mathml

# A dollar opens a formula only if one closes it; prices ("$5 and $10") have spaces or digits there.
_SPAN = re.compile(
    r"\$\$(?P<a>.+?)\$\$|\\\[(?P<b>.+?)\\\]|\\\((?P<c>.+?)\\\)|(?<![\\$\w])\$(?=[^\s$])(?P<d>[^$\n]*?[^\s\\$])\$(?!\d)|\\boxed\s*\{",
    re.DOTALL,
)


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
        parts.append(tex_to_mathml(tex, display=match["a"] is not None or match["b"] is not None))
        at = end
    return "".join(parts) + escape(text[at:], quote=False)
