"""Give a run's classifier to others: `dsm export results/<run>/corpus/iteration-2 --to FOLDER`.

FOLDER gets `classifier.bin`, which plain fastText loads, `normalise.py`, which makes of a text what the model
reads and needs nothing of this project, `cut.json`, and README.md: training data, settings, seeds, measures
on unseen hosts with their curve, and the cut. `dsm classify` takes the folder as it takes the iteration's.
"""

import inspect
import shutil
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from webformulas.delimiters import FORMULA

from pipeline.core.data.rows import HUB
from pipeline.core.errors import InputError
from pipeline.core.identity import read_manifest
from pipeline.core.manifest import write_json
from pipeline.core.store import put_in_place
from pipeline.corpus import normalise
from pipeline.corpus.convergence import read_notes
from pipeline.corpus.trained import CUT, cut_of, folder_of, open_trained

TAUGHT = ("seed_texts", "background_texts", "seed_urls", "background_urls", "annotations")
POINTS = 5  # of the curve, between each two rows of its table
IMPORT = "from webformulas.delimiters import FORMULA\n"
TEMPLATE = Path(__file__).with_name("card.md.j2")


def normaliser() -> str:
    """Return the normaliser as a module that needs nothing of this project."""
    source = inspect.getsource(normalise)
    alone = source.replace(IMPORT, f"FORMULA = re.compile({FORMULA.pattern!r})\n")
    if alone == source or "pipeline" in alone:
        raise ValueError("the normaliser imports more of this project than FORMULA")
    return alone


def _sources(train: Path) -> list[str]:
    """Name what the classifier was trained on."""
    inputs = read_notes(train / "run.json", "inputs")["inputs"]
    named = [
        f"{role.replace('_', ' ')}: {source if source.startswith(HUB) else Path(source).name}"
        for role in TAUGHT
        for source in inputs.get(role, [])
    ]
    grown = ["the pages that the iterations before it added to the seed"] if "previous" in inputs else []
    return named + grown


def card_of(classifier: Path, name: str, licence: str | None) -> str:
    """Fill `card.md.j2` for a classifier. Raises InputError."""
    from huggingface_hub import ModelCardData  # a second to import

    train, notes = classifier / "train", read_notes(folder_of(classifier) / "train.json")
    about = ModelCardData(library_name="fasttext", tags=["math", "text-classification"], license=licence)
    curve = notes["held_out"]["curve"] if notes["held_out"] else []
    layout = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    environment = Environment(undefined=StrictUndefined, **layout)
    environment.filters |= {"n": "{:,}".format, "share": lambda share: f"{100 * share:.1f}"}
    return environment.from_string(TEMPLATE.read_text()).render(
        about=about.to_yaml(),
        name=name,
        licence=licence,
        manifest=read_manifest(train / "manifest.json"),
        notes=notes,
        sources=_sources(train),
        cut=cut_of(classifier),
        points=[*curve[:-1:POINTS], *curve[-1:]],
    )


def export_classifier(classifier: Path, target: Path, licence: str | None) -> str:
    """Write a classifier and its card to `target`, which appears whole; says so. Raises InputError."""
    if target.exists():
        raise InputError(f"--to {target}: exists; name a folder that does not")
    folder, cut = folder_of(classifier), cut_of(classifier)
    if folder == classifier:
        raise InputError(f"{classifier}: is exported already")
    open_trained(classifier)  # whole, and of this normaliser
    partial = target.absolute().with_name(f".{target.absolute().name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name in ("classifier.bin", "train.json"):
        shutil.copyfile(folder / name, partial / name)
    write_json(partial / CUT, {"threshold": cut})
    (partial / "normalise.py").write_text(normaliser())
    (partial / "README.md").write_text(card_of(classifier, target.absolute().name, licence))
    put_in_place(partial, target.absolute())
    return f"{target}: a classifier with its card; `dsm classify {target} FILES --output FOLDER` uses it"
