"""Write `configs/default.yaml` and `workflow/schemas/config.schema.json` from the section classes.

`python -m pipeline.config` writes both; `--check` writes nothing and fails when either is out of date.
"""

import argparse
import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, create_model
from pydantic_core import to_jsonable_python

from pipeline.config.evaluate import BenchmarkNode
from pipeline.config.root import LAUNCHED, MODEL_STAGES, SECTIONS, ModelNode, RunKeys
from pipeline.config.section import Section
from pipeline.config.tokens import MixtureNode

ROOT = Path(__file__).resolve().parents[2]
HEADER = """\
# Every key of the configuration: what it means, its unit, the paper's value and section (arXiv 2402.03300).
# Without a paper's value the paper is silent and the value is ours. Written from pipeline/config/*.py by
# `python -m pipeline.config`: change it there. Overlays hold only what differs. A model's node may override
# any key of its stage's section. Nodes of models, annotate, corpus, cpt, sft, reward, rl, evaluate and
# trajectory may hold `launch`: keys of that section that differ for them, as in `cpt: {launch: {ranks: 8}}`.
"""
NODES = """
# Named nodes. mixtures: what cpt models read. benchmarks: what models are evaluated on. models: their graph:
#   models:
#     base: {stage: cpt, init: scratch, mixture: math}
#     instruct: {stage: sft, parent: base}
#     grpo: {stage: rl, parent: instruct}
"""


def _comment(text: str, indent: str) -> str:
    return (
        textwrap.fill(
            text, 106, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}#   ", break_on_hyphens=False
        )
        + "\n"
    )


def _yaml(value: Any, flow: bool = False) -> str:
    plain = to_jsonable_python(value)
    return yaml.safe_dump(plain, default_flow_style=flow, allow_unicode=True, sort_keys=False, width=10**6)


def _inline(value: Any) -> str:
    return _yaml(value, flow=True).removesuffix("\n").removesuffix("...").strip()


def _assignment(name: str, value: Any, indent: str) -> str:
    if isinstance(value, dict) and value:
        block = _yaml(value)
        return f"{indent}{name}:\n{textwrap.indent(block, indent + '  ')}"
    return f"{indent}{name}: {_inline(value)}\n"


def keys_as_yaml(
    model: type[Section],
    indent: str,
    skip: tuple[str, ...] = (),
    commented: bool = False,
    values: BaseModel | None = None,
) -> str:
    """Return the keys of a section with their comments; `commented` writes a reference for a node's keys.

    `values`: an instance whose values are the defaults here, instead of the type's.
    """
    lines = []
    for name in model.own_keys():
        if name in skip:
            continue
        info = model.model_fields[name]
        paper = (info.json_schema_extra or {}).get("paper")
        meaning = (info.description or "").rstrip(".") + (f". Paper: {paper}" if paper else "")
        default = getattr(values, name) if values else info.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            lines.append(
                _comment(meaning, indent)
                + f"{indent}{name}:\n"
                + keys_as_yaml(type(default), indent + "  ", values=default)
            )
        elif commented:
            shown = "required" if info.is_required() else _inline(default)
            lines.append(_comment(f"  {name} ({shown}): {meaning}", indent))
        else:
            lines.append(_comment(meaning, indent) + _assignment(name, default, indent))
    return "".join(lines)


def default_yaml() -> str:
    """Return the text of `configs/default.yaml`."""
    parts = [HEADER, "\n", keys_as_yaml(RunKeys, "")]
    for name, model in SECTIONS.items():
        title = (model.__doc__ or name).strip().splitlines()[0]
        parts.append(f"\n{_comment(title, '')}{name}:\n{keys_as_yaml(model, '  ', skip=('seed',))}")
    parts.append(NODES)
    for name, node in (("mixtures", MixtureNode), ("benchmarks", BenchmarkNode), ("models", ModelNode)):
        reference = keys_as_yaml(node, "", commented=True)
        parts.append(f"\n# Keys of a node of {name} (and their defaults):\n{reference}{name}: {{}}\n")
    return "".join(parts)


def _schema_of(model: type[Section]) -> dict[str, Any]:
    schema = _without_defaults(model.model_json_schema())
    schema["properties"] = {name: schema["properties"][name] for name in model.own_keys()}
    return schema


def _without_defaults(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            key: _without_defaults(value)
            for key, value in schema.items()
            if key not in ("default", "title") and not (key == "paper" and isinstance(value, str))
        }
    return [_without_defaults(item) for item in schema] if isinstance(schema, list) else schema


def _model_schema(stage: str) -> dict[str, Any]:
    section = SECTIONS[stage]
    fields = {
        name: (info.annotation, info)
        for source in (section, ModelNode)
        for name, info in source.model_fields.items()
    }
    schema = _schema_of(create_model(f"{stage}_model", __base__=Section, **fields))
    schema["properties"] |= {"stage": {"const": stage}, "launch": {"$ref": "#/$defs/launch"}}
    schema.pop("required", None)  # an overlay may name only what it changes
    return schema


def json_schema() -> dict[str, Any]:
    """Return the strict JSON schema of an overlay: all keys optional, unknown ones refused, no defaults."""
    definitions: dict[str, Any] = {}

    def use(schema: dict[str, Any]) -> dict[str, Any]:
        definitions.update(schema.pop("$defs", {}))
        return schema

    sections = {name: use(_schema_of(model)) for name, model in SECTIONS.items()}
    definitions["launch"] = sections["launch"]
    for name in LAUNCHED:
        sections[name]["properties"]["launch"] = {"$ref": "#/$defs/launch"}
    nullable = lambda schema: {"anyOf": [schema, {"type": "null"}]}  # noqa: E731 (an overlay removes a node by null)
    models = [use(_model_schema(stage)) for stage in MODEL_STAGES]
    benchmark = use(_schema_of(BenchmarkNode))
    benchmark.pop("required")  # configs/benchmarks/ may give the rest
    nodes = {
        "mixtures": use(_schema_of(MixtureNode)),
        "benchmarks": benchmark,
        "models": {"anyOf": models},
    }
    properties = _schema_of(RunKeys)["properties"] | sections
    properties |= {
        name: {"type": "object", "additionalProperties": nullable(schema)} for name, schema in nodes.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of DeepSeekMath, end to end",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "$defs": definitions,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Write configs/default.yaml and the JSON schema from pipeline/config/*.py."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is out of date")
    check = parser.parse_args().check
    schema = json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"
    files = {"configs/default.yaml": default_yaml(), "workflow/schemas/config.schema.json": schema}
    texts = {ROOT / name: text for name, text in files.items()}
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if check:
            print(
                f"{path.relative_to(ROOT)} is out of date: run `python -m pipeline.config`", file=sys.stderr
            )
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[path])
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
