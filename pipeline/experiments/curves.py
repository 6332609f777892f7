"""Draws accuracy over the steps of RL as SVG, with the best rule that needs no model as a line (README).

A curve is the mean over a method's seeds on the held-out questions that `rl.evaluation` names.
"""

from html import escape
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean

from pipeline.data.rows import read_rows
from pipeline.protocol.errors import InputError
from pipeline.report.answers import Row
from pipeline.report.baselines import best, scores
from pipeline.report.collect import Run, open_run, read_lines
from pipeline.report.selection import families, family_name

WIDTH, HEIGHT = 720, 300  # of the picture
LEFT, RIGHT, TOP, BOTTOM = 52, 130, 20, 46  # margins
ACROSS, DOWN = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
COLOURS = ("#6d28d9", "#0369a1", "#b45309", "#15803d", "#be123c")
INK, RULE = "#334155", "#64748b"
FIRST_LINE = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
    ' aria-label="Right answers on held-out questions over the steps of RL"'
    ' font-family="Helvetica, Arial, sans-serif" font-size="13">'
    f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="#ffffff"/>'
)
Points = list[tuple[int, float]]


def picture(folder: Path) -> str:
    """Draw the RL methods of a run as SVG. Raises InputError where none was evaluated while it trained."""
    run = open_run(folder)
    lines = curves(run)
    if not lines:
        raise InputError(f"{folder}: no RL method was evaluated while it trained; set rl.evaluation")
    first = run.of("rl")[0]
    (file,), number = first.run["inputs"]["evaluation"], first.config["evaluation_questions"]
    asked = [Row(row["id"], row["question"], row["answer"]) for _, row in islice(read_rows(file), number)]
    return draw(lines, best(scores(asked)))


def curves(run: Run) -> dict[str, Points]:
    """(step, mean accuracy over the seeds) of each RL method, by name."""
    found = {}
    for names in families({"stage": "rl"}, run, every=True):
        seeds = [read_lines(run.finished[f"rl/{name}"].data / "evaluation.jsonl") for name in names]
        points = [
            (rows[0]["step"], fmean(row["accuracy"] for row in rows)) for rows in zip(*seeds, strict=True)
        ]
        if points:
            found[family_name(names)] = points
    return found


def draw(lines: dict[str, Points], rule: tuple[str, float]) -> str:
    """Return the picture as SVG: steps to the right, accuracy upwards, a name at the end of each line."""
    name, share = rule
    steps = sorted({step for points in lines.values() for step, _ in points})
    tenths = int(10 * max(share, *(y for points in lines.values() for _, y in points))) + 1

    def at(step: float, share: float) -> tuple[float, float]:
        right, down = step / max(steps[-1], 1), 1 - 10 * share / tenths
        return round(LEFT + ACROSS * right, 1), round(TOP + DOWN * down, 1)

    parts = [_text((LEFT + ACROSS / 2, HEIGHT - 10), "steps of RL", INK, "middle")]
    for tenth in range(tenths + 1):
        x, y = at(0, tenth / 10)
        parts.append(f'<path d="M{x} {y}h{ACROSS}" stroke="#e2e8f0"/>')
        parts.append(_text((x - 8, y + 4), f"{10 * tenth} %", INK, "end"))
    parts += [_text((at(step, 0)[0], HEIGHT - 28), str(step), INK, "middle") for step in steps]
    x, y = at(0, share)
    parts.append(f'<path d="M{x} {y}h{ACROSS}" stroke="{RULE}" stroke-dasharray="6 4"/>')
    parts.append(_text((x + 8, y - 6), f"no model: {name}", RULE, "start"))
    labels = []
    for (name, points), colour in zip(lines.items(), cycle(COLOURS), strict=False):
        places = [at(*point) for point in points]
        path = " ".join(f"{x},{y}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>' for x, y in places]
        labels.append((places[-1][1], name, colour))
    reached = 0.0
    for y, name, colour in sorted(labels):
        reached = max(y, reached + 16)  # no label covers another
        parts.append(_text((LEFT + ACROSS + 10, reached + 4), name, colour, "start"))
    return "\n".join([FIRST_LINE, *parts, "</svg>\n"])


def _text(place: tuple[float, float], words: str, colour: str, anchor: str) -> str:
    x, y = place
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'
