"""The instances that train, evaluate and follow the models."""

from pathlib import Path
from typing import Any, get_args

from pipeline.config.evaluate import EvaluateSection
from pipeline.config.rl import TOOL_KEYS
from pipeline.config.root import ModelNode
from workflow.instances import Inputs, Instances, Result

# Stages whose models `evaluate.modes` knows; those of others are asked as `sft`.
ASKED = get_args(EvaluateSection.model_fields["model_stage"].annotation)


def add_models(graph: Instances) -> None:
    """Add each model that is trained, its evaluation, and those of what pre-training keeps on its way."""
    for name, node in graph.config.models.items():
        if node.train:
            _train(graph, name, node)
        benchmarks = node.benchmarks if node.benchmarks is not None else list(graph.config.benchmarks)
        if node.stage != "reward" and benchmarks:
            _evaluate(graph, f"evaluate/{name}", _model(graph, name), benchmarks)
        asked = graph.config.sections["trajectory"].benchmarks
        if node.stage == "cpt" and node.train and asked:
            for tokens in graph.config.model_sections[name].keep_at:
                kept = Result(f"cpt/{name}", f"kept/{tokens}")
                _evaluate(graph, f"trajectory/{name}/{tokens}", kept, asked)


def _train(graph: Instances, name: str, node: ModelNode) -> None:
    """Add the training of a model."""
    inputs: Inputs = []
    if node.parent:
        inputs.append(("parent", _model(graph, node.parent)))
    elif node.init != "scratch":
        inputs.append(("init", _init(graph, name)))
    if node.stage == "cpt":
        inputs.append(("tokens", Result(f"tokens/{node.mixture}")))
    for key in ("policy", "reward_model"):
        if getattr(node, key):
            inputs.append((key, _model(graph, getattr(node, key))))
    section = graph.config.model_sections[name]
    if node.stage == "reward" and section.replay:
        inputs += [("history", labels) for labels in _earlier_labels(graph, node)]
    for key in ("data", "prompts", "evaluation", "rollouts"):
        inputs += graph.inputs(key, getattr(section, key, None), f"models.{name}.{key}")
    if node.stage == "rl":
        files = [function.rpartition(":")[0] for function in section.rewards.functions]
        inputs += graph.inputs("reward", files, f"models.{name}.rewards.functions")
        inputs += graph.inputs("method", section.method_file, f"models.{name}.method")
    more: dict[str, Any] = _earlier_steps(graph, node) if node.stage == "rl" else {}
    if node.stage == "rl" and section.mode == "tool":
        more |= {key: getattr(graph.config.sections["evaluate"], key) for key in TOOL_KEYS}
    graph.add(f"{node.stage}/{name}", f"pipeline.{node.stage}", section, inputs, **more)


def _earlier_steps(graph: Instances, node: ModelNode) -> dict[str, int]:
    """Count steps of the RL models that an RL model continues, where there are any (paper, Algorithm 1)."""
    steps = 0
    while node.parent and graph.config.models[node.parent].stage == "rl":
        steps += getattr(graph.config.model_sections.get(node.parent), "steps", 0)
        node = graph.config.models[node.parent]
    return {"earlier_steps": steps} if steps else {}


def _earlier_labels(graph: Instances, node: ModelNode) -> list[str | Result]:
    """List step labels of the reward models that a reward model continues, the newest first (paper 4.1.4)."""
    found: list[str | Result] = []
    while node.parent and graph.config.models[node.parent].stage == "reward":
        parent = node.parent
        node = graph.config.models[parent]
        folder = _model(graph, parent)
        if isinstance(folder, Result):
            found.append(Result(folder.node, "labels.jsonl"))
        elif (labels := Path(folder) / "labels.jsonl").exists():
            found.append(str(labels))
    return found


def _model(graph: Instances, name: str) -> str | Result:
    """Get the folder or hub id of a model."""
    node = graph.config.models[name]
    return Result(f"{node.stage}/{name}") if node.train else _init(graph, name)


def _init(graph: Instances, name: str) -> str:
    return graph.model_source(str(graph.config.models[name].init), f"models.{name}.init")


def _evaluate(graph: Instances, instance: str, model: str | Result, benchmarks: list[str]) -> None:
    """Add an instance `evaluate/MODEL` or, greedy alone, `trajectory/MODEL/TOKENS`."""
    stage, _, rest = instance.partition("/")
    name, section = rest.partition("/")[0], graph.config.sections["evaluate"]
    inputs: Inputs = [("model", model), *graph.benchmark_files(benchmarks)]
    if "decontaminate/corpus" in graph.nodes:
        inputs.append(("removals", Result("decontaminate/corpus", "removals.jsonl")))
    for benchmark in benchmarks:
        for key in ("exemplars", "prompt", "pal_prompt"):
            sources = getattr(graph.config.benchmarks[benchmark], key)
            inputs += graph.inputs(f"{key}.{benchmark}", sources, f"benchmarks.{benchmark}.{key}")
    nodes = {
        benchmark: graph.config.benchmarks[benchmark].model_dump(mode="json") for benchmark in benchmarks
    }
    own = graph.config.models[name].modes
    own = own if isinstance(own, dict) else dict.fromkeys(benchmarks, own)
    for benchmark in benchmarks:
        if own.get(benchmark) is not None:
            nodes[benchmark]["modes"] = own[benchmark]
    made_by = graph.config.models[name].stage
    more: dict[str, Any] = {"benchmarks": nodes, "model_stage": made_by if made_by in ASKED else "sft"}
    if stage == "trajectory":
        more["samples"] = 0
        for node in nodes.values():
            node["samples"] = 0
    program = {"evaluate": "pipeline.evaluate", "trajectory": "pipeline.evaluate.trajectory"}[stage]
    graph.add(instance, program, section, inputs, **more)
