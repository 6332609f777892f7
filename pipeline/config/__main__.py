"""Write `configs/default.yaml` from the section classes.

`python -m pipeline.config` writes it; `--check` writes nothing and fails when it is out of date.
"""

import argparse
import sys
import textwrap
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from pipeline.config.evaluate import BenchmarkNode
from pipeline.config.root import SECTIONS, ModelNode, RunKeys
from pipeline.config.tokens import MixtureNode
from pipeline.core.section import Section

ROOT = Path(__file__).resolve().parents[2]
HEADER = """\
# Every key of the configuration: what it means, its unit, the paper's value and section (arXiv 2402.03300).
# Without a paper's value the paper is silent and the value is ours. Written from pipeline/config/*.py by
# `python -m pipeline.config`: change it there. Overlays hold only what differs. A model's node may override
# any key of its stage's section. Nodes of models, corpus, cpt, sft, reward, rl, evaluate and
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


def main() -> None:
    parser = argparse.ArgumentParser(description="Write configs/default.yaml from pipeline/config/*.py.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when it is out of date")
    check = parser.parse_args().check
    path, text = ROOT / "configs/default.yaml", default_yaml()
    if path.exists() and path.read_text() == text:
        return
    if check:
        sys.exit("configs/default.yaml is out of date: run `python -m pipeline.config`")
    path.write_text(text)


if __name__ == "__main__":
    main()
