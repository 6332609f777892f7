"""Give a run's classifier to others: `dsm export results/<run>/corpus/iteration-2 --to FOLDER`.

FOLDER gets `classifier.bin`, which plain fastText loads, the second stage and its embeddings where there is
one, `normalise.py`, which makes of a text what the model reads and needs nothing of this project, `cut.json`,
and README.md: training data, settings, seeds, measures on unseen hosts with their curve, and the cut of each
language. `dsm classify` takes the folder as it takes the iteration's.
"""

import inspect
import shutil
from pathlib import Path
from typing import Any

from pipeline.corpus import normalise
from pipeline.corpus.convergence import read_notes
from pipeline.corpus.second_stage import FILE
from pipeline.corpus.trained import CUT, cut_of, folder_of, open_trained
from pipeline.data.rows import HUB
from pipeline.formulas.delimiters import FORMULA
from pipeline.protocol.errors import InputError
from pipeline.protocol.identity import read_manifest
from pipeline.protocol.manifest import write_json
from pipeline.protocol.store import put_in_place

TAUGHT = ("seed_texts", "background_texts", "seed_urls", "background_urls", "annotations", "grades")
EMBEDDINGS = "embeddings"
POINTS = 5  # of the curve, between each two rows of its table
IMPORT = "from pipeline.formulas.delimiters import FORMULA\n"
SNIPPET = """\
```python
import math
import fasttext
from normalise import normalise  # beside the model

model = fasttext.load_model("classifier.bin")
labels, chances = model.predict(normalise("Let $f(x) = x^2$. Then $f'(x) = 2x$ by the power rule."), k=2)
chance = dict(zip(labels, chances))
print(math.log(chance["__label__math"] / chance["__label__other"]))
```
"""


def normaliser() -> str:
    """Return the normaliser as a module that needs nothing of this project."""
    source = inspect.getsource(normalise)
    alone = source.replace(IMPORT, f"FORMULA = re.compile({FORMULA.pattern!r})\n")
    if alone == source or "pipeline" in alone:
        raise ValueError("the normaliser imports more of this project than FORMULA")
    return alone


def _data(train: Path, notes: dict[str, Any]) -> list[str]:
    """Say what the classifier was trained on."""
    inputs = read_notes(train / "run.json", "inputs")["inputs"]
    named = [
        f"{role.replace('_', ' ')}: {source if source.startswith(HUB) else Path(source).name}"
        for role in TAUGHT
        for source in inputs.get(role, [])
    ]
    grown = ["the pages that the iterations before it added to the seed"] if "previous" in inputs else []
    counts = f"{notes['positives']:,} mathematical pages and {notes['negatives']:,} others"
    graded = [f"{notes['graded']:,} graded pages (second stage)"] if "graded" in notes else []
    return ["## Training data", "", f"{counts}, of these sources:", ""] + [
        f"- {one}" for one in [*named, *grown, *graded]
    ]


def _measured(held_out: dict[str, Any] | None) -> list[str]:
    """Say how good it is on hosts that it had not seen, and at which cuts."""
    if not held_out:
        return ["It was not measured: the run held no pages out (`corpus.folds: 0`)."]
    lines = [
        f"By cross-validation over hosts, on {held_out['pages']:,} pages of the training lists,"
        f" {held_out['math_pages']:,} of them mathematical: average precision"
        f" {100 * held_out['average_precision']:.1f} %, recall at precision 90 %"
        f" {100 * held_out['recall_at_precision_0.9']:.1f} %. `train.json` has the whole curve, and the"
        " measures by language and host.",
        "",
        "| recall % | precision % |",
        "|---:|---:|",
    ]
    curve = held_out["curve"]
    points = [*curve[:-1:POINTS], curve[-1]]
    return lines + [f"| {100 * recall:.1f} | {100 * precision:.1f} |" for recall, precision in points]


def card_of(classifier: Path, name: str, licence: str | None) -> str:
    """Write the card of a classifier. Raises InputError."""
    from huggingface_hub import ModelCardData  # a second to import

    folder, train = folder_of(classifier), classifier / "train"
    manifest, notes = read_manifest(train / "manifest.json"), read_notes(folder / "train.json")
    cut, config = cut_of(classifier), manifest["config"]
    about = ModelCardData(library_name="fasttext", tags=["math", "text-classification"], license=licence)
    lines = [
        f"---\n{about.to_yaml()}\n---\n",
        f"# {name}",
        "",
        f"It tells pages of mathematics from others: `{manifest['instance']}` of a corpus (key"
        f" {manifest.get('key', manifest['fingerprint'])}).",
        "Its score is the logarithm of the odds that a text is mathematical.",
        *([] if licence else ["", "No licence was stated for it: that of its training data decides."]),
        "",
        *_data(train, notes),
        "",
        "## Settings",
        "",
        f"fastText: {', '.join(f'{key} {value}' for key, value in notes['settings'].items())}; seed"
        f" {config['seed']} (of fastText, of the samples and of the division by host), one thread; normaliser"
        f" {notes['normaliser']}.",
    ]
    if cut["second_stage"]:
        ways = f"{FILE}, with embeddings" if cut["second_stage"]["embeddings"] else FILE
        lines += [
            "",
            f"From a score of {cut['second_stage']['reach']:g} on a second classifier counts ({ways}); plain"
            " fastText gives the first one's score, `dsm classify` that of both.",
        ]
    lines += ["", "## Measured on unseen hosts", "", *_measured(notes["held_out"])]
    lines += [
        "",
        "## The cut",
        "",
        "The corpus keeps pages from these scores on.",
        "",
        "| language | score |",
    ]
    lines += ["|---|---:|"]
    for row in cut["thresholds"]:
        least = "nothing is kept" if row["threshold"] is None else f"{row['threshold']:.4f}"
        lines.append(
            f"| {row['language'] or 'any other' if len(cut['thresholds']) > 1 else 'any'} | {least} |"
        )
    use = f"`dsm classify {name} texts.parquet --output scored`, or with fastText alone:"
    return "\n".join([*lines, "", "## Use", "", use, "", SNIPPET])


def export_classifier(classifier: Path, target: Path, licence: str | None) -> str:
    """Write a classifier and its card to `target`, which appears whole; returns what to say of it. Raises
    InputError.
    """
    if target.exists():
        raise InputError(f"--to {target}: exists; name a folder that does not")
    folder, cut = folder_of(classifier), cut_of(classifier)
    if folder == classifier:
        raise InputError(f"{classifier}: is exported already")
    open_trained(classifier)  # whole, and of this normaliser
    partial = target.absolute().with_name(f".{target.absolute().name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name in ("classifier.bin", "train.json", *([FILE] if cut["second_stage"] else [])):
        shutil.copyfile(folder / name, partial / name)
    source = cut["second_stage"] and cut["second_stage"]["embeddings"]
    if source and not source.startswith(HUB):
        files = [path for end in ("*.safetensors", "*.json") for path in sorted(Path(source).rglob(end))]
        for path in files:
            place = partial / EMBEDDINGS / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
        cut["second_stage"][EMBEDDINGS] = EMBEDDINGS
    write_json(partial / CUT, cut)
    (partial / "normalise.py").write_text(normaliser())
    (partial / "README.md").write_text(card_of(classifier, target.absolute().name, licence))
    put_in_place(partial, target.absolute())
    return f"{target}: a classifier with its card; `dsm classify {target} FILES --output FOLDER` uses it"
