"""What `make corpus-quality` writes before it runs, and its table (configs/corpus-quality.yaml).

python -m pipeline.experiments.quality prepare --web FOLDER --bench FOLDER --model MODEL --output FILE
python -m pipeline.experiments.quality table results/corpus-quality [--page docs/measured.md]

The first writes the overlay with pages and model, and beside it the solutions that models are to predict: of
MATH train and GSM8K train, some for the comparison and others to choose a learning rate by. The second prints
the table, or writes it between `<!-- quality -->` and `<!-- end of quality -->` of a page. Solutions that
share a run of words with a page of any corpus, by the evidence of decontamination, are left out. Models that
differ in their seed are one row; differences are paired by solution.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import yaml

from pipeline.config.decontaminate import DecontaminateSection
from pipeline.config.likelihood import FILE
from pipeline.data.rows import read_rows, write_lines
from pipeline.data.shards import read_documents, shard_paths
from pipeline.decontaminate.ngrams import PREFIX, build_index
from pipeline.experiments.pretrained import data_file
from pipeline.experiments.real import Folder, benchmarks, pages
from pipeline.intervals import estimate_effect
from pipeline.protocol.errors import InputError
from pipeline.protocol.manifest import fingerprint
from pipeline.report.collect import Run, collect, read_lines
from pipeline.report.scores import markdown, show_table
from pipeline.report.selection import families, family_name

SOLUTIONS = {"MATH": ("math_train_solutions", "solution"), "GSM8K": ("gsm8k_train", "solution_plain")}
REPORTED, DEVELOPMENT = 200, 60  # solutions of each
CORPORA = ("first-iteration", "last-iteration", "formulas", "random")
MARKS = ("<!-- quality -->", "<!-- end of quality -->")
START, BEST = "published", "last-iteration"
FOUND = ("cpt/*", "likelihood/*", "tokens/*", "decontaminate/corpus", "decontaminate/*/corpus")
LEFT_OUT = (
    "Bits per byte, means over solutions: a proxy, not a benchmark. Of {all:,} solutions {left:,} share a run"
    " of words with a page of a corpus and are left out. Each model read {tokens:,} tokens."
)


def draw_solutions(bench: Path) -> Iterator[dict[str, str]]:
    """Yield equally many solutions of each source, in an order that their ids decide: the reported first."""
    for source, (stem, field) in SOLUTIONS.items():
        found = []
        for place, row in read_rows(data_file(bench, stem)):
            if not (row.get("id") and row.get("question") and row.get(field)):
                raise InputError(f"{place}: expected `id`, `question` and `{field}`")
            found.append({"id": row["id"], "source": source, "question": row["question"], "text": row[field]})
        if len(found) < REPORTED + DEVELOPMENT:
            raise InputError(
                f"{bench}: {len(found)} solutions of {source}; {REPORTED + DEVELOPMENT} are needed"
            )
        yield from sorted(found, key=lambda row: fingerprint(row["id"]))[: REPORTED + DEVELOPMENT]


def write_overlay(web: Path, bench: Path, model: str, output: Path) -> None:
    """Write the overlay and, in a folder of its name, `documents.jsonl` and `dev.jsonl`."""
    problems: list[str] = []
    overlay = pages(Folder(web, problems), "warc")
    overlay["benchmarks"] = benchmarks(Folder(bench, problems))
    if problems:
        raise InputError("\nerror: ".join(problems))
    folder, rows = output.with_suffix(""), list(draw_solutions(bench))
    folder.mkdir(parents=True, exist_ok=True)
    parts: dict[str, list[dict[str, str]]] = {"documents": [], "dev": []}
    for number, row in enumerate(rows):
        parts["documents" if number % (REPORTED + DEVELOPMENT) < REPORTED else "dev"].append(row)
    for name, part in parts.items():
        write_lines(folder / f"{name}.jsonl", part)
    overlay |= {
        "mixtures": {name: {"tokenizer": model} for name in CORPORA},
        "models": {START: {"init": model}},
        "likelihood": {"documents": str(folder / "documents.jsonl")},
    }
    output.write_text(yaml.safe_dump(overlay, sort_keys=False, allow_unicode=True))


def held_by(documents: list[str], corpora: Iterable[Path]) -> set[str]:
    """Return the ids of the documents whose question or solution a page of the corpora holds a run of."""
    section = DecontaminateSection(fields={"documents": {"solution": "text"}})
    index = build_index({f"{PREFIX}documents": documents}, section)
    texts = {
        page.text for folder in corpora for shard in shard_paths(folder) for page in read_documents(shard)
    }
    return {match.item for text in texts for match in index.matches(text)}


@dataclass(frozen=True)
class Measured:
    """Bits per byte (seeds, documents) of each family of models; `places`: the documents of each source."""

    run: Run
    values: dict[str, np.ndarray]
    members: dict[str, list[str]]
    places: dict[str, list[int]]
    left: int

    def mean(self, name: str, source: str) -> float:
        """Return the mean over seeds and the documents of a source."""
        return float(self.values[name][:, self.places[source]].mean())

    def difference(self, better: str, worse: str, source: str) -> str:
        """Return `better` minus `worse` with its interval, in thousandths."""
        sides = [self.values[name][:, self.places[source]] for name in (better, worse)]
        found = estimate_effect([(sides[0], sides[1])], matched=worse == START)
        shown, low, high = (f"{1000 * value:+.1f}" for value in (found.effect, *found.interval()))
        return f"{shown} [{low}, {high}]"


def read_measured(folder: Path) -> Measured:
    """Read the results of a run. Raises InputError where it has none."""
    made = (path.parent for pattern in FOUND for path in sorted(folder.glob(f"{pattern}/manifest.json")))
    inputs = {str(path.relative_to(folder)): [str(path / "data")] for path in made}
    run = collect(folder.absolute().name, inputs)
    measured = {result.instance: result for result in run.of("likelihood")}
    if START not in measured or len(measured) <= len(run.models):
        raise InputError(
            f"{folder}: models without a likelihood; expected a whole run of configs/corpus-quality.yaml"
        )
    files = measured[START].run["inputs"]["documents"]
    rows = {row["id"]: row["source"] for file in files for _, row in read_rows(file)}
    leaks = held_by(files, [result.data / "corpus" for result in run.of("decontaminate")])
    kept = [name for name in rows if name not in leaks]
    members = {START: [START]} | {family_name(names): names for names in families({}, run, every=True)}

    def per_byte(model: str) -> list[float]:
        found = {row["id"]: row["bits"] / row["bytes"] for row in read_lines(measured[model].data / FILE)}
        return [found[name] for name in kept]

    values = {family: np.array([per_byte(name) for name in names]) for family, names in members.items()}
    sources = dict.fromkeys(rows.values())
    places = {source: [at for at, name in enumerate(kept) if rows[name] == source] for source in sources}
    return Measured(run, values, members, places, len(rows) - len(kept))


def mean_table(found: Measured) -> str:
    """Give the table of bits per byte, a column for each source; also of each learning rate, if several."""
    titles = [f"{source} train, {len(places)} solutions" for source, places in found.places.items()]
    rows = [["bits per byte", "corpus, tokens", "passes", *titles]]
    rates: dict[float, list[str]] = {}
    for name, members in found.members.items():
        cells = ["", ""]
        if model := found.run.models.get(members[0]):
            rates.setdefault(model.config["learning_rate"], []).append(name)
            tokens = found.run.finished[f"tokens/{model.mixture}"].manifest["counts"]["tokens.pages"]
            passes = found.run.finished[f"cpt/{members[0]}"].manifest["counts"]["passes.pages"]
            cells = [f"{tokens:,}", f"{passes:.2f}"]
        seeds = f" ({len(members)} seeds)" if len(members) > 1 else ""
        cells += [f"{found.mean(name, source):.4f}" for source in found.places]
        rows.append([f"{name}{seeds}", *cells])
    for rate, names in rates.items() if len(rates) > 1 else ():
        cells = [f"{fmean(found.mean(name, source) for name in names):.4f}" for source in found.places]
        rows.append([f"mean at rate {rate:g}", "", "", *cells])
    return markdown(rows)


def difference_table(found: Measured) -> str:
    """Give the table of paired differences of models with several seeds: what training changed, then the last
    iteration beside the others.
    """
    several = [name for name, members in found.members.items() if len(members) > 1]
    pairs = [(name, START) for name in several]
    pairs += [(BEST, name) for name in several if BEST in several and name != BEST]
    rows = [["difference, thousandths", *found.places]]
    for better, worse in pairs:
        cells = [found.difference(better, worse, source) for source in found.places]
        rows.append([f"{better} minus {worse}", *cells])
    return markdown(rows)


def quality_table(folder: Path) -> str:
    """Give the whole table of a run, as Markdown."""
    found = read_measured(folder)
    counts = {result.manifest["counts"]["tokens"] for result in found.run.of("cpt")}
    if len(counts) != 1:
        raise InputError(
            f"{folder}: models read {', '.join(map(str, sorted(counts)))} tokens; expected equally many"
        )
    kept = sum(map(len, found.places.values()))
    said = LEFT_OUT.format(all=kept + found.left, left=found.left, tokens=counts.pop())
    return f"{mean_table(found)}\n{difference_table(found)}\n{said}\n"


def main() -> None:
    """Prepare a run, or print its table."""
    words: Any = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = words.add_subparsers(dest="command", required=True)
    before, after = commands.add_parser("prepare"), commands.add_parser("table")
    before.add_argument("--web", type=Path, required=True, help="folder of WARC files and lists")
    before.add_argument("--bench", type=Path, required=True, help="folder of benchmark files")
    before.add_argument("--model", required=True, help="folder or hub id of the model to start from")
    before.add_argument("--output", type=Path, required=True, help="overlay to write")
    after.add_argument("run", type=Path, metavar="RUN", help="results/corpus-quality")
    after.add_argument("--page", type=Path, help="write the table into this page instead")
    given = words.parse_args()
    try:
        if given.command == "prepare":
            write_overlay(given.web, given.bench, given.model, given.output)
        else:
            show_table(quality_table(given.run), given.page, MARKS)
    except InputError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
