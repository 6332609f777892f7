"""`make bench-extraction`: page fragments of `tests/extraction` beside Resiliparse, trafilatura, lynx, w3m.

Each family is a kind of site: a page in its markup, the boilerplate that must go, and fragments with a class
and the text that a reader sees, formulas as TeX. Pages of a few fragments are extracted. A fragment is right
if its text is in the extracted text; white space, bullets, cell borders, braces around one character and the
kind of delimiter make no difference. lynx and w3m take part where they are installed. With `--pages FILE` it
reads pages of WebMainBench too (`webmain.py`).
"""

import argparse
import json
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import yaml
from corpus import resiliparse_alone, seconds, trafilatura_alone
from crawl_warcs import FILLER
from table import ROOT, Row, publish, row_of
from webformulas.signs import Source
from webmain import webmain_rows

from pipeline.crawl.text import extract

FOLDER = ROOT / "tests/extraction"
PAGES = 4  # of each family
FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$([^$\n]*[\\^_=<>{}][^$\n]*)\$", re.DOTALL)
DELIMITER = re.compile(r"\$|\\[()\[\]]")
BRACED = re.compile(r"([\^_])\{(.)\}")
IGNORED = re.compile(r"[\s|•\u00b7\u2022\u200b\u2060*+-]|\\(?:displaystyle|nonumber|,|;|!)|\u2212")
HAN = "\u3040-\u9fff"
MEASURES = ("fragments right", "formulas right", "text F1", "content recall", "boilerplate gone")
Extractor = Callable[[str], str]
Scores = dict[str, list[float]]


def canonical(text: str) -> str:
    """Text without what extractors may do as they like."""
    return BRACED.sub(r"\1\2", IGNORED.sub("", DELIMITER.sub("", text)))


def words(text: str) -> Counter[str]:
    return Counter(re.findall(f"[{HAN}]|[^\\W_{HAN}]+", text))


def pages(family: dict) -> list[tuple[str, list[tuple[str, str]]]]:
    """(page, its fragments' classes and texts) of a family."""
    made = []
    for number in range(PAGES):
        fragments = family["fragments"][number::PAGES]
        bodies = [html for _, html, _ in fragments]
        posts = "".join(family["post"].replace("{body}", body) for body in [*bodies, f"<p>{FILLER * 2}</p>"])
        body = family["page"].replace("{title}", "A page on mathematics").replace("{posts}", posts)
        head = f"<head><title>A page</title>{family['head']}</head>"
        html = f'<!DOCTYPE html><html lang="en">{head}<body>{body}</body></html>'
        made.append((html, [(kind, text) for kind, _, text in fragments]))
    return made


def score(extractor: Extractor, family: dict) -> tuple[Scores, dict[str, list[float]]]:
    """Shares of what a family's pages should give, by measure, and of right fragments, by class."""
    scores: Scores = {measure: [] for measure in MEASURES}
    classes: dict[str, list[float]] = defaultdict(list)
    for html, fragments in pages(family):
        text = extractor(html) or ""
        found = canonical(text)
        for kind, expected in fragments:
            right = float(canonical(expected) in found)
            scores["fragments right"].append(right)
            classes[kind].append(right)
            formulas = [canonical(first or second) for first, second in FORMULA.findall(expected)]
            scores["formulas right"] += [float(formula in found) for formula in formulas]
        wanted = words("\n".join([*(expected for _, expected in fragments), FILLER * 2]))
        given = words(text.replace("$", " "))
        shared = (wanted & given).total()
        scores["content recall"].append(shared / wanted.total())
        scores["text F1"].append(2 * shared / (wanted.total() + given.total()))
        scores["boilerplate gone"] += [float(canonical(line) not in found) for line in family["gone"]]
    return scores, classes


def dump(command: list[str]) -> Extractor:
    def extractor(html: str) -> str:
        page = f"<meta charset=utf-8>{html}"
        return subprocess.run(command, input=page.encode(), capture_output=True, check=True).stdout.decode()

    return extractor


def extractors() -> dict[str, Extractor]:
    """Ours first."""
    from importlib.metadata import version

    found: dict[str, Extractor] = {
        "ours": lambda html: extract(Source(html), 100)[1],
        f"Resiliparse {version('resiliparse')}": resiliparse_alone,
        f"trafilatura {version('trafilatura')}": trafilatura_alone,
    }
    lynx = ["-stdin", "-dump", "-nolist", "-width=1000", "-assume_charset=utf-8", "-display_charset=utf-8"]
    w3m = ["-T", "text/html", "-I", "utf-8", "-O", "utf-8", "-dump", "-cols", "1000"]
    commands = {"lynx": lynx, "w3m": w3m}
    return found | {name: dump([name, *rest]) for name, rest in commands.items() if shutil.which(name)}


def percent(values: list[float]) -> float:
    return round(100 * fmean(values), 1) if values else 100.0


def beside_best(name: str, ours: float, peers: dict[str, float], data: str) -> Row:
    """A row beside the best peer."""
    peer = max(peers, key=lambda name: peers[name])
    return row_of(name, "%", ours, peers[peer], peer, data, rate=True)


def markdown(families: dict[str, dict[str, Scores]], names: list[str]) -> str:
    """Give a Markdown table: fragments right and text F1 of each extractor."""
    lines = [f"| family | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for family, scores in families.items():
        cells = [
            f"{percent(s['fragments right']):.0f} / {percent(s['text F1']):.0f}" for s in scores.values()
        ]
        lines.append(f"| {family} | {' | '.join(cells)} |")
    return "\n".join(lines)


def speed(found: dict[str, Extractor], families: dict[str, dict]) -> dict[str, float]:
    """Pages a second of one core, processes of the dumps included."""
    htmls = [html for family in families.values() for html, _ in pages(family)]

    def all_pages(extractor: Extractor) -> None:
        for html in htmls:
            extractor(html)

    return {name: len(htmls) / seconds(lambda e=extractor: all_pages(e)) for name, extractor in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=Path, help="rows of WebMainBench")
    parser.add_argument("--missed", action="store_true", help="print the fragments that come out wrong")
    arguments = parser.parse_args()
    found = extractors()
    families = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yaml"))}
    scores: dict[str, dict[str, Scores]] = {}
    classes: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in found}
    for family, content in families.items():
        scores[family] = {}
        for name, extractor in found.items():
            scores[family][name], of_class = score(extractor, content)
            for kind, values in of_class.items():
                classes[name][kind] += values
    ours, *peers = found
    data = f"{sum(len(family['fragments']) for family in families.values())} fragments of tests/extraction"
    rows = []
    for family, by_name in scores.items():
        for measure in MEASURES:
            shares = {name: percent(by_name[name][measure]) for name in peers}
            rows.append(beside_best(f"{family}: {measure}", percent(by_name[ours][measure]), shares, data))
    for kind in sorted(classes[ours]):
        shares = {name: percent(classes[name][kind]) for name in peers}
        rows.append(beside_best(f"class {kind}: fragments right", percent(classes[ours][kind]), shares, data))
    for name, rate in (rates := speed(found, families)).items():
        if name != ours:
            rows.append(row_of("speed", "pages/s of CPU", rates[ours], rate, name, data, rate=True))
    if arguments.pages:
        rows += webmain_rows(arguments.pages, {name: found[name] for name in list(found)[:3]})
    publish("extraction", rows, "one used")
    print(f"\nfragments right / text F1, %\n\n{markdown(scores, list(found))}")
    if arguments.missed:
        missed(families)


def missed(families: dict[str, dict]) -> None:
    """Print the fragments that come out wrong."""
    for family, content in families.items():
        for html, fragments in pages(content):
            text = extract(Source(html), 100)[1]
            for kind, expected in fragments:
                if canonical(expected) not in canonical(text):
                    print(json.dumps([family, kind, expected], ensure_ascii=False))
            gone = [line for line in content["gone"] if canonical(line) in canonical(text)]
            print(*(f"{family}: kept {line}" for line in gone), sep="\n")


if __name__ == "__main__":
    main()
