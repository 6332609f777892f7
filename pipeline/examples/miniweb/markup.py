"""Articles as HTML: the page frame of a site and the way it writes formulas.

Formula markup kinds as on the real web: MathJax 2 and 3 (TeX delimiters in the text and a script), KaTeX
rendered on the server (visual spans plus MathML with the TeX in an annotation), MathML, images whose alt text
is TeX, and plain Unicode.
"""

from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment

from pipeline.examples.miniweb.pages import FORMULA, Article, split_mark
from pipeline.examples.miniweb.tex import parse, to_mathml, to_plain

LAYOUTS = ("article", "table", "content", "main")

FRAME = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True).from_string(
    Path(__file__).with_name("page.html.j2").read_text()
)


@dataclass(frozen=True)
class Site:
    """The features that all pages of a host share; `markup`: a kind of formulas, as `formula` has them."""

    host: str
    name: str
    language: str
    markup: str
    layout: str
    charset: str
    charset_in_header: bool
    charset_in_page: bool
    server: str
    sections: tuple[str, ...]


def formula(tex: str, kind: str, display: bool = False) -> str:
    """Write a formula in HTML, in the markup `kind`."""
    match kind:
        case "mathjax2":
            return f"$${escape(tex)}$$" if display else f'<span class="math-container">${escape(tex)}$</span>'
        case "mathjax3":
            return f"\\[{escape(tex)}\\]" if display else f"\\({escape(tex)}\\)"
        case "img-latex":
            source = f"https://formulas.images.example/latex.php?latex={quote(tex)}"
            return f'<img class="latex" src="{source}" alt="{escape(tex)}">'
        case "plain":
            return escape(to_plain(parse(tex)))
    tree = parse(tex)
    block = ' display="block"' if display else ""
    if kind == "mathml":
        return f'<math xmlns="http://www.w3.org/1998/Math/MathML"{block}>{to_mathml(tree)}</math>'
    return (
        f'<span class="katex{"-display" if display else ""}"><span class="katex-mathml">'
        f'<math xmlns="http://www.w3.org/1998/Math/MathML"{block}><semantics>{to_mathml(tree)}'
        f'<annotation encoding="application/x-tex">{escape(tex)}</annotation></semantics></math></span>'
        f'<span class="katex-html" aria-hidden="true">{escape(to_plain(tree))}</span></span>'
    )


def rich(text: str, kind: str, display: bool = False) -> str:
    """Write text with formulas as HTML; newlines become line breaks."""
    pieces = FORMULA.split(text)  # text and TeX alternate
    html = [
        escape(piece, quote=False) if i % 2 == 0 else formula(piece, kind, display)
        for i, piece in enumerate(pieces)
    ]
    return "".join(html).replace("\n", "<br>\n")


def blocks_html(mark: str, texts: list[str], kind: str) -> str:
    """Write successive blocks of one mark."""
    html = [rich(text, kind, display=mark == "$$") for text in texts]
    match mark:
        case "- " | "1. ":
            tag = "ul" if mark == "- " else "ol"
            return f"<{tag}>\n" + "\n".join(f"<li>{entry}</li>" for entry in html) + f"\n</{tag}>"
        case "| ":
            rows = (f"<tr><td>{row.replace('|', '</td><td>')}</td></tr>" for row in html)
            return "<table>\n" + "\n".join(rows) + "\n</table>"
        case "```":
            return "\n".join(f"<pre><code>{escape(text, quote=False)}</code></pre>" for text in texts)
        case "# " | "" | "$$":
            before, after = {"# ": ("<h2>", "</h2>"), "": ("<p>", "</p>")}.get(mark, ("<div>", "</div>"))
            return "\n".join(f"{before}{text}{after}" for text in html)
    author = mark[1:-2]
    user = f'<div class="user"><a href="/users/{quote(author)}">{escape(author)}</a></div>'
    posts = (f'<div class="post">{user}\n<div class="post-text"><p>{text}</p></div></div>' for text in html)
    return "\n".join(posts)


def render(article: Article, site: Site, related: list[tuple[str, str]]) -> str:
    """Return the page of an article on a site, with links (href, text) to `related` pages."""
    marked = groupby(map(split_mark, article.blocks), key=lambda block: block[0])
    parts = [blocks_html(mark, [text for _, text in group], site.markup) for mark, group in marked]
    body = "\n".join([f"<h1>{rich(article.title, site.markup)}</h1>", *parts])
    return FRAME.render(title=rich(article.title, "plain"), site=site, body=body, related=related)


def encode(html: str, charset: str) -> bytes:
    """Encode in the site's charset; characters that it lacks become numeric references, as editors do."""
    return html.encode(charset, errors="xmlcharrefreplace")
