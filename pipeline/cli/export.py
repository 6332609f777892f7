"""Give a trained model to others: `dsm export results/<run>/rl/grpo --to FOLDER [--licence apache-2.0]`.

FOLDER gets what transformers, vLLM and the hub load (weights, tokenizer, chat template, generation settings)
and README.md, a model card: where the model starts from, each stage that trained it with its data, their
licences, what the run measured, and how to use it. Weights are whole: what adapters learnt is merged into
them, and the adapter itself lies beside them unless `--merge` leaves it out. For the classifier of a corpus
(`results/<run>/corpus/iteration-2`) see `pipeline/corpus/exported.py`.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from yaml import YAMLError

from pipeline.config.lora import ADAPTER
from pipeline.config.rl import RlSection
from pipeline.core import stages
from pipeline.core.addresses import public
from pipeline.core.data.rows import HUB
from pipeline.core.errors import InputError
from pipeline.core.identity import read_manifest
from pipeline.core.store import Entry, name_of, put_in_place
from pipeline.corpus.exported import export_classifier
from pipeline.report.collect import open_run
from pipeline.report.compare import Results

WEIGHTS = "*.safetensors"
FILES = (WEIGHTS, "*.safetensors.index.json", "*config.json", "tokenizer*", "*.jinja")
TRAINED_ON = ("data", "prompts", "tokens")  # roles of inputs that weights were fitted to
CONVERTER = "convert_hf_to_gguf.py"  # llama.cpp's
SNIPPET = """\
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "{name}"
tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
chat = [{{"role": "user", "content": {question}}}]
options = {{"add_generation_prompt": True, "return_tensors": "pt", "return_dict": True}}
prompt = tokenizer.apply_chat_template(chat, **options)
output = model.generate(**prompt, max_new_tokens=256, do_sample=False)
print(tokenizer.decode(output[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True))
```

As a server with OpenAI's interface: `vllm serve {name}`.
"""


def entry_of(folder: Path) -> Entry:
    """Find the model that an instance's link, or its `data`, leads to. Raises InputError if it is none."""
    found = Entry.of(folder.resolve() / "data") or Entry.of(folder.resolve())
    if found is None or not found.made:
        raise InputError(f"{folder}: no finished result of a run; expected results/<run>/<stage>/<model>")
    if found.name.partition("/")[0] not in stages.TEXT_STAGES or not list(found.data.glob(WEIGHTS)):
        raise InputError(f"{folder}: {found.name} is no model that writes text; choose one of a run's models")
    return found


def lineage(model: Entry) -> list[tuple[Entry, dict[str, Any], dict[str, list[str]]]]:
    """Collect the results that trained the model, the first one first, with manifests and inputs by role."""
    chain = []
    entry: Entry | None = model
    while entry is not None:
        manifest = read_manifest(entry.manifest)
        inputs = json.loads(entry.manifest.with_name("run.json").read_text())["inputs"]
        chain.append((entry, manifest, inputs))
        parent = Entry.of(Path(next(iter(inputs.get("parent", [])), "")))
        entry = parent and Entry(model.run.with_name(parent.run.name), parent.name, parent.key)
    return chain[::-1]


def _shown(source: str) -> str:
    """Name an input: another result by its name, a hub id or an address without secrets, a file's name."""
    entry = Entry.of(Path(source))
    if entry is not None:
        rest = Path(source).relative_to(entry.data).as_posix()
        return entry.name if rest == "." else f"{entry.name}, {rest}"
    return Path(source).name if Path(source).exists() else public(source)


def licence_of(source: str) -> str:
    """Read a licence from the card of a folder, or of what was fetched from the hub."""
    from huggingface_hub import metadata_load, try_to_load_from_cache  # a second to import
    from huggingface_hub.errors import HFValidationError

    found = Path(source) / "README.md"
    here = Path(source).exists() or Entry.of(Path(source)) is not None  # a run's own, wherever that lies
    try:
        if not here:
            kind = "dataset" if source.startswith(HUB) else "model"
            name = "/".join(re.split("[:@]", source.removeprefix(HUB))[0].split("/")[:2])
            found = Path(str(try_to_load_from_cache(name, "README.md", repo_type=kind)))
        if not found.is_file():
            return "not stated" if here else "see its page"
        return str((metadata_load(found) or {}).get("license") or "not stated")
    except HFValidationError:  # an address
        return "see its page"
    except (YAMLError, ValueError):
        return "its README.md cannot be read"


def _texts_of(model: Entry, source: str) -> list[str]:
    """List what was tokenised into a mixture of the model's run; other data are what they are."""
    entry = Entry.of(Path(source))
    if entry is None or not entry.name.startswith("tokens/"):
        return [source]
    entry = Entry(model.run.with_name(entry.run.name), entry.name, entry.key)  # wherever the command runs
    inputs = json.loads(entry.manifest.with_name("run.json").read_text())["inputs"]
    return [text for role, texts in inputs.items() if role.startswith("source.") for text in texts]


def _licences(inits: list[str], sources: list[str]) -> list[str]:
    """Write whose licences count, as the lines of a Markdown table."""
    rows = [f"| {_shown(source)} | {licence_of(source)} |" for source in [*inits, *sources]]
    return ["| base model and data | licence |", "|---|---|", *dict.fromkeys(rows)]


def asked_question(stage: str, config: dict[str, Any]) -> str:
    """Write a question with the instruction that the model was trained to be asked with."""
    if stage == "rl":
        suffix = RlSection(**{key: config[key] for key in ("mode", "suffix") if key in config}).asks_with
    else:
        suffix = config.get("suffix", {}).get("cot", {})
    return json.dumps("\n".join(filter(None, ["What is 3 + 4?", suffix.get("en")])))


def front_matter(results: Results | None, model: str, about: dict[str, Any]) -> str:
    """Write what the hub reads of a model card: `about` and the results, where there are any."""
    from huggingface_hub import EvalResult, ModelCardData  # a second to import

    measured = [
        EvalResult(
            task_type="text-generation",
            dataset_type=benchmark,
            dataset_name=benchmark,
            metric_type="accuracy",
            metric_name=f"greedy, {mode.replace('_', ' ')}",
            metric_value=round(100 * score["accuracy"], 2),
        )
        for name, benchmark, mode, score in (results.scored() if results else ())
        if name == model
    ]
    named = {"model_name": model, "eval_results": measured} if measured else {}
    data = ModelCardData(**named, library_name="transformers", tags=["math"], **about)
    return f"---\n{data.to_yaml()}\n---\n\n"


def score_table(results: Results, model: str) -> list[str]:
    """Write a model's greedy accuracies with intervals, as the lines of a Markdown table."""
    lines = ["| benchmark | mode | questions | % | 95 % interval |", "|---|---|---:|---:|---|"]
    for name, benchmark, mode, score in results.scored():
        if name == model:
            low, high = (f"{100 * bound:.1f}" for bound in score["ci95"])
            cells = (benchmark, mode.replace("_", " "), score["n"], f"{100 * score['accuracy']:.1f}")
            lines.append(f"| {' | '.join(map(str, cells))} | {low} to {high} |")
    return lines


def card(model: Entry, licence: str | None, name: str) -> str:
    """Write the model card: how the model was made and what its run measured. Raises InputError."""
    chain = lineage(model)
    inits = [source for _, _, inputs in chain for source in inputs.get("init", [])]
    about: dict[str, Any] = {"license": licence} if licence else {}
    if inits:
        about["base_model"] = _shown(inits[0])
    start = f"It starts from `{_shown(inits[0])}`." if inits else "It was trained from random weights."
    lines = [f"# {name}", "", f"`{model.name}` of the run `{model.run.name}`. {start}", ""]
    if not licence:
        lines += ["No licence was stated for it: that of its base model and of its data decides.", ""]
    lines += ["## How it was made", "", "| stage | settings that are not defaults | data | steps |"]
    lines += ["|---|---|---|---:|"]
    for entry, manifest, inputs in chain:
        settings = "; ".join(f"{key}: {value}" for key, value in manifest["identity"]["section"].items())
        data = "; ".join(_shown(source) for role in TRAINED_ON for source in inputs.get(role, []))
        cells = (f"{entry.name} (key {entry.key})", settings, data, str(manifest["counts"].get("steps", "")))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    packages = ", ".join(f"{package} {version}" for package, version in chain[-1][1]["packages"].items())
    given = [source for _, _, inputs in chain for role in TRAINED_ON for source in inputs.get(role, [])]
    read = [source for one in given for source in _texts_of(model, one)]
    if (model.data / ADAPTER).is_dir():
        lines += ["", "Its last stage trained adapters (LoRA), which are merged into these weights."]
    lines += ["", f"Packages: {packages}.", "", "## Licences", "", *_licences(inits, read)]
    lines += ["", "## Results", ""]
    node, results = model.name.partition("/")[2], None
    if (model.run / "evaluate" / node / "manifest.json").is_file():
        results = Results(open_run(model.run))
    lines += score_table(results, node) if results else ["The run has not evaluated this model."]
    question = asked_question(model.name.partition("/")[0], chain[-1][1]["config"])
    lines += ["", "## Use", "", SNIPPET.format(name=name, question=question)]
    return front_matter(results, node, about) + "\n".join(lines)


def export(folder: Path, target: Path, licence: str | None, merge: bool = False, gguf: bool = False) -> None:
    """Write a model and its card to `target`, which appears whole; without the adapter by itself if `merge`,
    with a file for llama.cpp if `gguf`. Raises InputError.
    """
    model = entry_of(folder)
    if target.exists():
        raise InputError(f"--to {target}: exists; name a folder that does not")
    if gguf and shutil.which(CONVERTER) is None:
        raise InputError(f"--gguf: no {CONVERTER} in PATH: install llama.cpp, which has it")
    name = target.absolute().name
    text = card(model, licence, name)
    partial = target.absolute().with_name(f".{target.absolute().name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        for path in sorted({path for pattern in FILES for path in model.data.glob(pattern)}):
            shutil.copyfile(path, partial / path.name)
        if (model.data / ADAPTER).is_dir() and not merge:
            shutil.copytree(model.data / ADAPTER, partial / ADAPTER)
        (partial / "README.md").write_text(text)
        if gguf:
            _convert(partial, partial / f"{name}.gguf")
        put_in_place(partial, target.absolute())
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _convert(folder: Path, file: Path) -> None:
    """Write the model as llama.cpp reads it. Raises InputError with the last line that the converter said."""
    done = subprocess.run([CONVERTER, str(folder), "--outfile", str(file)], capture_output=True, text=True)
    if done.returncode or not file.is_file():
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        raise InputError(f"--gguf: {CONVERTER} failed: {said[-1]}")


def push(folder: Path, name: str) -> str:
    """Upload an exported folder to the hub, where it is private; returns its address. Raises InputError."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError, LocalTokenNotFoundError

    try:
        address = HfApi().create_repo(name, private=True, exist_ok=True)
        if not HfApi().repo_info(name).private:
            told = "is there and public; make it private there first, or take another name"
            raise InputError(f"--push {name}: {told}")
        HfApi().upload_folder(repo_id=name, folder_path=folder, commit_message="Add the model and its card")
    except (HfHubHTTPError, LocalTokenNotFoundError) as error:
        raise InputError(f"--push {name}: {error}; `hf auth login` names you to the hub") from error
    except (HTTPError, HFValidationError, OSError) as error:
        raise InputError(f"--push {name}: {error}") from error
    return str(address)


def main(argv: list[str] | None = None) -> None:
    """Export the model that the command line names."""
    parser = argparse.ArgumentParser(prog="dsm export", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "model", type=Path, help=f"results/<run>/{name_of('rl', 'grpo')}, say, or corpus/iteration-2"
    )
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="one that is not there yet")
    parser.add_argument("--licence", help="of the model, as the hub writes it: apache-2.0")
    parser.add_argument("--merge", action="store_true", help="leave out the adapter, which is merged anyway")
    parser.add_argument("--gguf", action="store_true", help=f"a file for llama.cpp too, by its {CONVERTER}")
    parser.add_argument(
        "--push", metavar="OWNER/NAME", help="upload it to the hub, where it is private at first"
    )
    given = parser.parse_args(argv)
    try:
        if (given.model / "select").is_dir():  # an iteration of a corpus
            if given.merge or given.gguf:
                raise InputError(f"{given.model}: a classifier; --merge and --gguf are for models")
            print(export_classifier(given.model, given.to, given.licence))
        else:
            export(given.model, given.to, given.licence, given.merge, given.gguf)
            print(f"{given.to}: a model folder with its card; `dsm chat --model {given.to}` talks to it")
        if given.push:
            print(f"{push(given.to, given.push)}: the folder, private until you change that there")
    except (InputError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
