"""A key exists if a shipped configuration sets it, the paper names it, or it is about what users bring."""

from collections.abc import Iterator
from typing import Any

from conftest import ROOT
from pydantic import BaseModel

from pipeline.config.evaluate import BenchmarkNode
from pipeline.config.root import BENCHMARKS, MODEL_STAGES, SECTIONS, ModelNode
from pipeline.config.tokens import MixtureNode
from pipeline.core.overlays import read_config
from pipeline.core.section import Section

NO_OVERLAYS = {"default", "claims", "paper"}
NODES = {"models": ModelNode, "mixtures": MixtureNode, "benchmarks": BenchmarkNode}
OWN_FILES = {
    *("crawl.texts", "crawl.fields", "crawl.base_url", "crawl.lost_files", "crawl.filters"),
    *("corpus.opt_out", "corpus.blocklists"),
    *("sft.fields", "sft.row_format", "reward.fields", "rl.fields", "rl.rollouts"),
    *("benchmarks.split", "report.claims"),
}
OWN_MACHINE = {
    *("launch.offload_optimizer", "launch.activation_checkpointing", "launch.compile"),
    *("launch.hang_minutes", "launch.tensor_parallel"),
}
RESEARCH = {"rl.clip_high", "rl.mask_truncated", "rl.rounds", "rl.importance_cap"}  # variants of GRPO


def keys_of(model: type[Section], prefix: str) -> Iterator[tuple[str, bool]]:
    """Each key of a section, with its section's name, and whether the paper names it."""
    for name in model.own_keys():
        info = model.model_fields[name]
        default = info.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            yield from keys_of(type(default), f"{prefix}.{name}")
        else:
            yield f"{prefix}.{name}", "paper" in (info.json_schema_extra or {})


def set_in(values: Any, prefix: str) -> Iterator[str]:
    """The keys that a mapping sets, with those of mappings in it; `launch` is a section of its own."""
    for name, value in values.items() if isinstance(values, dict) else ():
        yield f"{prefix}.{name}"
        yield from set_in(value, "launch" if name == "launch" else f"{prefix}.{name}")


def shipped() -> set[str]:
    """All keys that a shipped configuration sets, those of nodes by the section that they override."""
    found: set[str] = set()
    for path in (ROOT / "configs").glob("*.yaml"):
        if path.stem in NO_OVERLAYS:
            continue
        values = read_config([path])
        for section in SECTIONS:
            found |= {*set_in(values.get(section), section)}
        for group in NODES:
            for node in (values.get(group) or {}).values():
                stages = MODEL_STAGES if group == "models" else ()
                found |= {key for prefix in (group, *stages) for key in set_in(node, prefix)}
    for path in BENCHMARKS.glob("*.yaml"):
        found |= {*set_in(read_config([path]), "benchmarks")}
    return found


def test_a_key_is_set_by_a_shipped_configuration_or_the_papers_or_about_what_users_bring() -> None:
    known = dict(pair for name, model in (SECTIONS | NODES).items() for pair in keys_of(model, name))
    unset = {key for key in known.keys() - shipped() if not known[key]}
    assert unset == OWN_FILES | OWN_MACHINE | RESEARCH
