"""Renders the page: one HTML file that holds its style, scripts, data and plotly.js.

A content security policy with the hashes of the page's own scripts makes the browser refuse every request
and every other script, whatever a model wrote, but the scripts that those add: the explorer's files
(`pipeline.report.shards`).
"""

import base64
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from pipeline.core.progress import duration
from pipeline.report.compare import Difference
from pipeline.report.tables import Cell, gain, share

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("tex.js", "load.js", "explorer.js", "page.js")


@dataclass(frozen=True)
class Chapter:
    """A chapter: its anchor `id`, its template and what that shows, `figures` by name among it."""

    id: str
    title: str
    template: str
    context: dict[str, Any]


def embed(value: Any) -> Markup:
    """JSON that is safe inside a script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def cell(value: Cell) -> Markup:
    """Return a number with its interval in small print, or a dash."""
    if value.value is None:
        return Markup('<span class="none">–</span>')
    numbers = (value.value, *(value.ci95 or ()))
    first, *bounds = (f"{number:{'+.1f' if value.signed else '.1f'}}".replace("-", "−") for number in numbers)
    small = f" <small>{' … '.join(bounds)}</small>" if bounds else ""
    sign = f' class="{value.sign}"' if value.sign else ""
    return Markup(f"<b{sign}>{first}</b>{small}")


def interval(difference: Difference, scale: float) -> Markup:
    """Get a small drawing of a difference with its interval on an axis from -scale to scale, zero marked."""

    def x(value: float) -> float:
        return round(80 + 76 * max(-1.0, min(1.0, value / scale if scale else 0.0)), 1)

    low, high = difference.ci95
    _, least, most = difference.points
    return Markup(
        f'<svg class="interval {gain(difference).sign}" viewBox="0 0 160 16" role="img"'
        f' aria-label="{least} to {most} points">'
        '<line class="axis" x1="0" y1="8" x2="160" y2="8"/>'
        '<line class="zero" x1="80" y1="1" x2="80" y2="15"/>'
        f'<line class="range" x1="{x(low)}" y1="8" x2="{x(high)}" y2="8"/>'
        f'<circle cx="{x(difference.mean)}" cy="8" r="4"/></svg>'
    )


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share in percent."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def count(value: float | None) -> str:
    """Return a number with thin spaces between thousands."""
    return "–" if value is None else f"{value:,.0f}".replace(",", "\u202f")


def environment() -> Environment:
    """Return the templates; everything is escaped but `Markup` made here."""
    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (cell, gain, percent, count, share, duration, embed)
    found.filters |= {filter.__name__: filter for filter in filters}
    found.globals["interval"] = interval
    return found


def script(*names: str) -> str:
    """One script of several of the templates' folder."""
    return "\n".join(['"use strict";', *((TEMPLATES / name).read_text() for name in names)])


def script_hash(script: str) -> str:
    """Return the source of a content security policy that lets this script run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def render(
    run: str, subtitle: str, chapters: list[Chapter], data: dict[str, Any], kicker: str = "Report of a run"
) -> str:
    """Return the whole page. `data` is what its script reads besides the figures: where the explorer's files
    lie; `kicker`: the line above the title.
    """
    templates = environment()
    bodies, figures = [], {}
    for chapter in chapters:
        template = templates.get_template(f"{chapter.template}.html.j2")
        bodies.append(Markup(template.render(chapter=chapter, **chapter.context)))
        figures |= chapter.context.get("figures", {})
    scripts = {"plotly": get_plotlyjs() if figures else "", "page": script(*SCRIPTS)}
    return templates.get_template("page.html.j2").render(
        run=run,
        subtitle=subtitle,
        kicker=kicker,
        chapters=list(zip(chapters, bodies, strict=True)),
        figures=figures,
        data=data,
        style=Markup((TEMPLATES / "page.css").read_text()),
        scripts={name: Markup(script) for name, script in scripts.items()},
        policy=" ".join(map(script_hash, scripts.values())),
    )
