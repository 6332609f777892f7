"""Formulas in a page's DOM: replace each formula element by a numbered mark and keep its TeX.

Text extraction sees marks instead of TeX, whose white space it would collapse. Containers are queried before
their contents, so that no formula is read twice. A query runs only if its keyword is in the page's source.
"""

import re
from collections.abc import Callable
from html import unescape

from resiliparse.parse.html import DOMNode, HTMLTree

from .attributes import CONTEXT, TEXT, attribute_formula, is_balanced, may_be_tex, shows
from .delimiters import undelimited, written
from .katex import html_to_tex, katex_html_to_tex
from .macros import Macros
from .markup import JOINER, PLAIN_MARKUP
from .mathml import Unread, mathml_to_tex
from .omml import omml_to_tex
from .signs import Source

MARK = re.compile("\ue000([0-9]+)\ue001")
CDATA = re.compile(r"^\s*(?:%\s*)?<!\[CDATA\[|(?:%\s*)?\]\]>\s*$")
STYLED = re.compile(r"\{\\(?:display|text|script)style\s*(.*)\}", re.DOTALL)
MATHJAX_2 = ("MathJax", "MJXc-display", "mjx-chtml", "MJX_Assistive")
TEX_SIGN = re.compile(r"[\\^_=<>+]")
TEX_COMMAND = re.compile(r"\\[A-Za-z]{2,}")
EMPHASIS, TAG = re.compile(r"</?(?:em|i)\b[^>]*>"), re.compile("<[^>]*>")
LEADING_STYLE = re.compile(r"^\s*\\displaystyle(?![A-Za-z])\s*")
BLOCKS = ("p", "div", "center", "dd", "figure", "blockquote", "section")
EDITED = str.maketrans("«»¨§`", "<>\"&'")
LINES = frozenset(("code", "span", "br"))
DRAWN_2 = ('class="mjx-math"', 'class="math"')  # in what MathJax 2 drew
DRAWN_3 = ("<mjx-c ", "<mjx-c>", "<mjx-utext", "data-c=")  # glyphs of MathJax 3 and 4
Found = tuple[str, bool] | None
Reader = Callable[[DOMNode], Found]


class Formulas:
    """Formulas removed from a page, by number, and how many of them could not be read."""

    def __init__(self, macros: Macros) -> None:
        self.found: list[str] = []
        self.unread = 0
        self.macros = macros

    def mark(self, tex: str, display: bool) -> str:
        """Store a formula and return its mark."""
        tex = tex.replace(JOINER, "").strip()
        if "\n" in tex:
            tex = re.sub(r"\n\s*\n", "\n", tex)
        if tex.startswith("{") and (match := STYLED.fullmatch(tex)) and is_balanced(match[1]):
            tex = match[1].strip()
        return self.keep(written(self.macros.expand(tex), display))

    def keep(self, text: str) -> str:
        """Store text unchanged and return its mark."""
        self.found.append(text)
        return f"\ue000{len(self.found) - 1}\ue001"

    def restore(self, text: str) -> str:
        """Replace marks by their formulas, which may contain marks themselves."""
        for _ in range(3):
            if "\ue000" not in text:
                break
            text = MARK.sub(self._formula, text)
        return text

    def _formula(self, match: re.Match[str]) -> str:
        number = int(match[1])
        return self.found[number] if number < len(self.found) else ""


def mark_formulas(tree: HTMLTree, source: Source, words: set[str], formulas: Formulas) -> None:
    """Replace the formula elements of `tree` by marks; `words` are the `formula_words` of its source."""
    if source.holds("hidden-readable"):  # Canvas repeats an image's formula for screen readers
        for node in tree.document.query_selector_all(".equation_image + .hidden-readable")[:]:
            node.decompose()
    signs: dict[str, bool] = {}
    for word, sign, selector, handler in KINDS:
        if word in words and sign not in signs:
            signs[sign] = source.holds(sign)
        if signs.get(sign):
            _replace_all(tree, selector, handler, formulas)
    attributes = [word for word in words if word.startswith("[")]
    _replace_all(tree, ", ".join(["img", *sorted(attributes)]), _attribute, formulas)
    if len(attributes) < len(words):
        _replace_all(tree, SOURCES, _source, formulas)
    if named := [f'[class*="{word}"]' for word in NAMED_SOURCES if source.holds(word)]:
        _replace_all(tree, ", ".join(named), _named_source, formulas)


def _replace_all(tree: HTMLTree, selector: str, handler: Reader, formulas: Formulas) -> None:
    for node in tree.document.query_selector_all(selector)[:]:  # a slice reads all nodes in one call
        if node.parent is not None:
            _replace(tree, node, handler, formulas)


def _replace(tree: HTMLTree, node: DOMNode, handler: Reader, formulas: Formulas) -> None:
    """Put a mark in the place of a formula element; one that cannot be read leaves nothing."""
    try:
        found = handler(node)
    except Unread:
        formulas.unread += 1
        mark = formulas.keep("")
    else:
        if found is None or not found[0].strip():
            return
        mark = formulas.mark(*found)
        if handler is _latexml:
            node = node.query_selector("math")
    node.parent.replace_child(tree.create_text_node(mark), node)


def _annotation(node: DOMNode) -> str:
    annotation = node.query_selector('annotation[encoding*="tex"], annotation[encoding*="TeX"]')
    return annotation.text.strip() if annotation is not None else ""


def _katex(node: DOMNode) -> Found:
    """KaTeX: the annotation in its MathML half, else the MathML, else the visual half."""
    display = "katex-display" in node.class_list or "katex--display" in node.class_list
    if tex := _annotation(node):
        return tex, display or node.query_selector('math[display="block"]') is not None
    if (math := node.query_selector("math")) is not None:
        tex, block = mathml_to_tex(math.html)
        return tex, display or block
    flat = node.query_selector(".katex-mathml")
    if flat is not None and (lines := [line.strip() for line in flat.text.split("\n") if line.strip()]):
        return lines[-1], display  # a sanitiser removed the MathML tags; the annotation's text is last
    drawn = node.query_selector(".katex-html")
    return (katex_html_to_tex(drawn.html), display) if drawn is not None else None


def _wiki(node: DOMNode) -> Found:
    """MediaWiki: hidden MathML with an annotation, and a fallback image."""
    image, math = node.query_selector("img"), node.query_selector("math")
    classes = (node.class_name or "") + " " + ((image.class_name or "") if image is not None else "")
    display = "-display" in classes or "-block" in classes
    if math is not None:
        tex, block = mathml_to_tex(math.html)
        return tex, display or block
    return (image.getattr("alt") or "", display) if image is not None else None


def _script(node: DOMNode) -> Found:
    """Source script of MathJax 2; removes the rendered output before it.

    Raises Unread for AsciiMath.
    """
    kind = node.getattr("type") or ""
    if not kind.startswith("math/"):
        return None
    source = CDATA.sub("", node.text)
    _drop_rendered_before(node)
    if "mml" in kind:
        return mathml_to_tex(source)
    if "asciimath" in kind:
        raise Unread
    return source, "mode=display" in kind.replace(" ", "")


def _drop_rendered_before(node: DOMNode) -> None:
    previous = node.prev
    while previous is not None:
        before = previous.prev
        if previous.tag == "#text":
            if previous.text.strip():
                return
        elif (previous.class_name or "").startswith(MATHJAX_2):
            previous.decompose()
        else:
            return
        previous = before


def _rendered(node: DOMNode) -> Found:
    """Return the TeX of what MathJax drew, where no source script was found.

    Raises Unread for output without source and MathML.
    """
    display = "isplay" in (node.class_name or "") or node.getattr("display") in ("true", "block")
    tex, block = _rendered_tex(node)
    if tex:
        _drop_rendered_before(node)
    return tex, display or block


def _rendered_tex(node: DOMNode) -> tuple[str, bool]:
    """Get the formula's source, else its assistive MathML, else the sources of its parts."""
    parts = _sources(node) if node.query_selector("[data-latex]") is not None else []
    if len(parts) == 1:
        return parts[0], False
    if (source := node.query_selector("[data-mathml]")) is not None or node.getattr("data-mathml"):
        return mathml_to_tex((source or node).getattr("data-mathml") or "")
    if (math := node.query_selector("math")) is not None:
        return mathml_to_tex(math.html)
    if parts:
        return " ".join(parts), False
    html = node.html
    if any(sign in html for sign in (*DRAWN_3, *DRAWN_2 * bool(node.text.strip()))):
        raise Unread  # only the places of its boxes tell a script from a factor
    return "", False


def _sources(node: DOMNode) -> list[str]:
    """TeX in MathJax 4's `data-latex`, of the outermost nodes in order; the hidden MathML would repeat it."""
    if tex := node.getattr("data-latex"):
        return [tex]
    children = [child for child in node.child_nodes[:] if not child.tag.startswith(("#", "mjx-assistive"))]
    return [tex for child in children for tex in _sources(child)]


def _math(node: DOMNode) -> Found:
    return mathml_to_tex(node.html)


def _word(node: DOMNode) -> Found:
    return omml_to_tex(node.html)


def _attribute(node: DOMNode) -> Found:
    """Return the TeX in the attributes of an element that shows nothing but a formula.

    It is displayed if it says so, is a block, or is an image alone in its block.
    """
    attributes = {name: node.getattr(name) or "" for name in node.attrs}
    image, mathml = node.tag == "img", attributes.get("data-mathml")
    if image and mathml:  # an editor's, with signs in place of those of HTML
        return mathml_to_tex(mathml.translate(EDITED))
    control = node.tag in NO_FORMULA or node.tag.startswith("mjx-")
    if control or (formula := attribute_formula(attributes)) is None:
        return None
    text, read = MARK.subn("", node.text)
    if not image and (read > 1 or not shows(text, formula[0])):
        return None
    return formula[0], formula[1] or (_is_alone(node) if image else node.tag in BLOCKS)


def _is_alone(node: DOMNode) -> bool:
    parent = node.parent
    while parent is not None and parent.tag in ("a", "span", "noscript") and parent.child_element_count == 1:
        parent = parent.parent
    if parent is None or parent.tag not in BLOCKS or parent.child_element_count != 1:
        return False
    return not parent.text.strip()


def _source(node: DOMNode) -> Found:
    """Return an element whose text is TeX for a script to render."""
    if node.child_element_count and not all(child.tag in LINES for child in node.query_selector_all("*")[:]):
        return None
    if "\ue000" in node.text:  # already replaced
        return None
    tex, display = undelimited(node.text)
    classes = node.class_name or ""
    if display is None and "$" in TEXT.sub("", tex) or node.child_element_count and not TEX_SIGN.search(tex):
        return None
    if classes == "math" and (display is not None or not TEX_COMMAND.search(tex)):  # jsMath has no delimiters
        return None
    if (
        node.next is not None
        and MARK.fullmatch(node.next.text.strip())
        and "none" in (node.getattr("style") or "")
    ):
        node.next.decompose()  # the formula as a script has drawn it
    style = f"{classes} {node.getattr('data-math-style') or ''}"
    style += " display" * ("equation" in style)
    block = "display" in style or "block" in style.split() or node.hasattr("block")
    if display is None and node.tag in ("div", "pre") and "inline" not in style:
        block = True
    return tex, block if display is None else display or block


def _named_source(node: DOMNode) -> Found:
    """Return an element whose class says TeX and whose text may be TeX, for a script to render."""
    return _source(node) if CONTEXT.search(node.class_name or "") and may_be_tex(node.text) else None


def _styled(node: DOMNode) -> Found:
    """Pandoc's and MediaWiki's formulas: TeX for a script to render, or HTML with sub and sup."""
    if not node.child_element_count:
        return _source(node) if "math" in node.class_list else None
    plain = all(child.tag in PLAIN_MARKUP for child in node.query_selector_all("*")[:])
    if plain and TEX_COMMAND.search(node.text):  # TeX in which Markdown took underscores for emphasis
        source = unescape(TAG.sub("", EMPHASIS.sub("_", node.html)))
        return undelimited(source)[0], "display" in node.class_list
    return (html_to_tex(node.html), "display" in node.class_list) if plain else None


def _latexml(node: DOMNode) -> Found:
    """Return a row of a LaTeXML equation: its cells hold the parts of one displayed formula."""
    parts = node.query_selector_all("math")[:]
    if not parts:
        return None
    tex = " ".join(LEADING_STYLE.sub("", mathml_to_tex(part.html)[0]) for part in parts)
    for part in parts[1:]:
        part.decompose()
    return tex, True


def _tagged(node: DOMNode) -> Found:
    """Return JATS's TeX, which stands beside the same formula in MathML."""
    for other in node.parent.child_nodes[:]:
        if (
            other.tag == "label" and other.first_child is not None
        ):  # the number of the equation, which would be taken for a form's label
            node.parent.insert_before(other.first_child, other)
        if other.tag in ("label", "mml:math", "math"):
            other.decompose()
    return undelimited(node.text)[0], node.parent.tag == "disp-formula"


# Elements whose text is TeX, and words in the classes of those whose text may be.
SOURCES = """
.math-container, [data-math-style], math-renderer, math-field, code.language-math, d-math, span[class="math"],
div[class="math"], tt.math, .mathquill-embedded-latex, span.tex, div.tex, code.tex, .inline-math,
.display-math, .math-tex, .katex-inline, .katex-block, .katex-error"""
NAMED_SOURCES = ("latex", "katex", "tex-", "-tex", "formula", "equation")
NO_FORMULA = ("a", "button", "input", "textarea", "option", "script", "style", "form", "g")
KINDS: tuple[tuple[str, str, str, Reader], ...] = (  # keyword in words, rarer keyword, selector, reader
    ("math-", "mwe-math-element", ".mwe-math-element", _wiki),
    ("math", "tex-math", "tex-math", _tagged),
    ("math/", "math/", 'script[type^="math/"]', _script),
    ("tex", "katex", ".katex-display, .katex--display", _katex),
    ("tex", "katex", ".katex", _katex),
    ("mjx-", "mjx-", "mjx-container", _rendered),
    ("mathJax", "athJax_", ".MathJax_Display, .MathJax_SVG_Display, .MathJax_CHTML_Display", _rendered),
    ("mjx-", "MJXc-", ".MJXc-display", _rendered),
    ("mathJax", '="MathJax', "span.MathJax, .MathJax_SVG, .MathJax_CHTML, .MathJax_MathML", _rendered),
    ("mjx-", "mjx-chtml", ".mjx-chtml", _rendered),
    ("math", "ltx_eqn_row", ".ltx_eqn_row", _latexml),
    ("math", "<math", "math", _math),
    ("math", ":math", "m\\:math, mml\\:math", _math),
    ("math", ":oMath", "m\\:omathpara, m\\:omath", _word),
    ("math ", "math ", ".math.inline, .math.display", _styled),
    ("math-", "math-", "span.math-inline, div.math-display", _styled),
    ("texhtml", "texhtml", ".texhtml", _styled),
)
